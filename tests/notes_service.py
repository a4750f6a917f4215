"""The service of the example pack `notes`, as a process on loopback, and copies of the pack that name its port."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PACK = Path(__file__).parents[1] / "examples/packs/notes"
DECLARED = b"http://127.0.0.1:8765/v1"


class NotesService(NamedTuple):
    """A running service."""

    process: subprocess.Popen[str]
    address: str
    code: str

    def surface(self, surface: bytes) -> bytes:
        """Return a manifest with this service's address in its document."""
        assert surface.count(DECLARED) == 1
        return surface.replace(DECLARED, self.address.encode())

    def pack(self, folder: Path) -> Path:
        """Return a copy of the pack that calls this service."""
        shutil.copytree(PACK, folder)
        (folder / "surface.json").write_bytes(self.surface((folder / "surface.json").read_bytes()))
        return folder

    def end(self) -> None:
        """Stop it for good."""
        self.process.kill()
        self.process.wait()


@contextmanager
def notes_service() -> Iterator[NotesService]:
    """Run the service, on a free port, while the block runs."""
    program = [sys.executable, str(PACK / "service.py"), "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address, code = process.stdout.readline().strip().split(", pairing code ")
            yield NotesService(process, address, code)
        finally:
            process.kill()
