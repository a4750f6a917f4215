"""The supervisor, with shell scripts for children; real processes, real signals."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sense_worker.child import Child
from sense_worker.supervisor import Backoff, Stage, StartFailed, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUICK = Backoff(first_s=0.01, most_s=0.05, settled_s=60)
FOREVER = "while :; do sleep 600 & wait $!; done"


def shell(name: str, script: str, **options: object) -> Child:
    return Child(name, ("sh", "-c", script), {"PATH": os.environ["PATH"]}, **options)  # type: ignore[arg-type]


class Log:
    """Collects the lines; when one contains the text of `on`, it acts, from within the supervisor's own loop."""

    def __init__(self, on: dict[str, Callable[[], None]]) -> None:
        self.lines: list[str] = []
        self._on = on

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        for text, action in self._on.items():
            if text in line:
                action()

    def of(self, name: str) -> list[str]:
        heads = [line.partition("| ") for line in self.lines]
        return [text for head, _, text in heads if head.strip() == name]


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def has_ended(pid_file: Path) -> bool:
    """Wait until the process named in the file has ended; False after 30 s."""
    try:
        watch = os.pidfd_open(int(pid_file.read_text()))
    except ProcessLookupError:
        return True
    try:
        return select.select([watch], [], [], 30)[0] == [watch]
    finally:
        os.close(watch)


def test_backoff_doubles_to_its_bound_and_forgets() -> None:
    """The wait doubles from 0.5 s to 30 s; a child that lived 60 s begins anew."""
    backoff = Backoff()
    failures, waits = 0, []
    for _ in range(9):
        failures = backoff.failures(failures, alive_s=59.9)
        waits.append(backoff.delay_s(failures))

    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert backoff.delay_s(10_000) == 30
    assert backoff.failures(9, alive_s=60) == 1


def test_both_outputs_reach_one_log_with_the_child_s_name() -> None:
    """Lines of stdout and stderr are merged, prefixed, made printable and bounded; the last needs no end."""
    script = r"echo out; echo err >&2; printf 'red \033[31m\n'; head -c 9000 /dev/zero | tr '\0' x; printf '\nlast'"
    log = Log({"ended": terminate})

    Supervisor([Stage((shell("worker", script),))], log, QUICK).run()

    assert log.lines[:3] == ["worker | out", "worker | err", r"worker | red \x1b[31m"]
    assert log.lines[3] == f"worker | {'x' * 8192} [cut: 808 more bytes]"
    assert log.lines[4:6] == ["worker | last", "up     | worker ended: exit code 0"]


def test_a_child_that_ends_is_started_again(tmp_path: Path) -> None:
    """Each end is told with its cause, and the next start follows after the backoff."""
    script = (
        f"echo run >> {tmp_path}/runs; test $(wc -l < {tmp_path}/runs) = 3 && {{ echo third; {FOREVER}; }}; kill -9 $$"
    )
    log = Log({"third": terminate})

    Supervisor([Stage((shell("w", script),))], log, QUICK).run()

    assert log.of("up") == [
        "w ended: killed by SIGKILL",
        "w is started again in 0.01 s",
        "w ended: killed by SIGKILL",
        "w is started again in 0.02 s",
        "w is stopping",
    ]
    assert (tmp_path / "runs").read_text() == "run\n" * 3


def test_stages_start_in_order_and_stop_in_reverse(tmp_path: Path) -> None:
    """A stage starts when the one before is ready; at the end the workers are gone before the server is asked."""
    saying = "trap 'echo bye; exit 0' TERM; echo hello; "
    server = shell("server", f"{saying} touch {tmp_path}/up; {FOREVER}", ready=(tmp_path / "up").exists)
    workers = tuple(shell(name, saying + FOREVER) for name in ("w1", "w2"))
    log = Log({})
    stages = [Stage((server,), lambda: log("then 1")), Stage(workers, lambda: log("then 2"))]
    hellos = [f"{name:<6} | hello" for name in ("w1", "w2")]
    log._on["hello"] = lambda: terminate() if set(hellos) <= set(log.lines) else None

    Supervisor(stages, log, QUICK).run()

    order = [log.lines.index(line) for line in ("server | hello", "then 1", "then 2")]
    assert order == sorted(order)
    assert log.lines.index("then 1") < min(log.lines.index(line) for line in hellos)
    assert max(log.lines.index(f"{name:<6} | bye") for name in ("w1", "w2")) < log.lines.index(
        "up     | server is stopping"
    )
    assert log.lines[-1] == "server | bye"


def test_a_child_that_does_not_stop_is_killed_with_its_own(tmp_path: Path) -> None:
    """After its time the whole group of a child that ignores SIGTERM is ended."""
    script = f"trap '' TERM; sh -c 'echo $$ > {tmp_path}/grandchild; echo ready; {FOREVER}' & {FOREVER}"
    log = Log({"| ready": terminate})

    Supervisor([Stage((shell("w", script, stop_timeout_s=0.1),))], log, QUICK).run()

    assert log.of("up") == ["w is stopping", "w did not stop in time and is killed"]
    assert has_ended(tmp_path / "grandchild")


def test_a_second_signal_does_not_wait() -> None:
    """SIGTERM twice kills what would have had an hour to stop."""
    log = Log({"| ready": terminate, "is stopping": terminate})
    script = f"trap '' TERM; echo ready; {FOREVER}"

    Supervisor([Stage((shell("w", script, stop_timeout_s=3600),))], log, QUICK).run()

    assert log.of("up")[-1] == "w did not stop in time and is killed"


def test_what_a_dead_child_left_is_ended_before_the_restart(tmp_path: Path) -> None:
    """A grandchild of a crashed child does not live beside the next one."""
    left = f"sh -c 'echo $$ > {tmp_path}/grandchild; {FOREVER}' &"
    made = f"while ! test -s {tmp_path}/grandchild; do sleep 0.01; done"
    script = f"test -e {tmp_path}/grandchild && {{ echo second; {FOREVER}; }}; {left} {made}; kill -9 $$"
    log = Log({"second": terminate})

    Supervisor([Stage((shell("w", script),))], log, QUICK).run()

    assert log.of("w") == ["second"]
    assert has_ended(tmp_path / "grandchild")


def test_a_start_that_never_succeeds_is_given_up() -> None:
    """Three ends before it was ready stop everything, with an error that names the child."""
    server = shell("server", f"trap 'echo bye; exit 0' TERM; {FOREVER}")
    worker = shell("worker", "echo no such setting; exit 2", ready=lambda: False)
    log = Log({})

    with pytest.raises(StartFailed, match="worker: ended 3 times before it was ready"):
        Supervisor([Stage((server,)), Stage((worker,))], log, QUICK).run()

    assert log.of("worker") == ["no such setting"] * 3
    assert log.lines[-1] == "server | bye"


def test_a_program_that_is_missing_is_told() -> None:
    """A child whose program does not exist says so in the log."""
    child = Child("w", ("/nowhere/program",), {}, ready=lambda: False, first_tries=1)
    log = Log({})

    with pytest.raises(StartFailed):
        Supervisor([Stage((child,))], log, QUICK).run()

    assert log.of("w") == ["/nowhere/program: No such file or directory"]


KILLED = """
import os, sys
from sense_worker.child import Child
from sense_worker.supervisor import Stage, Supervisor
script = "echo $$; exec sleep 600"
child = Child("w", ("sh", "-c", script), dict(os.environ))
Supervisor([Stage((child,))], lambda line: print(line, flush=True)).run()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels send no signal on a parent's death")
def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the supervisor leaves no child behind."""
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        (tmp_path / "pid").write_text(supervisor.stdout.readline().removeprefix("w  | "))
        supervisor.kill()

    assert has_ended(tmp_path / "pid")


def test_an_ignored_hangup_stays_ignored() -> None:
    """Under nohup a hangup does not stop the supervisor; SIGTERM does."""
    with subprocess.Popen(
        ["nohup", sys.executable, "-c", KILLED], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        supervisor.stdout.readline()
        supervisor.send_signal(signal.SIGHUP)
        supervisor.terminate()
        rest = supervisor.stdout.read()

    assert (supervisor.returncode, rest) == (0, "up | w is stopping\n")
