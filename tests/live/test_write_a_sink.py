"""docs/write-a-sink.md: its files and commands, one after the other, as whoever reads it would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.live.worlds import until
from tests.sinks.packages import ROOT, environment, wheel
from tests.sinks.test_conformance import TESTS, found

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "write-a-sink.md").read_text()
COMMANDS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
FILES = dict(re.findall(r"Put this into `([^`]+)`:\n\n```python\n(.*?)```", PAGE, re.DOTALL))
COMMITTER = {"NAME": "Ana", "EMAIL": "ana@example.org"}
GIT = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in COMMITTER.items()}


def shell(commands: str, folder: Path, env: dict[str, str]) -> str:
    """Run commands of the page; the first that fails ends them, and the test."""
    done = subprocess.run(
        ["bash", "-ec", commands], cwd=folder, env=env, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The folder of the page's first step, with this checkout in its environment, and no index to install from."""
    folder = tmp_path / "my-sinks"
    folder.mkdir()
    empty = wheel_of_nothing(tmp_path)
    python = environment(folder / "env", empty, pip=True)
    for name in ("sense-worker", "pytest"):
        script = folder / "env" / "bin" / name
        module = {"sense-worker": "sense_worker.cli.main", "pytest": "pytest"}[name]
        script.write_text(f'#!/bin/sh\nexec "{python}" -m {module} "$@"\n')
        script.chmod(0o755)
    passed = {name: value for name, value in os.environ.items() if not name.startswith(("SENSE_", "PYTHON", "PYTEST"))}
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
    path = f"{folder / 'env' / 'bin'}:{passed['PATH']}"
    return folder, {**passed, **pip, **GIT, "CHECKOUT": str(ROOT), "PATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def wheel_of_nothing(folder: Path) -> Path:
    """Return a wheel to make an environment with, as the page installs something first."""
    source = folder / "nothing"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[project]\nname = "nothing"\nversion = "1"\n[tool.setuptools]\npackages = []\n'
    )
    out = folder / "wheels"
    out.mkdir()
    return wheel(source, out)


@pytest.mark.long
def test_the_page_leads_to_a_running_sink(place: tuple[Path, dict[str, str]]):
    """A package is made and tested, gets the page's sink and tests, and a commit's delivery is a row of its table."""
    folder, env = place
    _, made, tested, up, second = COMMANDS
    assert "24 passed, 2 skipped" in shell(made, folder, env)
    for file, text in FILES.items():
        assert (folder / file).exists()
        (folder / file).write_text(text)
    assert "24 passed, 2 skipped" in shell(tested, folder, env)
    *prepared, last = up.strip().splitlines()
    assert last == "sense-worker up"
    shell("\n".join(prepared), folder, env)
    log = folder / "up.log"
    with log.open("wb") as out:
        argv = [sys.executable, "-m", "sense_worker.cli.main", "up"]
        python = folder / "env" / "bin" / "python"
        running = subprocess.Popen(
            [python, *argv[1:]], cwd=folder, env={**env, "HCP_HOME": str(folder / "home")}, stdout=out, stderr=out
        )
    try:
        until(lambda: "ready: " in log.read_text(), 60, "up")
        *steps, listed, looked = second.strip().splitlines()
        shell("\n".join(steps), folder.parent, env)
        in_place = f"cd my-sinks\nexport HCP_HOME=$PWD/home\n{listed}"
        until(lambda: "delivered" in shell(in_place, folder.parent, env), 40, "the delivery")
        assert "commit.created: " in shell(looked, folder, env)
    finally:
        running.terminate()
        running.wait(30)


def test_the_page_s_sink_passes_its_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any):
    """The two files stand as they are on the page, and hold."""
    package = tmp_path / "sense_sink_tickets"
    package.mkdir()
    sink, tests = FILES.values()
    (package / "sink.py").write_text(sink)
    (package / "__init__.py").write_text("from sense_sink_tickets.sink import Tickets as Tickets\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, Any] = {"__name__": "page"}
    try:
        exec(tests, names)  # noqa: S102 - the page is ours, and it has to run
        names["test_a_ticket_has_a_title"](package)
        told = found(names["TestTickets"]().make, tmp_path, capfd, TESTS)
        assert {name: text.partition(":")[0] for name, text in told.items()} == {
            "test_an_answer_within_the_deadline": "skipped",
            "test_secrets_leave_no_trace": "skipped",
        }
    finally:
        for module in [name for name in sys.modules if name.startswith("sense_sink_tickets")]:
            del sys.modules[module]
