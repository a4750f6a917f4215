"""The kit's tests of what may be in a delivery."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sinks.conformance.kit import Kit, arrived, fail, fitting, handed, look, ordinary
from sinks.conformance.material import FORGED, ODD_TEXTS, delivery, largest
from sinks.conformance.recorded import recorded
from sinks.protocol import Delivered, Retry

if TYPE_CHECKING:
    from pathlib import Path

    from sinks.protocol import Delivery


class ContentTests(Kit):
    """Oversize data, unicode, control characters."""

    def test_a_body_at_the_limit(self, tmp_path: Path) -> None:
        """A body of 256 KiB arrives or is rejected: trying again would not make it smaller."""
        given = self.make(tmp_path)
        sink = self.opened(given)
        (outcome,) = handed(given, sink, [fitting(given, sink, largest())])
        if isinstance(outcome, Retry):
            fail(
                f"deliver answered {outcome!r} for a body of 256 KiB",
                "What is too large for the receiver is Rejected(reason); or leave `data` out and send ids only",
            )
        after = ordinary(given, sink, 1)
        arrived(given, sink, after)
        look(given, after, foreign=True)

    def test_odd_texts(self, tmp_path: Path) -> None:
        """Line breaks, terminal codes, quotes, templates, emoji and every script arrive or are rejected."""
        given = self.make(tmp_path)
        sink = self.opened(given)
        taken: list[Delivery] = []
        for text in ODD_TEXTS:
            odd = fitting(given, sink, _odd(text))
            (outcome,) = handed(given, sink, [odd])
            if isinstance(outcome, Retry):
                fail(f"deliver answered {outcome!r} for the subject {text!r:.40}", "Encode it, or answer Rejected")
            if isinstance(outcome, Delivered):
                taken.append(odd)
        look(given, taken, foreign=True)

    def test_texts_forge_no_line(self, tmp_path: Path, capfd: Any) -> None:
        """A line break in a text begins no line of the log or of an output that somebody could take for another."""
        given = self.make(tmp_path)
        with recorded(capfd) as said:
            sink = self.opened(given)
            for text in ODD_TEXTS:
                handed(given, sink, [fitting(given, sink, _odd(text))])
        for line in "".join(said).splitlines():
            if line.startswith(FORGED):
                fail(
                    f"a text of a delivery began a line of its own: {line!r}",
                    "Log or print such a text with repr() or as JSON",
                )

    def test_logging_is_left_alone(self, tmp_path: Path) -> None:
        """The process's logging is the worker's: a sink adds no handler to the root and disables nothing."""
        given = self.make(tmp_path)
        root = logging.getLogger()
        before = (list(root.handlers), root.level, logging.root.manager.disable)
        sink = self.opened(given)
        handed(given, sink, ordinary(given, sink, 1))
        if (list(root.handlers), root.level, logging.root.manager.disable) != before:
            fail("the sink changed the root logger", "Use logging.getLogger(__name__) and leave the set-up to the host")


def _odd(text: str) -> Delivery:
    return delivery(subject=text, data={"text": text, text or "empty": [text]})
