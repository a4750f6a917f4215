"""What every process of a home builds for itself."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sense_worker.settings import Settings
from sense_worker.wiring import chain_name

if TYPE_CHECKING:
    from pathlib import Path


def test_processes_that_start_at_once_agree_on_the_chains_name(tmp_path: Path):
    """Whoever comes first names the chain; nobody sees half a name, and no draft is left."""
    settings = Settings.load({"HCP_HOME": str(tmp_path)})
    names: list[str] = []
    begin = threading.Barrier(16)

    def ask() -> None:
        begin.wait()
        names.append(chain_name(settings))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(names)) == 1
    assert len(names[0]) == 16
    assert [path.name for path in tmp_path.iterdir()] == ["audit.chain"]
