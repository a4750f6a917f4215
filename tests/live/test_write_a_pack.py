"""docs/write-a-pack.md: its files and commands, one after the other, as whoever reads it would."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sense_worker.cli import main
from tests.live.test_up import Up, living

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "write-a-pack.md").read_text()
COMMANDS = [block.splitlines() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)]
FILES = re.findall(r"\*\*`([^`]+)`\*\* says[^\n]*\n\n```json\n(.*?)```", PAGE, re.DOTALL)
FILE = re.compile(r"/\S+/activations/act_\w+\.json")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="what is left of a killed process is read from /proc"),
    pytest.mark.timeout(400),
]


class Reader:
    """Types the lines of the page in one folder; commands of ours run in this process, which spares their start."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._file = ""

    def types(self, lines: list[str]) -> str:
        """Type lines; each ends well and warns of nothing. Returns what the last one printed."""
        said = ""
        for line in lines:
            said = self._ours(line) if line.startswith("sense-worker ") else self._shell(line)
        return said

    def _ours(self, line: str) -> str:
        typed = line.replace("$(command -v sort)", str(shutil.which("sort")))
        _, *arguments = [self._file if word == "FILE" else word for word in shlex.split(typed)]
        self._capsys.readouterr()
        code = main.run(arguments)
        said = self._capsys.readouterr()
        assert (line, code, said.err) == (line, 0, "")
        found = FILE.search(said.out)
        self._file = found[0] if found else self._file
        return said.out

    @staticmethod
    def _shell(line: str) -> str:
        return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reader:
    """A reader in an empty folder, with a home of its own and no setting."""
    for name in [name for name in os.environ if name.startswith("SENSE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HCP_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Reader(capsys)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[[], Up]]:
    """Return a function that starts what the first terminal runs, and waits until it is ready."""
    started: list[Up] = []

    def start() -> Up:
        started.append(Up(tmp_path / "home", SENSE_EXEC_INTAKE="0"))
        return started[0].ready()

    yield start
    for one in started:
        one.stop()
        one.close()
        assert living(one.home) == []


def test_pack_new_writes_what_the_page_shows(reader: Reader, tmp_path: Path) -> None:
    """It lints clean, its scenario holds, and a second one overwrites nothing."""
    made, *_ = COMMANDS
    assert [name for name, _ in FILES] == ["lists/surface.json", "lists/policy.json"]
    assert reader.types(made).splitlines()[-1] == "lists/scenario.yaml: 5 of 5 cases hold"
    assert [(name, (tmp_path / name).read_text()) for name, _ in FILES] == FILES
    assert reader.types(["sense-worker pack lint lists"]) == "lists: clean\n"
    assert main.run(["pack", "new", "lists"]) == 2


def test_the_page_leads_to_a_pack_that_announces_and_runs(reader: Reader, tmp_path: Path, up: Callable[[], Up]) -> None:
    """An event stands in the inbox, a read shows a file in order, and a confirmed write has written it."""
    made, first, second, run = COMMANDS
    assert (first.pop(), first.pop(0), second.pop(0)) == ("sense-worker up", *['export HCP_HOME="$PWD/home"'] * 2)
    reader.types([*made[:1], *first])
    up()

    executable = reader.types(second).splitlines()[1:]
    assert [line.strip() for line in executable] == ["lists.show: executable", "lists.save: executable"]
    published, listed, helped, shown, saved, printed = run
    reader.types([published])
    assert "list.changed" in reader.types([listed])
    assert "file     string, a path within the working folder, required" in reader.types([helped])
    assert reader.types([shown]) == "apple\npear\n"
    assert reader.types([saved, printed]) == "apple\npear\n"
