"""The process that a worker's readers and its sweep are forked from: what they import is loaded once.

One program instead of three or more: a worker reads a second earlier, a reader that died is back within milliseconds,
and the pages of the modules are shared. It runs no thread of its own, so a fork copies no lock that is held.

A worker's first nursery is forked from the worker itself, before that runs a thread or has anything open, and waits for
its word: what both import is loaded once (1 s of CPU). One that is started again is a program of its own.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import select
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from runtime_core.errors import HcpError
from sense_worker.logs import configure, log
from sense_worker.settings import Settings
from sense_worker.supervisor import Backoff
from sense_worker.tether import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STOP_S = 15.0
"""An orderly stop ends the batch at hand; what is left after this is killed, and its entries are taken over."""
BACKOFF = Backoff(first_s=0.2, most_s=10.0, settled_s=30.0)
LOOK_S = 1.0
"""How often it looks whether its parent is there, where the kernel does not tell (see `tether`)."""


NAME, CHILD_NAME = "sense-nursery", "sense-child"
"""Names for `ps -o comm`: the command line of a process that was forked is the worker's."""


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM sets. SIGINT is the terminal's word to the whole group: the worker passes it on."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return stop


def stop_with_parent(stop: threading.Event, parent: int, tick: Callable[[], None], every_s: float) -> threading.Thread:
    """Start a thread that calls `tick` every `every_s` and sets `stop` when the parent is gone (SIGKILL)."""

    def watch() -> None:
        while not stop.wait(every_s):
            if os.getppid() != parent:
                stop.set()
                return
            tick()

    thread = threading.Thread(target=watch, name="heartbeat", daemon=True)
    thread.start()
    return thread


def run(work: Callable[[int, int], None], index: int, parent: int) -> None:
    """Run the work of a child; what keeps it from its work (a key, a setting) is one line of the log."""
    try:
        work(index, parent)
    except HcpError as error:
        log().error("process cannot work", error=str(error))
        sys.exit(1)


class Restarts:
    """The pauses before a process is started again, each with a line of the log."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._failures = 0

    def pause_s(self, code: int, alive_s: float) -> float:
        """Return the pause after an end with this exit code and after this life."""
        self._failures = BACKOFF.failures(self._failures, alive_s)
        pause = BACKOFF.delay_s(self._failures)
        log().warning("process ended and is started again", process=self._process, exit=code, pause_s=round(pause, 1))
        return pause


@dataclass
class _Child:
    """One process to keep alive: `main(index, parent)` of a module; started again when it ends, after a pause."""

    module: str
    index: int
    pid: int | None = None
    begun: float = 0.0
    due: float = 0.0

    def __post_init__(self) -> None:
        self.restarts = Restarts(self.module)


class Nursery:
    """Keeps children alive until SIGTERM, which it passes on, or until its own parent is gone.

    `parent` is the process that started it. Signals arrive over a pipe, so that it sleeps while nothing happens.
    """

    def __init__(self, children: Sequence[tuple[str, int]], parent: int) -> None:
        self._children = [_Child(module, index) for module, index in children]
        self._parent = parent
        self._stopping = False
        self._kill_at = math.inf
        self._woken, self._wake = os.pipe()

    def run(self) -> None:
        """Return when every child has ended after a stop."""
        _take_name(NAME)
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        for child in self._children:
            importlib.import_module(child.module)
        gc.freeze()  # what is loaded stays: a collection in a child would write to the pages that all share
        while not self._stopping or any(child.pid for child in self._children):
            if os.getppid() != self._parent:
                self._stop()
            self._reap()
            if not self._stopping:
                self._start_due()
            elif time.monotonic() > self._kill_at:
                self._kill_at = math.inf
                self._signal(signal.SIGKILL)
            self._sleep()

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._kill_at = time.monotonic() + STOP_S
            self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    def _reap(self) -> None:
        for child in self._children:
            if child.pid is None:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid == 0:
                continue
            child.pid = None
            if not self._stopping:
                now = time.monotonic()
                child.due = now + child.restarts.pause_s(os.waitstatus_to_exitcode(status), now - child.begun)

    def _start_due(self) -> None:
        for child in self._children:
            if child.pid is None and child.due <= time.monotonic():
                child.begun = time.monotonic()
                # No stop may fall between the fork and the pid by which it reaches the child.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
                if not self._stopping:  # its handler may run once more while the signal is being blocked
                    nursery = os.getpid()
                    child.pid = os.fork()
                    if child.pid == 0:
                        _end_with(partial(self._become, child, nursery))
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _become(self, child: _Child, nursery: int) -> None:
        _take_name(CHILD_NAME)
        signal.set_wakeup_fd(-1)
        for end in (self._woken, self._wake):
            os.close(end)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        die_with_parent(signal.SIGTERM)
        # Its pid from before the fork: where it died before the line above, the parent is another by now.
        run(importlib.import_module(child.module).main, child.index, nursery)

    def _sleep(self) -> None:
        moments = [self._kill_at] if self._stopping else [child.due for child in self._children if child.pid is None]
        left = min([moment - time.monotonic() for moment in moments], default=LOOK_S)
        select.select([self._woken], [], [], min(max(left, 0.0), LOOK_S))
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)


class Forked:
    """A nursery that was forked from this process and waits for its word. Beyond that it is held like a Popen."""

    def __init__(self, children: Sequence[str]) -> None:
        """Fork it, for the `MODULE:INDEX` named. Call it from the main thread of a process that runs no other."""
        waiting, self._word = os.pipe()
        parent = os.getpid()
        self._code: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._word)
            _end_with(partial(_begin_at_word, children, parent, waiting))
        os.close(waiting)

    def begin(self) -> None:
        """Let it start its children."""
        with suppress(BrokenPipeError):  # it was killed: `wait` tells
            os.write(self._word, b"\n")
        os.close(self._word)

    def wait(self) -> int:
        """Wait for its end and return its code, negative for a signal."""
        self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)


def _begin_at_word(children: Sequence[str], parent: int, waiting: int) -> None:
    """Become the nursery at the first byte from the parent; without one this process ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(signal.SIGTERM)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null:
        os.close(null)
    if os.read(waiting, 1):
        os.close(waiting)
        Nursery(_named(children), parent).run()


def _end_with(work: Callable[[], object]) -> NoReturn:
    """Do the work of a process that was forked, and end it: nothing of its parent's may run in it."""
    code = 1
    try:
        work()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - told here, for there is nobody above
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _take_name(name: str) -> None:
    """Give this process a name of its own; no effect off Linux."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name, "ascii")


def _named(children: Sequence[str]) -> list[tuple[str, int]]:
    return [(module, int(index)) for module, _, index in (one.rpartition(":") for one in children)]


def main(arguments: Sequence[str]) -> None:
    """Keep the children that the arguments name, `MODULE:INDEX` each, after the pid of the parent."""
    parent, *named = arguments
    try:
        configure(Settings.load())
    except HcpError as error:
        log().error("process cannot work", error=str(error))
        sys.exit(1)
    Nursery(_named(named), int(parent)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
