"""The kit's tests of what `deliver` answers."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING
from unittest import SkipTest

from sinks.conformance.kit import (
    MANY,
    Kit,
    answered,
    answered_itself,
    arrived,
    call,
    fail,
    handed,
    look,
    missing,
    ordinary,
)
from sinks.protocol import Delivered, Rejected, Retry
from sinks.raised import origin

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sinks.conformance.given import Given
    from sinks.protocol import Delivery, Outcome, Sink


class OutcomeTests(Kit):
    """Outcomes, idempotency, timeouts."""

    def test_every_delivery_gets_its_outcome(self, tmp_path: Path) -> None:
        """A batch of one and a full batch: one closed, well typed outcome for each delivery, and all is there."""
        given = self.make(tmp_path)
        sink = self.opened(given)
        batch = ordinary(given, sink, 1 + min(sink.batch_size, MANY))
        arrived(given, sink, batch[:1])
        arrived(given, sink, batch[1:])
        look(given, batch)

    def test_outcomes_stand_in_the_order_of_the_batch(self, tmp_path: Path) -> None:
        """A delivery that is rejected has its outcome at its own place, and its neighbours arrive."""
        given = self.make(tmp_path)
        if given.rejected is None:
            missing("rejected", "nothing tells which delivery this sink rejects")
        sink = self.opened(given)
        good = ordinary(given, sink, 3)
        bad = given.rejected(ordinary(given, sink, 1)[0])
        batch = [good[0], bad, *good[1:]] if sink.batch_size > len(good) else [bad]
        outcomes = handed(given, sink, batch)
        if not isinstance(outcomes[batch.index(bad)], Rejected):
            fail(
                f"the outcome at the place of the delivery to reject is {outcomes[batch.index(bad)]!r}",
                "Answer Rejected(reason) for what can never arrive, at the delivery's own place in the batch",
            )
        if len(batch) > 1:
            others = [one for one in outcomes if not isinstance(one, Delivered)]
            if len(others) != 1:
                fail(f"the batch was answered with {outcomes!r}", "Only the one that is rejected fails")
            look(given, good, foreign=True)

    def test_a_repeat_adds_nothing(self, tmp_path: Path) -> None:
        """The same delivery comes again, with the same id and a higher attempt: it is Delivered and there once."""
        given = self.make(tmp_path)
        sink = self.opened(given)
        batch = ordinary(given, sink, min(sink.batch_size, 3))
        arrived(given, sink, batch)
        arrived(given, sink, [one._replace(attempt=2) for one in batch], again=True)
        look(given, batch)

    def test_a_repeat_after_opening_again_adds_nothing(self, tmp_path: Path) -> None:
        """So does one that another process, or this one after a restart, hands over."""
        given = self.make(tmp_path)
        first = self.opened(given)
        batch = ordinary(given, first, min(first.batch_size, 3))
        arrived(given, first, batch)
        call(first, "close", first.close)
        arrived(given, self.opened(given), [one._replace(attempt=2) for one in batch], again=True)
        look(given, batch)

    def test_the_batch_stays_as_it_is(self, tmp_path: Path) -> None:
        """The batch and what is in it are the runtime's: it settles by them afterwards."""
        given = self.make(tmp_path)
        sink = self.opened(given)
        batch = ordinary(given, sink, min(sink.batch_size, 3), route_options={"tags": ["a"]})
        kept, before = list(batch), copy.deepcopy(batch)
        call(sink, "deliver", lambda: answered_itself(given, sink, batch))
        if batch != before or any(one is not other for one, other in zip(batch, kept, strict=True)):
            fail("deliver changed the batch or a value in it", "Copy what you change: list(batch), dict(route_options)")

    def test_retry_while_its_receiver_is_away(self, tmp_path: Path) -> None:
        """While the receiver cannot be reached every delivery is a Retry, and afterwards it arrives."""
        given = self.make(tmp_path)
        if given.away is None:
            missing("away", "nothing tells how to make its receiver unreachable")
        sink = self.opened(given)
        batch = ordinary(given, sink, min(sink.batch_size, 3))
        with given.away():
            _all_retry(call(sink, "deliver", lambda: _tried(given, sink, batch)), "its receiver is away")
        arrived(given, sink, batch)
        look(given, batch)

    def test_an_answer_within_the_deadline(self, tmp_path: Path) -> None:
        """Also a receiver that never answers costs no more than `deadline_s`, and is a Retry."""
        given = self.make(tmp_path)
        sink = self.opened(given)
        arrived(given, sink, ordinary(given, sink, min(sink.batch_size, MANY)))
        if given.hanging is None:
            missing("hanging", "it answers in time, but nothing tells how to make its receiver hang")
        with given.hanging():
            late = ordinary(given, sink, 1)
            _all_retry(call(sink, "deliver", lambda: _tried(given, sink, late)), "its receiver does not answer")


def _tried(given: Given, sink: Sink, batch: Sequence[Delivery]) -> Sequence[Outcome]:
    """Hand over like the runtime: what it raises is a Retry of the batch."""
    try:
        return answered(given, sink, batch)
    except (AssertionError, SkipTest):
        raise
    except Exception as error:  # noqa: BLE001 - an author's own code
        return [Retry(f"raised {type(error).__name__}, {origin(error)}")] * len(batch)


def _all_retry(outcomes: Sequence[Outcome], while_: str) -> None:
    __tracebackhide__ = True
    for outcome in outcomes:
        if not isinstance(outcome, Retry):
            fail(
                f"deliver answered {outcome!r} while {while_}",
                "Answer Retry(reason): Delivered would lose the delivery, Rejected would end it",
            )
