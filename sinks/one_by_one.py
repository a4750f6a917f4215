"""The simplest sink to write: one method that takes one delivery and answers one outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.protocol import Outcome, Retry, SinkBase
from sinks.raised import raised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.protocol import Delivery


class OneByOne(SinkBase):
    """A sink with a `deliver_one`; the batch is made for it.

    With a `batch_size` over 1 a call hands over several, one after the other within one `deadline_s`; an exception
    concerns its own delivery then, and the others keep their outcome.
    """

    def deliver_one(self, delivery: Delivery) -> Outcome:
        """Hand one delivery over. An exception is a Retry that names its class and place, never its text."""
        raise NotImplementedError

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Hand the batch over one by one."""
        return [self._answer(delivery) for delivery in batch]

    def _answer(self, delivery: Delivery) -> Outcome:
        try:
            return self.deliver_one(delivery)
        except Exception as error:  # noqa: BLE001 - an author's own code: it costs this delivery a try, no other
            return Retry(raised(error))
