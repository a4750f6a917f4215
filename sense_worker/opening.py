"""Opening and closing a sink under a bound: its code may hang, or end this process (C52).

A call runs in a thread of its own, so that whoever asked goes on; a thread that never returns stays and is not started
again. A mark in a folder stands while a sink is opened: marks of processes that are gone tell that opening it ends
them, and then it is left alone for a while.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from sinks.bounded import Late, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

Opened = TypeVar("Opened")

OPEN_LIMIT_S = 10.0
"""Seconds after which an `open` that has not returned counts as one that fails."""
CLOSE_LIMIT_S = 3.0
"""Seconds that a `close` is waited for."""
FORGET_S = 600.0
"""Seconds for which a process that ended while it opened a sink is remembered."""


class Opening(Generic[Opened]):
    """A call that opens something, under way in a thread. `call` raises nothing."""

    def __init__(self, call: Callable[[], Opened]) -> None:
        self._answers: list[Opened] = []
        self._done = threading.Event()
        self.begun = time.monotonic()
        threading.Thread(target=self._run, args=(call,), name="open", daemon=True).start()

    def _run(self, call: Callable[[], Opened]) -> None:
        try:
            self._answers.append(call())
        finally:
            self._done.set()

    @property
    def late(self) -> bool:
        """Whether it has been out for OPEN_LIMIT_S and is not back."""
        return not self._answers and time.monotonic() - self.begun > OPEN_LIMIT_S

    def answer(self, wait_s: float = 0.0) -> Opened | None:
        """Return what the call returned, or None while it is out; waits for it up to `wait_s`."""
        if not self._answers:
            self._done.wait(wait_s)
        return self._answers[0] if self._answers else None


class Marks:
    """Marks of what is being opened, in a folder of this host; None: nothing is marked."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def mark(self, *names: str) -> Iterator[int]:
        """Mark what is opened in the block; yields how many processes ended in such a block lately."""
        if self._folder is None:
            yield 0
            return
        digest = _digest(names)
        mine = self._folder / f"{digest}.{os.getpid()}"
        deaths = self._deaths(digest)
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            mine.touch()
        try:
            yield deaths
        finally:
            with contextlib.suppress(OSError):
                mine.unlink()

    def first(self, *names: str) -> bool:
        """Return whether nobody on this host asked with these names in the last FORGET_S seconds."""
        if self._folder is None:
            return True
        mark = self._folder / f"{_digest(names)}.asked"
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if time.time() - mark.stat().st_mtime > FORGET_S:
                mark.unlink()
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        except OSError:
            return True
        return True

    def forget(self) -> None:
        """Take all marks away: a worker that starts tries everything again."""
        for mark in [] if self._folder is None else [*self._folder.glob("*.*")]:
            mark.unlink(missing_ok=True)

    def _deaths(self, digest: str) -> int:
        deaths = 0
        for mark in [] if self._folder is None else [*self._folder.glob(f"{digest}.*")]:
            with contextlib.suppress(OSError, ValueError):
                pid = int(mark.suffix[1:])
                if time.time() - mark.stat().st_mtime > FORGET_S:
                    mark.unlink()
                elif pid != os.getpid() and not _lives(pid):
                    deaths += 1
        return deaths


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:32]


def close_within(close: Callable[[], object]) -> bool:
    """Call `close` in a thread and wait for it, CLOSE_LIMIT_S at most; returns whether it came back, raising or not."""

    def run() -> None:
        with contextlib.suppress(BaseException):
            close()

    try:
        within(CLOSE_LIMIT_S, run, "close")
    except Late:
        return False
    return True


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
