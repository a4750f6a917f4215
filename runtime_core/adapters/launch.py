"""The program under which a wrapped binary runs: it sets the limits, starts it, and leaves nothing of it alive.

A file of its own, run as a program that imports nothing of the project (it starts in some 20 ms), because a threaded
worker can do none of this between fork and exec. It reads what to run from its standard input: environment and args
stand in no argv but the tool's own.

It is two processes. The runner starts the tool and is the reaper of the whole tree: a grandchild that left its process
group or session is found all the same. The guard above it does nothing but wait: where the runner is killed (by the
kernel for want of memory, by a tool that kills its parent), the tree falls to the guard, and where the guard is killed
the runner hears of it. Both hear of the end of the worker. How the run ended is said on the descriptor `report`.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import resource
import signal
import stat
import sys
import time

TYPE_CHECKING = False  # typing takes 5 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_AWAITED = {signal.SIGCHLD, signal.SIGTERM}
"""Blocked, and taken where this process waits: none can come between a look and the wait."""
_LOOK_S = 0.1
"""How often the tree is looked at for its number: a fork loop of a shell makes some hundred processes in it."""
_KILL_S = 4.0
"""How long a tree is killed at; the worker waits 5 s and then ends this program itself."""
_OOM_SCORE = "800"
"""Where memory runs out, the kernel ends the tool before the worker."""


def main() -> int:
    """Run the tool that the specification on standard input names; answers 0 once it was told how that ended."""
    with open(0, "rb", closefd=False) as given:
        spec = marshal.loads(given.read())  # noqa: S302 - written by the worker in memory; json takes 15 ms to import
    os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
    os.set_inheritable(spec["report"], False)
    # What a worker may have been started with would keep us from reaping.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    libc = ctypes.CDLL(None, use_errno=True)
    # No process of the tool may look at our descriptors and write a report of its own.
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if not _live_with(spec["parent"], libc):
        return 1
    guard = os.getpid()
    runner = os.fork()
    if runner == 0:
        code = 1
        try:
            code = _run(spec, guard, libc)
        finally:
            os._exit(code)
    _guard(runner, spec["report"])
    return 0


def _live_with(parent: int, libc: Any) -> bool:
    """End with the parent, and become the one to whom orphans fall. False: the parent is gone already."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return os.getppid() == parent


def _guard(runner: int, report: int) -> None:
    """Wait for the runner; where it was killed, kill what it leaves and say so."""
    while os.waitid(os.P_PID, runner, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if signal.sigwaitinfo(_AWAITED).si_signo == signal.SIGTERM:
            os.kill(runner, signal.SIGTERM)
    if _kill_tree(runner) != 0:
        _report(report, "stopped")


def _run(spec: dict[str, Any], guard: int, libc: Any) -> int:
    if not _live_with(guard, libc):
        return 1
    try:
        if spec["inside"] is not None:
            _check_inside(spec["inside"])
        binary = checked(spec["binary"])
        child = _start(spec, binary, libc)
    except OSError as error:
        _report(spec["report"], f"failed {error.strerror or 'cannot be started'}")
        return 0
    why = _wait(child, spec["timeout_s"], spec["processes"])
    # While the child is not reaped, its number is nobody else's: the whole group goes at once, no fork escapes.
    _signal(os.killpg, child, signal.SIGKILL)
    status = _kill_tree(child)
    if why is None and status is not None:
        code = os.waitstatus_to_exitcode(status)
        # A signal's number as a shell tells it, and as bubblewrap does.
        _report(spec["report"], f"code {code if code >= 0 else 128 - code}")
    else:
        _report(spec["report"], why or "stopped")
    return 0


def checked(path: str) -> int:
    """Return an open descriptor of a binary: what is run is what was looked at. Links are followed.

    Raises OSError where it is no executable file, or where others could put another in its place.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not found.st_mode & 0o111:
            raise OSError(0, "the allowed binary is no executable file")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OSError(0, "the allowed binary may be written by others")
        for place in {os.path.dirname(path), os.path.dirname(os.path.realpath(path))}:  # noqa: PTH120 - no imports
            _check_folders(place)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_inside(path: str) -> None:
    """Look at what bubblewrap is to run; it would give what is no program to a shell."""
    descriptor = checked(path)
    start = os.pread(descriptor, 4, 0)
    os.close(descriptor)
    if start[:2] != b"#!" and start != b"\x7fELF":
        raise OSError(errno.ENOEXEC, os.strerror(errno.ENOEXEC))


def _check_folders(place: str) -> None:
    while True:
        mode = os.stat(place).st_mode  # noqa: PTH116 - no imports
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise OSError(0, "the allowed binary is in a folder that others may write to")
        if place == (above := os.path.dirname(place)):  # noqa: PTH120 - no imports
            return
        place = above


def _start(spec: dict[str, Any], binary: int, libc: Any) -> int:
    """Fork and become the tool; this process has one thread, so nothing can be held over the fork."""
    error_read, error_write = os.pipe()
    runner = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _prepare(spec, runner, libc)
            _become(spec, binary)
        except Exception as error:  # noqa: BLE001 - whatever it is, the runner tells it
            reason = error.strerror if isinstance(error, OSError) else None
            os.write(error_write, (reason or "cannot be started").encode())
        finally:
            os._exit(127)
    os.close(error_write)
    said = os.read(error_read, 4096)
    os.close(error_read)
    if said:
        os.waitpid(child, 0)
        raise OSError(0, said.decode(errors="replace"))
    return child


def _prepare(spec: dict[str, Any], runner: int, libc: Any) -> None:
    # A group of its own, but no session: the leader of a session could take a terminal as its own.
    os.setpgid(0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != runner:
        os._exit(127)
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    for name, limit in spec["limits"].items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        ceiling = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(number, (ceiling, ceiling))
    if spec["no_new_privileges"]:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _be_ended_first()
    os.chdir(spec["cwd"])
    # Python ignores SIGPIPE, and a worker may have been started with more: a tool starts with none ignored or blocked.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) in (signal.SIG_IGN, signal.default_int_handler):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _be_ended_first() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:  # noqa: PTH123 - no imports
            score.write(_OOM_SCORE)
    except OSError:
        return  # the limits hold all the same


def _become(spec: dict[str, Any], binary: int) -> None:
    """Become the binary by its descriptor. A script is run by its path: its interpreter opens that by itself."""
    argv = [part.encode("utf-8", "surrogateescape") for part in spec["argv"]]
    env = {name.encode(): value.encode("utf-8", "surrogateescape") for name, value in spec["env"].items()}
    script = os.pread(binary, 2, 0) == b"#!"
    os.execve(spec["binary"] if script else binary, argv, env)  # noqa: S606 - no shell


def _wait(child: int, timeout_s: float, processes: int) -> str | None:
    """Wait, without reaping the tool; return why it has to end, or None where it did by itself."""
    ends = time.monotonic() + timeout_s
    fewest = _alive()
    while True:
        done = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if done is not None:
            if done.si_pid == child:
                return None
            os.waitpid(done.si_pid, 0)
            continue
        left = ends - time.monotonic()
        if left <= 0:
            return "timed_out"
        came = signal.sigtimedwait(_AWAITED, min(left, _LOOK_S))
        if came is not None and came.si_signo == signal.SIGTERM:
            return "stopped"
        alive = _alive()
        fewest = min(fewest, alive)
        if alive - fewest >= processes and _is_over(child, processes):
            return "over_processes"


def _is_over(child: int, processes: int) -> bool:
    """Count the tree while its group stands still: beside a fork loop that runs on, the count would never end."""
    _signal(os.killpg, child, signal.SIGSTOP)
    over = len(_descendants()) > processes
    if not over:
        _signal(os.killpg, child, signal.SIGCONT)
    return over


def _signal(send: Callable[[int, int], None], number: int, what: int) -> None:
    """Send a signal to whoever is still there and may be reached: a native-local tool may be somebody else's."""
    try:
        send(number, what)
    except OSError:
        return


def _alive() -> int:
    """Return the number of all threads of this host; one read, where a look at the tree is one for each process."""
    try:
        with open("/proc/loadavg", encoding="ascii") as load:  # noqa: PTH123 - no imports
            return int(load.read().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def _kill_tree(child: int) -> int | None:
    """Kill every descendant and return the wait status of `child`; None where it cannot be killed.

    Whoever loses its parent becomes a child of this process: where there is no child, there is no descendant.
    """
    status = None
    ends = time.monotonic() + _KILL_S
    while time.monotonic() < ends:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = ended[1] if ended[0] == child else status
        except ChildProcessError:
            break
        for pid in _descendants():
            _signal(os.kill, pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.02)
    return status


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - no imports
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as line:  # noqa: PTH123 - no imports
                    parent = int(line.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue  # it has ended
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _report(descriptor: int, ended: str) -> None:
    os.write(descriptor, ended.encode())


if __name__ == "__main__":
    sys.exit(main())
