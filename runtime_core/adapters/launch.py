"""The program under which a wrapped binary runs: it sets the limits, starts it, and leaves nothing of it alive.

A file of its own, run as a program that imports nothing of the project (it starts in some 15 ms), because a threaded
worker can do none of this between fork and exec. It is the reaper of the whole tree: a grandchild that left its process
group is found all the same. It ends with the tool, when its time is up, or when its parent is gone, and kills all that
is left. How it ended stands in its exit code; a time that is up, and a tool that cannot be started, have codes of their
own that no tool's own answer can be confused with, because they come with a line on descriptor `report`.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import stat
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_AWAITED = {signal.SIGCHLD, signal.SIGTERM}
"""Blocked, and taken where this process waits: none can come between a look and the wait."""
_GRACE_S = 0.2
_SWEEPS = 200


def main(text: str) -> int:
    """Run the tool that the specification names; answers 0 once it has reported how that ended."""
    spec = json.loads(text)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != spec["parent"]:
        return 1
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    try:
        binary = _checked(spec["binary"])
        child = _start(spec, binary, libc)
    except OSError as error:
        _report(spec["report"], {"failed": error.strerror or "cannot be started"})
        return 0
    status = _wait(child, spec["timeout_s"])
    _kill_tree()
    ended = {"timed_out": True} if status is None else {"code": os.waitstatus_to_exitcode(status)}
    _report(spec["report"], ended)
    return 0


def _checked(path: str) -> int:
    """Return an open descriptor of the binary: what is run is what was looked at."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & 0o111:
        raise OSError(0, "the allowed binary is no executable file")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(0, "the allowed binary may be written by others")
    return descriptor


def _start(spec: dict[str, Any], binary: int, libc: Any) -> int:
    """Fork and become the tool; this process has one thread, so nothing can be held over the fork."""
    error_read, error_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
            for name, limit in spec["limits"].items():
                number = getattr(resource, name)
                hard = resource.getrlimit(number)[1]
                ceiling = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
                resource.setrlimit(number, (ceiling, ceiling))
            if spec["no_new_privileges"]:
                libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            os.chdir(spec["cwd"])
            os.close(spec["report"])
            _become(spec, binary)
        except OSError as error:
            os.write(error_write, (error.strerror or "cannot be started").encode())
        finally:
            os._exit(127)
    os.close(error_write)
    said = os.read(error_read, 4096)
    os.close(error_read)
    if said:
        os.waitpid(child, 0)
        raise OSError(0, said.decode(errors="replace"))
    return child


def _become(spec: dict[str, Any], binary: int) -> None:
    """Become the binary by its descriptor. A script is run by its path: its interpreter opens that by itself."""
    argv = spec["argv"]
    script = os.pread(binary, 2, 0) == b"#!"
    os.execve(spec["binary"] if script else f"/proc/self/fd/{binary}", argv, os.environ)  # noqa: S606 - no shell


def _wait(child: int, timeout_s: float) -> int | None:
    """Return the tool's wait status, or None where its time is up or the parent wants it gone."""
    ends = time.monotonic() + timeout_s
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        left = ends - time.monotonic()
        came = signal.sigtimedwait(_AWAITED, left) if left > 0 else None
        if came is None or came.si_signo == signal.SIGTERM:
            return None


def _kill_tree() -> None:
    """Kill every descendant: whoever loses its parent becomes a child of this process."""
    for _ in range(_SWEEPS):
        children = _children()
        if not children:
            return
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.002)
            except ChildProcessError:
                return


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:  # noqa: PTH123 - no imports
            return [int(pid) for pid in listed.read().split()]
    except OSError:
        return []


def _report(descriptor: int, ended: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(ended).encode())
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
