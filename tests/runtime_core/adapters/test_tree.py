"""Whatever happens to a tool, its launcher or its worker: nothing of the tree lives on (C28)."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.adapters import jails, sandbox
from tests.runtime_core.adapters.wrapping import NOW, SECOND, Wrapped, living, off, stdout, until, zombies

if TYPE_CHECKING:
    from collections.abc import Iterator

NAP = f"60.{secrets.randbelow(10**9):09}"
"""A minute and something, by which the sleepers of this process's tests are told from all others."""
GRANDCHILDREN = {
    "group": "sleep NAP &",
    "session": "setsid sleep NAP &",
    "daemon": "(setsid sh -c 'sleep NAP & sleep NAP' &) &",
    "cleared": "env -i setsid sleep NAP & ",
    "deaf": "setsid sh -c 'trap \"\" TERM HUP INT; sleep NAP; sleep NAP' &",
    "quiet": "setsid sleep NAP >/dev/null 2>&1 &",
    "python": """python3 -c '
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(NAP)
    os._exit(0)
' """,
}
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """After every test no process of its tools lives, and no child waits to be reaped."""
    before = set(zombies())
    yield
    assert until(lambda: not living(str(tmp_path)))
    assert set(zombies()) <= before


def sleeping() -> set[int]:
    """Return every process that sleeps for one of these tests."""
    return set(living(NAP))


def hold(kind: str, ending: str) -> str:
    """Return a stand-in whose grandchild outlives it, which then waits or ends."""
    return f"#!/bin/sh\n{GRANDCHILDREN[kind]}\necho started\n{'sleep NAP' if ending == 'wait' else 'exit 0'}\n".replace(
        "NAP", NAP
    )


@pytest.mark.case("C28")
@pytest.mark.parametrize("count", [5, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(400)])])
@pytest.mark.parametrize("ending", ["wait", "exit"])
def test_a_grandchild_with_the_pipe_open_holds_nobody_up(tmp_path: Path, rung: str, ending: str, count: int):
    """The stand-in's grandchild keeps the output open: a wait is timed out, an exit is answered, and all are gone."""
    world = Wrapped(tmp_path, "C28-grandchild.sh")
    for _ in range(count):
        answer = world.run([ending], timeout_s=0.5 if count == 5 else 2)
        if ending == "wait":
            assert (answer.ok, answer.error) == (False, f"timed out after {0.5 if count == 5 else 2:g} s")
        else:
            assert stdout(answer) == "started\n"
        assert living(str(tmp_path)) == []
    assert list(world.jails.iterdir()) == []


@pytest.mark.case("C28")
@pytest.mark.parametrize("ending", ["wait", "exit"])
@pytest.mark.parametrize("kind", GRANDCHILDREN)
def test_a_grandchild_in_any_dress_is_found(tmp_path: Path, rung: str, kind: str, ending: str):
    """A grandchild in a session of its own, daemonized, deaf to signals, without environment or output, is ended."""
    answer = Wrapped(tmp_path, hold(kind, ending)).run([], timeout_s=1)
    assert answer.error == ("timed out after 1 s" if ending == "wait" else None)
    assert not sleeping()


@pytest.mark.parametrize("kind", ["group", "daemon"])
@pytest.mark.parametrize("above", [1, 2])
def test_a_tool_that_kills_its_launcher_escapes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, above: int
):
    """Where one of the two processes above a tool is killed, the other ends the tree; the outcome is unknown."""
    monkeypatch.setattr(sandbox, "bubblewrap", off)
    parent = "$PPID" if above == 1 else "$(ps -o ppid= $PPID)"
    world = Wrapped(tmp_path, f"{hold(kind, 'exit').replace('exit 0', f'kill -9 {parent}')}sleep {NAP}\n")
    answer = world.run([])
    assert (answer.ok, answer.result, answer.error) == (False, None, "interrupted: outcome unknown")
    assert until(lambda: not sleeping())


@pytest.mark.parametrize("which", [signal.SIGKILL, signal.SIGTERM])
def test_a_tree_ends_with_its_worker(tmp_path: Path, rung: str, monkeypatch: pytest.MonkeyPatch, which: signal.Signals):
    """A worker that is killed while a tool runs leaves nothing of the tool; the next one removes the jail."""
    text = f"""
from pathlib import Path
from runtime_core.adapters import jails, sandbox
from tests.runtime_core.adapters.wrapping import Wrapped, off, script
if {rung == "limits"}:
    sandbox.bubblewrap = off
Wrapped(Path({str(tmp_path)!r}), {hold("daemon", "wait")!r}).run([], timeout_s=60)
"""
    worker = subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        assert until(lambda: len(sleeping()) >= 3)
        worker.send_signal(which)
        worker.wait(timeout=20)
        assert until(lambda: not sleeping())
    finally:
        worker.kill()
        worker.wait()
    monkeypatch.setattr(jails, "_YOUNG_S", -1)
    assert jails.sweep(tmp_path / "jails") == 1
    assert list((tmp_path / "jails").iterdir()) == []


def test_a_cancelled_run_ends_at_once(tmp_path: Path, rung: str):
    """The event ends a running tool and its tree; one that is set before lets none start."""
    world = Wrapped(tmp_path, hold("session", "wait"))
    world.cancelled = threading.Event()
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(world.run([], timeout_s=60)))
    waiting.start()
    assert until(lambda: len(sleeping()) >= 2)
    world.cancelled.set()
    waiting.join()
    world.jails.rmdir()
    answers.append(world.run([]))
    assert not world.jails.exists(), "the second was not even given a folder"
    assert [(one.ok, one.result, one.error) for one in answers] == [(False, None, "cancelled")] * 2
    assert not sleeping()


def test_a_tool_that_ended_is_not_called_cancelled(tmp_path: Path, rung: str, monkeypatch: pytest.MonkeyPatch):
    """A cancel that comes as the tool has ended by itself leaves its answer."""
    world = Wrapped(tmp_path, "print('done')")
    world.cancelled = threading.Event()
    told = sandbox._told
    monkeypatch.setattr(sandbox, "_told", lambda report: (world.cancelled.set(), told(report))[1])
    assert stdout(world.run([])) == "done\n"


@pytest.mark.parametrize(
    ("left_s", "error"), [(1.2504, "timed out after 1.25 s"), (0, "deadline passed"), (-5, "deadline passed")]
)
def test_a_deadline_ends_a_tool_before_its_own_time(tmp_path: Path, rung: str, left_s: float, error: str):
    """No tool runs longer than somebody waits for it, and none is started for nobody."""
    world = Wrapped(tmp_path, hold("group", "wait"))
    answer = world.run([], timeout_s=60, deadline=NOW + int(left_s * SECOND))
    assert (answer.ok, answer.error) == (False, error)
    assert not sleeping()


FORKS = """
import os, time
for _ in range(3):  # 90 at most, whatever the limit does
    for _ in range(30):
        if os.fork() == 0:
            {session}
            time.sleep(60)
            os._exit(0)
    time.sleep(0.3)
print("made all")
time.sleep(60)
"""


@pytest.mark.parametrize("session", ["pass", "os.setsid()"])
def test_a_tree_of_too_many_processes_is_ended(tmp_path: Path, rung: str, session: str):
    """A tool that makes more processes than a run may have is ended whole, long before its time."""
    world = Wrapped(tmp_path, FORKS.format(session=session), ceilings=sandbox.Ceilings(processes=20))
    answer = world.run([], timeout_s=60)
    assert (answer.ok, answer.result, answer.error) == (False, None, "over 20 processes")


def test_processes_of_others_do_not_count(tmp_path: Path):
    """What else starts on the host is counted only until the tree itself is: the tool goes on after that look."""
    world = Wrapped(tmp_path, "import time\nfor _ in range(8): time.sleep(0.25)\nprint('done')\n")
    world.adapter._ceilings = sandbox.Ceilings(processes=10)
    others: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        time.sleep(0.8)
        others.extend(subprocess.Popen(["sleep", "30"]) for _ in range(25))

    starting = threading.Thread(target=start)
    starting.start()
    try:
        assert stdout(world.run([])) == "done\n"
    finally:
        starting.join()
        for one in others:
            one.kill()
            one.wait()


def test_a_report_of_the_tool_itself_is_not_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A tool finds no descriptor on which the end of a run is told, and garbage there is an unknown outcome."""
    for report in (b"", b"\xff", b"code", b"code -1", b"code x", b"stopped", b'{"code": 0}', b"code 0" * 1000):
        assert sandbox._told(report) == sandbox.Ended(lost=True)
    assert sandbox._told(b"code 3").code == 3


@pytest.mark.parametrize(("ending", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_an_exit_is_told_as_a_shell_tells_it(tmp_path: Path, rung: str, ending: str, code: int):
    """A code stands in the error, with what the tool had said; a signal is 128 and its number, in both rungs."""
    answer = Wrapped(tmp_path, f"#!/bin/sh\necho said\necho why >&2\n{ending}\n").run([])
    assert (answer.ok, answer.error) == (False, f"exited {code}")
    assert answer.result == {"stdout": "said\n", "stderr": "why\n"}
