"""A probe that is called at every step of the pipeline, lets something be withdrawn at one, and keeps a trace.

The trace's order says what had been withdrawn before what was read; `effects_after` holds it against DESIGN §6.4.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from sinks.protocol import Delivered, Outcome, SinkBase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WITHDRAWN, READ, NOW, EFFECT, BEGUN, HANDED = "withdrawn", "versions read", "clock read", "effect", "begun", "handed"

RECHECK_S = 0.9
"""What the drain's stands at here: a slow machine takes 0.1 s for steps that are not late."""


class Near(SinkBase):
    """A local sink: intake hands over by itself."""

    kind: ClassVar[str] = "near"
    local: ClassVar[bool] = True
    probe: ClassVar[Probe | None] = None
    outcomes: ClassVar[list[Outcome]] = []

    def deliver(self, batch: Any) -> list[Outcome]:
        probe = Near.probe
        if probe is not None:
            probe.note(EFFECT)
            probe("in the sink")
        return [Near.outcomes.pop(0) if Near.outcomes else Delivered() for _ in batch]


class Far(Near):
    """A sink that only a drain hands over to."""

    kind: ClassVar[str] = "far"
    local: ClassVar[bool] = False


class Probe:
    """Called at every step; at the one it is armed for, `act` is done by another thread.

    That thread has come to its end when the call returns, or it waits for the transaction in which the step is, and
    has come to its end when that phase is over.
    """

    def __init__(
        self, until_it_waits: Callable[[threading.Thread], None], at: str | None, act: Callable[[], object]
    ) -> None:
        self._until_it_waits = until_it_waits
        self._at = at
        self._act = act
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._main = threading.get_ident()
        self._phase = ""
        self.reached: list[str] = []
        self.trace: list[tuple[str, float]] = []

    def __call__(self, step: str) -> None:
        """Say that the pipeline is about to do `step`."""
        if threading.get_ident() != self._main:
            return
        place = f"{self._phase}: {step}" if self._phase else step
        self.reached.append(place)
        if place == self._at and self._thread is None:
            self._thread = threading.Thread(target=self._withdraw)
            self._thread.start()
            self._until_it_waits(self._thread)
            self._raise()

    def note(self, what: str, value: float = 0.0) -> None:
        """Add to the trace."""
        if threading.get_ident() == self._main or what == WITHDRAWN:
            self.trace.append((what, value))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name what is going on; at its end whatever waited for it has happened."""
        self._phase = name
        self.note(BEGUN)
        yield
        self._phase = ""
        if self._thread is not None:
            self._thread.join(30)
            assert not self._thread.is_alive(), "the withdrawal never ended"
        self._raise()

    def _withdraw(self) -> None:
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            self._error = error
        self.note(WITHDRAWN)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def effects_after(trace: list[tuple[str, float]], *, by_clock: bool) -> list[str]:
    """Return what was delivered though it must not have been: too late by the rule of DESIGN §6.4.

    What is withdrawn before the versions are read (an end: before the clock is) reaches no sink; and nothing that was
    withdrawn before a hand-over which began more than RECHECK_S after its claim.
    """
    names = [name for name, _ in trace]
    if WITHDRAWN not in names:
        return []
    withdrawn = names.index(WITHDRAWN)
    wrong = []
    for at in (at for at, name in enumerate(names) if name == EFFECT and at > withdrawn):
        before = names[:at]
        judged = _last(before, NOW if by_clock else READ)
        if judged > withdrawn:
            wrong.append("judged after the withdrawal, and delivered")
        handed = _last(before, HANDED)
        if handed > _last(before, BEGUN) and trace[handed][1] > RECHECK_S and handed > withdrawn:
            wrong.append(f"handed over {trace[handed][1]:.3f} s after the claim without another look")
    return wrong


def _last(names: list[str], wanted: str) -> int:
    return max((at for at, name in enumerate(names) if name == wanted), default=-1)
