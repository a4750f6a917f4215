"""The `memory` sink: keeps deliveries in this process. A shipped fake, for tests and recorders; nothing survives."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, ClassVar

from sinks.protocol import Delivered, Outcome, SinkBase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

    from sinks.protocol import Delivery

KEPT = 10_000
"""Deliveries that a recorder keeps of each list, the newest: a forgotten memory sink must not fill the machine."""


class Recorder:
    """What the memory sinks of one name in this process were given, and the script of their answers."""

    def __init__(self) -> None:
        self.attempts: list[Delivery] = []
        """Everything handed over, in order."""
        self.deliveries: list[Delivery] = []
        """What was answered with Delivered."""
        self.outcomes: list[Outcome | BaseException] = []
        """The next answers, one a delivery, taken from the front; Delivered when it is empty.

        An exception is raised in the place of the answers of the whole batch.
        """
        self.batches: list[int] = []
        """Sizes of the batches."""
        self.opened = 0
        self.closed = 0
        self._lock = threading.Lock()

    def take(self, batch: Sequence[Delivery]) -> list[Outcome]:
        """Record a batch and return its scripted outcomes, or raise the scripted exception."""
        with self._lock:
            self.batches.append(len(batch))
            self.attempts.extend(batch)
            outcomes = [self._next() for _ in batch]
            self.deliveries.extend(d for d, o in zip(batch, outcomes, strict=True) if isinstance(o, Delivered))
            for kept in (self.attempts, self.deliveries, self.batches):
                del kept[:-KEPT]
            return outcomes

    def _next(self) -> Outcome:
        scripted = self.outcomes.pop(0) if self.outcomes else Delivered()
        if isinstance(scripted, BaseException):
            raise scripted
        return scripted


class Memory(SinkBase):
    """Records into the Recorder of its name: every sink built under that name in this process shares it."""

    kind: ClassVar[str] = "memory"
    local: ClassVar[bool] = True
    batch_size: ClassVar[int] = 100

    _recorders: ClassVar[dict[str, Recorder]] = {}

    def __init__(self, name: str, options: BaseModel) -> None:
        super().__init__(name, options)
        self.recorder = self.of(name)

    @classmethod
    def of(cls, name: str) -> Recorder:
        """Return the recorder of a sink name, made on demand; script it before or while the sink runs."""
        return cls._recorders.setdefault(name, Recorder())

    @classmethod
    def forget(cls) -> None:
        """Drop every recorder; sinks that are built already keep theirs."""
        cls._recorders.clear()

    def open(self) -> None:
        """Count it."""
        self.recorder.opened += 1

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Record the batch and answer by the script."""
        return self.recorder.take(batch)

    def close(self) -> None:
        """Count it."""
        self.recorder.closed += 1
