"""A folder of installed sink plugins, as an installer leaves them."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
    from sinks import Delivered, SinkBase

    class Sink(SinkBase):
        kind = "{kind}"

        def deliver(self, batch):
            return [Delivered()] * len(batch)
"""


class Site:
    """A folder of installed packages, as an installer leaves them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules: list[str] = []

    def install(self, package: str, entry_points: str, source: str | None = None, metadata: str = "") -> None:
        module = package.replace("-", "_")
        info = self.folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(metadata or f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[sense_worker.sinks]\n{entry_points}\n")
        self.modules.append(module)
        if source is not None:
            (self.folder / f"{module}.py").write_text(dedent(source))

    def good(self, package: str, kind: str) -> None:
        self.install(package, f"{kind} = {package.replace('-', '_')}:Sink", GOOD.format(kind=kind))
