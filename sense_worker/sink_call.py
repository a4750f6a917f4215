"""One call to a sink: whatever it raises or misanswers is an outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.protocol import Delivered, Rejected, Retry
from sinks.raised import raised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.protocol import Delivery, Outcome, Sink


def call_sink(sink: Sink, batch: Sequence[Delivery]) -> Sequence[Outcome]:
    """Hand a batch over and return an outcome for each; what goes wrong is a Retry of the batch, its reason bounded."""
    try:
        outcomes = list(sink.deliver(batch))
    except BaseException as error:  # noqa: BLE001 - a plugin may raise anything, SystemExit too; it is tried again
        return [Retry(raised(error))] * len(batch)
    if len(outcomes) != len(batch):
        return [Retry(f"sink answered {len(outcomes)} outcomes for {len(batch)} deliveries")] * len(batch)
    return [_sound(outcome) for outcome in outcomes]


def _sound(outcome: object) -> Outcome:
    match outcome:
        case Delivered(str() | None) | Retry(str(), int() | float() | None) | Rejected(str(), bool()):
            return outcome
        case Delivered() | Retry() | Rejected():
            return Retry(f"sink answered {type(outcome).__name__} with a value of another type")
    return Retry(f"sink answered {type(outcome).__name__}")
