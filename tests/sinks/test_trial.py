"""Plugins that end, crash or hang their process at import are found in a process of their own (C52)."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from sinks import trial
from sinks.registry import Registry
from tests.sinks.sites import Site

if TYPE_CHECKING:
    from pathlib import Path

EXITS = "its import ends the process, with exit code 3"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    made = Site(folder)
    yield made
    for module in made.modules:
        sys.modules.pop(module, None)


@pytest.mark.case("C52")
def test_what_cannot_be_caught_is_found_before_the_import(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A plugin that exits, crashes or hangs at import is left out by name, all within one bound; the others work."""
    left = tmp_path / "left"
    site.install("zz-exits", "exits = zz_exits:Sink", "import os; os._exit(3)")
    site.install("zz-quits", "quits = zz_quits:Sink", "import os; os._exit(0)")
    site.install("zz-crashes", "crashes = zz_crashes:Sink", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    hangs = f"import subprocess; subprocess.run(['sh', '-c', 'echo $$ > {left}; exec sleep 600'])"
    site.install("zz-hangs", "hangs = zz_hangs:Sink", hangs)
    site.install("zz-waits", "waits = zz_waits:Sink", "import threading; threading.Event().wait()")
    site.install("zz-raises", "raises = zz_raises:Sink", "raise OSError('its own matter')")
    site.good("zz-good", "good")
    monkeypatch.setattr(trial, "LIMIT_S", 1.5)
    registry = Registry.load()
    assert {fault.entry_point: fault.reason for fault in registry.faults} == {
        "crashes": "its import ends the process, by SIGSEGV",
        "exits": EXITS,
        "hangs": "its import does not end",
        "quits": "its import ends the process, with exit code 0",
        "raises": "OSError: its own matter",
        "waits": "its import does not end",
    }
    assert registry.get("good") is not None
    assert not runs(int(left.read_text()))


def runs(pid: int) -> bool:
    """Tell whether a process still runs; one that was killed may wait to be reaped."""
    ends = time.monotonic() + 5
    while time.monotonic() < ends:
        stat = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
        if not stat.strip() or stat.startswith("Z"):
            return False
        time.sleep(0.01)
    return True


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the trials, in each of which the plugin `exits` does so."""
    trials: list[int] = []

    def asked(found):
        trials.append(len(found))
        return [EXITS if one.name == "exits" else "" for one in found]

    monkeypatch.setattr(trial, "_asked", asked)
    return trials


def test_one_process_of_a_host_tries_and_the_others_know(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The verdicts stand in a file until the installed packages change, or somebody asks afresh."""
    trials, file = counted(monkeypatch), tmp_path / "verdicts.json"
    site.install("zz-exits", "exits = zz_exits:Sink", "import os; os._exit(3)")
    for _ in range(3):
        assert [fault.reason for fault in Registry.load(verdicts=file).faults] == [EXITS]
    assert trials == [1]
    site.good("zz-good", "good")
    Registry.load(verdicts=file)
    assert trials == [1, 2]
    Registry.load(verdicts=file, fresh=True)
    assert trials == [1, 2, 2]
    file.write_text('{"of": 1')
    assert [fault.reason for fault in Registry.load(verdicts=file).faults] == [EXITS]
    assert len(trials) == 4
    assert [one.name for one in tmp_path.glob("*verdicts*")] == ["verdicts.json"]


def test_a_host_without_plugins_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Only where plugins are installed it costs anything."""
    monkeypatch.setattr(subprocess, "run", None)
    file = tmp_path / "verdicts.json"
    assert (Registry.load(verdicts=file, fresh=True).faults, file.exists()) == ((), False)


def test_plugins_that_could_not_be_tried_are_left_out(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where no process can be started nothing is imported untried, and the next start tries again."""
    site.good("zz-good", "good")
    file = tmp_path / "verdicts.json"
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/no/such/python")
        (fault,) = Registry.load(verdicts=file).faults
    assert fault.reason.startswith("could not be tried: ")
    assert Registry.load(verdicts=file).faults == ()
