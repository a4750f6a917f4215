"""The `console` sink: one line a delivery on standard output, for looking on; a worker's log takes it up."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ClassVar

from sinks.line import console_line
from sinks.protocol import Delivered, Outcome, Rejected, Retry, SinkBase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.protocol import Delivery

_DELIVERED = Delivered()


class Console(SinkBase):
    """Prints; what cannot be printed now (a closed pipe, a full disk behind it) is a Retry."""

    kind: ClassVar[str] = "console"
    local: ClassVar[bool] = True
    batch_size: ClassVar[int] = 100

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Print one line a delivery, each flushed, so that an outcome is known for each."""
        return [self._print(delivery) for delivery in batch]

    def _print(self, delivery: Delivery) -> Outcome:
        try:
            line = console_line(self.name, delivery)
        except ValueError as error:
            return Rejected(f"the event does not become a line: {error}")
        try:
            # One write with its newline: a worker's log proxy makes one record of each write.
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        except (OSError, ValueError) as error:  # ValueError: standard output is closed
            return Retry(f"standard output: {getattr(error, 'strerror', None) or error}")
        return _DELIVERED
