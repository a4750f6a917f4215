"""Run child processes until told to stop: start in stages, restart with backoff, one readable log, stop in reverse.

Children die with a supervisor that is killed (see `tether`), so it starts them from its main thread, where everything
runs over one selector: signals, pipes, timers.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime_core.errors import HcpError
from sense_worker.child import Child, Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

READY_LOOK_S = 0.1
"""How often a child that is not ready yet is asked."""
WAITING_TOLD_S = 10.0
"""After this long the log says once what it waits for."""
_LISTENED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StartFailed(HcpError):
    """A child ended again and again before it was ready; everything was stopped."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait before a restart: doubling, bounded, forgotten once a child lived long enough. Seconds."""

    first_s: float = 0.5
    most_s: float = 30.0
    settled_s: float = 60.0

    def failures(self, before: int, alive_s: float) -> int:
        """Return how many ends in a row this one makes, after `before` and a life of `alive_s`."""
        return 1 if alive_s >= self.settled_s else before + 1

    def delay_s(self, failures: int) -> float:
        """Return the wait after that many ends in a row, at least 1."""
        # 2 ** 20 is past any bound; without the cut a long failure's power overflows a float.
        return float(min(self.first_s * 2 ** min(failures - 1, 20), self.most_s))


@dataclass(frozen=True, slots=True)
class Stage:
    """Children that are started together; `then` is called once, when all of them are ready."""

    children: tuple[Child, ...]
    then: Callable[[], None] | None = None


@dataclass(slots=True)
class _Kept:
    """A child and what is going on with it."""

    child: Child
    running: Running | None = None
    started_at: float = 0.0
    failures: int = 0
    due_at: float | None = None
    """When it is started again; None while it runs, or when it is not to run."""
    was_ready: bool = False


class Supervisor:
    """Keeps the children of its stages running. `write` gets one line of the log at a time, without its end."""

    def __init__(self, stages: Sequence[Stage], write: Callable[[str], None], backoff: Backoff | None = None) -> None:
        self._stages = [(stage, [_Kept(child) for child in stage.children]) for stage in stages]
        self._all = [one for _, kept in self._stages for one in kept]
        self._write = write
        self._backoff = backoff or Backoff()
        self._width = max(len("up"), *(len(one.child.name) for one in self._all))
        self._selector = selectors.DefaultSelector()
        self._stop_asked = 0

    def run(self) -> None:
        """Start, supervise until SIGINT, SIGTERM or SIGHUP, stop in order. Call it from the main thread.

        A second signal ends the waiting: what still runs is killed. Raises StartFailed after everything was stopped.
        """
        with self._signals():
            try:
                self._start_stages()
                while not self._stop_asked:
                    self._turn(None)
            finally:
                self._stop_stages()
        self._selector.close()

    def tell(self, text: str, name: str = "up") -> None:
        """Write a line of the log under `name`."""
        self._write(f"{name:<{self._width}} | {text}")

    def _start_stages(self) -> None:
        for stage, kept in self._stages:
            for one in kept:
                self._start(one)
            self._wait_until_ready(kept)
            if self._stop_asked:
                return
            if stage.then is not None:
                stage.then()

    def _wait_until_ready(self, kept: Sequence[_Kept]) -> None:
        told_at = time.monotonic() + WAITING_TOLD_S
        while not self._stop_asked:
            waiting = [one.child.name for one in kept if not self._look_ready(one)]
            if not waiting:
                return
            if time.monotonic() >= told_at:
                self.tell(f"still waiting for {', '.join(waiting)}")
                told_at = float("inf")
            self._turn(READY_LOOK_S)

    def _look_ready(self, one: _Kept) -> bool:
        if not one.was_ready and one.running is not None:
            one.was_ready = one.child.ready is None or one.child.ready()
        return one.was_ready

    def _start(self, one: _Kept) -> None:
        one.due_at = None
        one.started_at = time.monotonic()
        try:
            one.running = Running(one.child, lambda line: self.tell(line, one.child.name))
        except OSError as error:
            self._ended(one, f"cannot be started: {error.strerror}")
            return
        self._selector.register(one.running.pipe, selectors.EVENT_READ, one.running)

    def _turn(self, longest_s: float | None) -> None:
        """Wait for whatever comes first, at most `longest_s`, and act on it."""
        due = [one.due_at for one in self._all if one.due_at is not None]
        waits = [max(0.0, at - time.monotonic()) for at in due] + ([] if longest_s is None else [longest_s])
        for key, _ in self._selector.select(min(waits, default=None)):
            if key.data is None:
                os.read(key.fd, 4_096)  # the signals' numbers; their handlers have run
            elif not key.data.pump():
                self._selector.unregister(key.fd)  # at its end; reaping closes it
        for one in self._all:
            if one.running is not None and one.running.has_ended():
                self._reap(one, one.running)
            elif one.due_at is not None and time.monotonic() >= one.due_at:
                self._start(one)

    def _reap(self, one: _Kept, running: Running) -> None:
        if running.pipe in self._selector.get_map():
            self._selector.unregister(running.pipe)
        one.running = None
        self._ended(one, f"ended: {_how(running.reap())}")

    def _ended(self, one: _Kept, how: str) -> None:
        if self._stop_asked:
            return
        self.tell(f"{one.child.name} {how}")
        now = time.monotonic()
        one.failures = self._backoff.failures(one.failures, now - one.started_at)
        if not one.was_ready and one.failures >= one.child.first_tries:
            raise StartFailed(
                one.child.name, f"ended {one.failures} times before it was ready", "its own lines above say why"
            )
        delay_s = self._backoff.delay_s(one.failures)
        one.due_at = now + delay_s
        self.tell(f"{one.child.name} is started again in {delay_s:g} s")

    def _stop_stages(self) -> None:
        self._stop_asked = max(1, self._stop_asked)
        for one in self._all:
            one.due_at = None
        for _, kept in reversed(self._stages):
            self._stop(kept)

    def _stop(self, kept: Sequence[_Kept]) -> None:
        """Ask the running ones to stop, wait as long as each may take, kill the rest."""
        deadlines: dict[str, float] = {}
        for one in kept:
            if one.running is not None:
                self.tell(f"{one.child.name} is stopping")
                one.running.terminate()
                deadlines[one.child.name] = time.monotonic() + one.child.stop_timeout_s
        while any(one.running is not None for one in kept):
            for one in kept:
                late = self._stop_asked > 1 or time.monotonic() >= deadlines.get(one.child.name, float("inf"))
                if one.running is not None and late and deadlines.pop(one.child.name, None) is not None:
                    self.tell(f"{one.child.name} did not stop in time and is killed")
                    one.running.kill()
            left = [deadlines[one.child.name] for one in kept if one.running and one.child.name in deadlines]
            self._turn(max(0.0, min(left) - time.monotonic()) if left else None)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn signals into bytes that wake the selector, and put back what listened before."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        self._selector.register(read, selectors.EVENT_READ, None)
        # What `nohup` or a shell's `&` told this process to ignore stays ignored.
        listened = [number for number in _LISTENED if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._on_signal) for number in (*listened, signal.SIGCHLD)}
        woken = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            os.close(read)
            os.close(write)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._stop_asked += 1


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
