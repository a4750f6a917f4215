"""The kit's test that no secret of the options appears anywhere."""

from __future__ import annotations

import contextlib
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from runtime_core.errors import UsageError
from sinks.bounded import within
from sinks.conformance.declaration import secret_fields
from sinks.conformance.kit import THREAD, Kit, answered, built, call, fail, missing, ordinary
from sinks.conformance.recorded import recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sinks.conformance.given import Given
    from sinks.protocol import Sink

SHORTEST = 6
"""Characters of a secret that can be told from an accident."""


class SecrecyTests(Kit):
    """Secrets."""

    def test_secrets_leave_no_trace(self, tmp_path: Path, capfd: Any) -> None:
        """No outcome, log record, exception text, repr or output holds the value of a secret option (C53).

        Looked at while deliveries arrive, while the receiver is away or hangs, with one that is rejected, and on a
        sink that is closed.
        """
        given = self.make(tmp_path)
        planted = set(secrets_of(given) if given.secrets is None else given.secrets)
        if not planted:
            missing("secrets", "no option of make() is secret, so there is nothing to look for")
        for value in planted:
            if len(value) < SHORTEST:
                fail(f"the secret option {value!r} of make() is too short to be found", "Plant a longer made-up secret")
        told: list[tuple[str, str]] = []
        with recorded(capfd) as said:
            self._provoke(given, lambda where, text: told.append((where, text)))
        told.append(("a log record, standard output or standard error", "".join(said)))
        for where, text in told:
            if any(value in text for value in planted):
                fail(
                    f"a secret of the options stands in {where}",
                    "Declare it as SecretStr, call get_secret_value() only where it is sent, and build reasons and "
                    "receipts from texts of your own instead of exceptions and addresses",
                )

    def _provoke(self, given: Given, tell: Callable[[str, str], None]) -> None:
        sink = self.opened(given)
        for block in _situations(given):
            with block:
                _look(given, sink, tell)
        call(sink, "close", sink.close)
        _look(given, sink, tell)
        try:
            built(_misspelt(given))
        except UsageError as error:
            tell("the refusal of an unknown option", _whole(error))


def secrets_of(given: Given) -> Iterator[str]:
    """Return the values of all options that are secret by type or look so by name, as texts."""
    for name, _ in secret_fields(given.sink.Options):  # type: ignore[attr-defined]
        yield from _texts(given.options.get(name))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _situations(given: Given) -> Iterator[contextlib.AbstractContextManager[object]]:
    """Return blocks in which its receiver is there, away and hanging."""
    yield contextlib.nullcontext()
    if given.away is not None:
        yield given.away()
    if given.hanging is not None:
        yield given.hanging()


def _look(given: Given, sink: Sink, tell: Callable[[str, str], None]) -> None:
    """Tell everything that the sink shows when it is handed deliveries now, one of which it may reject."""
    tell("repr(sink)", repr(sink))
    tell("str(sink)", str(sink))
    tell("repr(sink.options)", repr(getattr(sink, "options", None)))
    batches = [ordinary(given, sink, 1)]
    if given.rejected is not None:
        batches.append([given.rejected(ordinary(given, sink, 1)[0])])
    for batch in batches:
        try:
            outcomes = within(float(sink.deadline_s), partial(answered, given, sink, batch), THREAD)
        except BaseException as error:  # noqa: BLE001 - whatever a sink raises is looked at
            tell("the text of an exception", _whole(error))
        else:
            tell("an outcome", repr(outcomes))


def _whole(error: BaseException) -> str:
    """Return an exception with its causes as a traceback shows them, without the lines of source."""
    shown = traceback.TracebackException.from_exception(error, lookup_lines=False)
    return "".join(shown.format_exception_only()) + "".join(map(repr, _causes(error)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _misspelt(given: Given) -> Given:
    return type(given)(given.sink, {**given.options, "no_such_option": 1}, host=given.host)
