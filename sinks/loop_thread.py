"""One event loop in a thread of its own, for every sink of this process that awaits many answers at once."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
MAKE_S = 10.0
"""How long the loop may be busy with other sinks before a new one gives up."""


class LoopThread:
    """A running loop; it ends with the process, for the next sink would want it again."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sinks", daemon=True)
        self._thread.start()
        self._held: set[object] = set()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the loop and return its result; raises TimeoutError, and then it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()

    def make(self, build: Callable[[], T]) -> T:
        """Build what lives on the loop, there; it is held until `release`.

        Held, because a child of this process that let go of it would close files that it shares with its parent.
        """

        async def built() -> T:
            return build()

        made = self.run(built(), MAKE_S)
        self._held.add(made)
        return made

    def release(self, made: object, closing: Coroutine[Any, Any, None], wait_s: float) -> None:
        """Close what was made, and wait for that a moment; not where this is the loop's own thread."""

        async def closed() -> None:
            try:
                await closing
            finally:
                self._held.discard(made)

        future = asyncio.run_coroutine_threadsafe(closed(), self._loop)
        if threading.current_thread() is not self._thread:
            wait([future], wait_s)


class _Shared:
    """The loop of this process, and those of the processes it was forked from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: LoopThread | None = None
        self._left: list[LoopThread] = []
        os.register_at_fork(after_in_child=self._leave)

    def get(self) -> LoopThread:
        with self._lock:
            if self._of is None:
                self._of = LoopThread()
            return self._of

    def _leave(self) -> None:
        """Forget the parent's loop in a child, where its thread does not run, without closing what both share."""
        self._lock = threading.Lock()
        if self._of is not None:
            self._left.append(self._of)
            self._of = None


_SHARED = _Shared()


def shared_loop() -> LoopThread:
    """Return the loop of this process; made at the first call."""
    return _SHARED.get()
