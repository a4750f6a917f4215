"""Building a plugin's sink under a bound: its code may hang, or end this process (C52)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from runtime_core.errors import UsageError
from sinks.bounded import Late, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from sinks.protocol import Sink

BUILD_LIMIT_S = 2.0
"""Seconds that building a sink may take: it connects to nothing."""
DEATHS = 3
"""Processes of a host that may end while they build one sink."""


class Mark(Protocol):
    """Marks in a block that something is at work; yields how many processes ended in such a block lately."""

    def __call__(self, *names: str) -> AbstractContextManager[int]: ...


def unmarked(*_: str) -> AbstractContextManager[int]:
    """Mark nothing: for a process of its own, whose end is seen by whoever started it."""
    return nullcontext(0)


class Guard:
    """Builds sinks of plugins in this process; one that hung is not built again."""

    def __init__(self, mark: Mark = unmarked) -> None:
        self._mark = mark
        self._hung: set[str] = set()

    def build(self, kind: str, options: str, make: Callable[[], Sink]) -> Sink:
        """Return what `make` returns. Raises what it raises, and UsageError where it hangs or ends its process."""
        if kind in self._hung:
            raise UsageError(f"sink kind {kind}", "did not come back while it was built", "start the process again")
        with self._mark("build", kind, options) as deaths:
            if deaths >= DEATHS:
                raise UsageError(f"sink kind {kind}", f"its process ended {deaths} times while it was built")
            try:
                return within(BUILD_LIMIT_S, make, "build")
            except Late:
                self._hung.add(kind)
                reason = f"did not come back within {BUILD_LIMIT_S:g} s while it was built"
                raise UsageError(f"sink kind {kind}", reason) from None
