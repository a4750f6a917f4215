"""The nursery: what a worker's readers and its sweep are forked from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sense_worker.nursery import CHILD_NAME, NAME, Restarts
from sense_worker.tether import tethered
from tests.live.worlds import until

CHILD = """
import os, signal, threading, time
from pathlib import Path
from sense_worker.nursery import stop_on_signals

def main(index, parent):
    assert threading.active_count() == 1, "forked beside threads"
    stop = stop_on_signals()
    here = Path(os.environ["HERE"])
    with (here / f"begun-{index}").open("a") as file:
        file.write(f"{os.getpid()} {parent}\\n")
    while index == 9:
        time.sleep(1)
    stop.wait(60)
    (here / f"ended-{index}").touch()
"""

WORKER = """
import sys
from sense_worker.nursery import Forked

forked = Forked(["child_of_test:0"])
print(forked._pid, flush=True)
for line in sys.stdin:
    if line == "begin\\n":
        forked.begin()
    elif line == "end\\n":
        forked.terminate()
        print(forked.wait(), flush=True)
"""


def test_the_pause_before_a_restart_grows_and_is_short_again():
    """It doubles from 0.2 s to 10 s; a process that lived half a minute starts again at the shortest pause."""
    restarts = Restarts("one")

    assert [restarts.pause_s(1, 0.1) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert [restarts.pause_s(1, 30.0), restarts.pause_s(1, 0.1)] == [0.2, 0.4]


class Started:
    """A nursery of children that write when they begin and when they end in order."""

    def __init__(self, folder: Path, *indexes: int, stop_s: float = 15.0) -> None:
        self.folder = folder
        (folder / "child_of_test.py").write_text(CHILD)
        env = {name: value for name, value in os.environ.items() if not name.startswith("SENSE_")}
        env |= {"HERE": str(folder), "HCP_HOME": str(folder), "PYTHONPATH": str(folder), "SENSE_LOG_FORMAT": "json"}
        named = [f"child_of_test:{index}" for index in indexes]
        code = f"import sys; from sense_worker import nursery; nursery.STOP_S = {stop_s}; nursery.main(sys.argv[1:])"
        argv = [sys.executable, "-c", code, str(os.getpid()), *named]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(tethered(argv, signal.SIGTERM), env=env, stderr=log, stdout=log)

    def begun(self, index: int) -> list[tuple[int, int]]:
        """Return pid and parent of each life of a child."""
        file = self.folder / f"begun-{index}"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(pid), int(parent)) for pid, parent in (line.split() for line in lines)]

    def events(self) -> list[str]:
        """Return what it logged."""
        return [json.loads(line)["event"] for line in self.log.read_text().splitlines()]


@pytest.fixture
def nursery(tmp_path):
    """A nursery of two children."""
    started = Started(tmp_path, 0, 1)
    yield started
    started.process.kill()
    started.process.wait(10)


def test_children_are_forked_started_again_and_ended_in_order(nursery):
    """One that is killed is back, told in the log; SIGTERM ends all of them in order, and then the nursery."""
    until(lambda: nursery.begun(0) and nursery.begun(1), 20, "both begun")
    ((pid, parent),) = nursery.begun(0)
    assert parent == nursery.process.pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: len(nursery.begun(0)) == 2, 10, "it is back")
    assert nursery.events() == ["process ended and is started again"]
    assert len(nursery.begun(1)) == 1

    nursery.process.send_signal(signal.SIGTERM)

    assert nursery.process.wait(10) == 0
    assert {file.name for file in nursery.folder.glob("ended-*")} == {"ended-0", "ended-1"}
    assert len(nursery.begun(0)) == 2


def test_children_do_not_outlive_a_nursery_that_is_killed(nursery):
    """SIGKILL of the nursery ends its children in order."""
    until(lambda: nursery.begun(0) and nursery.begun(1), 20, "both begun")

    nursery.process.kill()
    nursery.process.wait(10)

    until(lambda: len(list(nursery.folder.glob("ended-*"))) == 2, 10, "both ended")


def test_a_child_that_does_not_stop_is_killed(tmp_path):
    """What hangs at a stop is killed when its time is over, and keeps nothing from ending."""
    started = Started(tmp_path, 9, stop_s=0.2)
    try:
        until(lambda: started.begun(9), 20, "it begun")
        ((pid, _),) = started.begun(9)
        started.process.send_signal(signal.SIGTERM)

        assert started.process.wait(10) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    finally:
        started.process.kill()
        started.process.wait(10)


@pytest.fixture
def worker(tmp_path):
    """A process that has forked a nursery of one child, which waits for its word."""
    (tmp_path / "child_of_test.py").write_text(CHILD)
    env = {**os.environ, "HERE": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(tethered([sys.executable, "-c", WORKER]), env=env, text=True, bufsize=1, **pipes) as process:
        yield process
        process.kill()


def test_a_forked_nursery_begins_at_its_word_and_ends_in_order(worker, tmp_path):
    """Its children come from the worker's own process, which has loaded what they need; SIGTERM ends them in order."""
    forked = int(worker.stdout.readline())
    assert not (tmp_path / "begun-0").exists()
    worker.stdin.write("begin\n")
    until(lambda: (tmp_path / "begun-0").exists() and (tmp_path / "begun-0").read_text(), 20, "it begun")
    pid, parent = map(int, (tmp_path / "begun-0").read_text().split())
    names = [Path(f"/proc/{one}/comm").read_text().strip() for one in (forked, pid)]
    worker.stdin.write("end\n")

    assert (parent, names, worker.stdout.readline()) == (forked, [NAME, CHILD_NAME], "0\n")
    assert (tmp_path / "ended-0").exists()


def test_a_nursery_that_waits_ends_with_its_worker(worker, tmp_path):
    """A worker that ends before its pool has begun leaves no process, and no reader of it ever ran."""
    forked = int(worker.stdout.readline())

    worker.kill()

    until(lambda: not Path(f"/proc/{forked}").exists(), 10, "it is gone")
    assert not (tmp_path / "begun-0").exists()
