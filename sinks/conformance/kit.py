"""What the tests of the kit share: making a sink, calling it within its deadline, looking at what arrived."""

from __future__ import annotations

import contextlib
import gc
import math
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from unittest import SkipTest

from sinks.bounded import Late, within
from sinks.conformance.material import delivery
from sinks.declared import Misdeclared, check
from sinks.protocol import Delivered, Outcome, Rejected, Retry, TransactionalSink
from sinks.raised import REASON_LIMIT, origin
from sinks.registry import BUILT_IN, Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sinks.conformance.given import Given
    from sinks.protocol import Delivery, Host, Sink

Found = TypeVar("Found")

THREAD = "conformance"
SETTLE_S = 2.0
_HANDLES = Path("/dev/fd")
MANY = 20
"""Deliveries of a full batch in a test; a larger `batch_size` is tried with this many."""


def fail(what: str, instead: str) -> NoReturn:
    """Fail the test with what the sink did and what it has to do instead."""
    __tracebackhide__ = True
    raise AssertionError(f"{what}.\n  -> {instead}")


def missing(hook: str, why: str) -> NoReturn:
    """Skip the test: it needs a hook that `make` did not give."""
    raise SkipTest(f"Given(…, {hook}=…) is not given: {why}")


class _Kinds(Registry):
    """The built-in kinds and the one under test; a subclass that a test made of a built-in one stands in for it."""

    def __init__(self, sink: type, host: Host) -> None:
        super().__init__(host)
        kind = getattr(sink, "kind", None)
        original = self._kinds.get(str(kind))
        built_in = original in BUILT_IN and original is not None and issubclass(sink, original)
        if original is not None and not built_in:
            fail(f"{sink.__qualname__}.kind is {kind!r}, which is a built-in sink's", "Choose another `kind`")
        try:
            self._kinds[str(kind)] = check(sink, built_in=built_in)
        except Misdeclared as error:
            fail(str(error), "Declare it as docs/sinks.md says; the worker would leave the plugin out with this text")


class Kit:
    """The base of every part of the kit."""

    def make(self, tmp_path: Path) -> Given:
        """Return the sink class and options under which ordinary deliveries arrive; called once in each test."""
        raise NotImplementedError(f"{type(self).__name__}.make(self, tmp_path) has to return a Given")

    def teardown_method(self) -> None:
        """Close what a test left open."""
        for sink in self.__dict__.pop("_left_open", []):
            with contextlib.suppress(BaseException):
                within(min(1.0, sink.deadline_s), sink.close, THREAD)

    def opened(self, given: Given, run: Callable[[Callable[[], None]], None] | None = None) -> Sink:
        """Return a new sink, opened, by `run` where it is given; it is closed after the test at the latest."""
        sink = built(given)
        call(sink, "open", sink.open if run is None else lambda: run(sink.open))
        self.__dict__.setdefault("_left_open", []).append(sink)
        return sink


def built(given: Given) -> Sink:
    """Return a new sink, not opened, as the runtime would build it."""
    return _Kinds(given.sink, given.host).build(str(given.sink.kind), "conformance", given.options)  # type: ignore[attr-defined]


def call(sink: Sink, method: str, function: Callable[[], Found]) -> Found:
    """Call a method of a sink; fails the test where it raises or is out longer than the sink's deadline."""
    __tracebackhide__ = True
    where, limit = f"{type(sink).__qualname__}.{method}", float(sink.deadline_s)
    try:
        return within(limit, function, THREAD)
    except Late:
        fail(
            f"{where} did not return within deadline_s = {limit:g} s",
            "Give every connection and wait a timeout below `deadline_s`, or declare a longer `deadline_s`",
        )
    except (AssertionError, SkipTest):
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit of a sink too
        fail(
            f"{where} raised {type(error).__name__} {origin(error)}",
            "An ordinary delivery has to go through; answer Retry(reason) or Rejected(reason) for one that cannot",
        )


def answered(given: Given, sink: Sink, batch: Sequence[Delivery]) -> list[Outcome]:
    """Hand a copy of a batch over and return its outcomes, each closed and well typed; raises what it raises."""
    __tracebackhide__ = True
    return answered_itself(given, sink, list(batch))


def answered_itself(given: Given, sink: Sink, batch: list[Delivery]) -> list[Outcome]:
    """Do as `answered`, with this very list."""
    __tracebackhide__ = True
    number = len(batch)
    if isinstance(sink, TransactionalSink):
        if given.rows is None:
            missing("rows", "a transactional kind is written in a transaction")
        with given.rows() as rows:
            sink.write(batch, rows)
        return [Delivered()] * number
    return _sound(sink, sink.deliver(batch), number)


def handed(given: Given, sink: Sink, batch: Sequence[Delivery]) -> list[Outcome]:
    """Hand a batch over within the deadline and return its outcomes."""
    __tracebackhide__ = True
    return call(sink, "deliver", lambda: answered(given, sink, batch))


def arrived(given: Given, sink: Sink, batch: Sequence[Delivery], *, again: bool = False) -> None:
    """Hand ordinary deliveries over in batches of the sink's size; fails the test where one is not Delivered.

    `again`: they were handed over before.
    """
    __tracebackhide__ = True
    which = "a delivery that comes again" if again else "an ordinary delivery"
    instead = "It is there: answer Delivered, and leave it as it is" if again else "It has to arrive with these options"
    size = min(sink.batch_size, MANY)
    for start in range(0, len(batch), size):
        for outcome in handed(given, sink, batch[start : start + size]):
            if not isinstance(outcome, Delivered):
                fail(f"deliver answered {outcome!r} for {which}", instead)


def look(given: Given, expected: Iterable[Delivery], *, foreign: bool = False) -> None:
    """Look whether every expected delivery arrived, and, unless the sink `repeats`, once.

    The last thing a test does: without `seen` it is skipped from here on. `foreign`: others may be there too.
    """
    __tracebackhide__ = True
    if given.seen is None:
        missing("seen", "it was answered rightly, but whether it arrived cannot be looked at")
    wanted, found = {one.id for one in expected}, Counter(_read(given.seen))
    lost = wanted - found.keys()
    if lost:
        fail(
            f"{len(lost)} of {len(wanted)} deliveries answered with Delivered are not where seen() looks",
            "Answer Delivered only when it is there; what is only on its way is lost when the process dies",
        )
    twice = [one for one in wanted if found[one] > 1]
    if twice and not given.repeats:
        fail(
            f"a delivery that was handed over again is there {found[twice[0]]} times",
            "Use `delivery.id` as the key (a unique column, an idempotency header). Where whoever reads tells repeats "
            "by that id, say Given(…, repeats=True)",
        )
    strangers = found.keys() - wanted
    if strangers and not foreign:
        fail(f"seen() finds {min(strangers)!r}, which is no id of a delivery", "Keep `delivery.id` as it is")


def _read(seen: Callable[[], Iterable[str]]) -> list[str]:
    __tracebackhide__ = True
    try:
        return list(seen())
    except Exception as error:  # noqa: BLE001 - an author's own code
        fail(
            f"what arrived cannot be read: seen() raised {type(error).__name__} {origin(error)}",
            "Write every text so that whoever reads finds the deliveries again (as JSON); else mend seen()",
        )


def fitting(given: Given, sink: Sink, one: Delivery) -> Delivery:
    """Return a delivery as this sink may get it: of a land it takes, and of an activation with a workspace."""
    if sink.workspace and given.workspace is None:
        fail("the sink writes into the workspace", "Name a folder: Given(…, workspace=tmp_path)")
    return one._replace(land=sink.lands[0], workspace=None if given.workspace is None else str(given.workspace))


def ordinary(given: Given, sink: Sink, number: int, **fields: Any) -> list[Delivery]:
    """Return deliveries that this sink may get."""
    return [fitting(given, sink, delivery(**fields)) for _ in range(number)]


def held() -> tuple[int, int]:
    """Return how many open files this process has (0 where the system does not say), and how many threads."""
    try:
        files = sum(1 for _ in _HANDLES.iterdir())
    except OSError:
        files = 0
    return files, threading.active_count()


def settled(read: Callable[[], Found], wanted: Found) -> Found:
    """Return what is read once it is as wanted, or after SETTLE_S: threads and sockets end a moment later."""
    ends = time.monotonic() + SETTLE_S
    found = read()
    if found != wanted:
        gc.collect()  # what only waits for the collector was let go of
    while found != wanted and time.monotonic() < ends:
        time.sleep(0.01)
        found = read()
    return found


def _sound(sink: Sink, answer: object, number: int) -> list[Outcome]:
    __tracebackhide__ = True
    where = f"{type(sink).__qualname__}.deliver"
    try:
        outcomes: list[Any] = list(answer)  # type: ignore[call-overload]
    except TypeError:
        fail(f"{where} answered {type(answer).__name__}", "Return a list with one outcome for each delivery, in order")
    if len(outcomes) != number:
        fail(
            f"{where} answered {len(outcomes)} outcomes for {number} deliveries",
            "Return one outcome for each delivery of the batch, in the batch's order",
        )
    for outcome in outcomes:
        _closed(where, outcome)
    return outcomes


def _closed(where: str, outcome: object) -> None:
    __tracebackhide__ = True
    match outcome:
        case Delivered(receipt):
            if receipt is not None and not isinstance(receipt, str):
                fail(f"{where} answered a receipt of {type(receipt).__name__}", "A receipt is a short text, or None")
        case Retry(reason, after):
            _reason(where, reason)
            number = isinstance(after, int | float) and not isinstance(after, bool)
            if after is not None and not (number and math.isfinite(after) and after >= 0):
                fail(f"{where} answered Retry(after={after!r})", "`after` is a number of seconds, or None")
        case Rejected(reason, stop):
            _reason(where, reason)
            if not isinstance(stop, bool):
                fail(f"{where} answered Rejected(stop={stop!r})", "`stop` is True or False")
        case _:
            fail(
                f"{where} answered {type(outcome).__name__} in the place of an outcome",
                "Outcomes are closed: Delivered(receipt), Retry(reason, after), Rejected(reason, stop)",
            )


def _reason(where: str, reason: object) -> None:
    __tracebackhide__ = True
    if not isinstance(reason, str) or not reason.strip():
        fail(f"{where} answered the reason {reason!r:.60}", "A reason is a short text that says what happened")
    if len(reason) > REASON_LIMIT:
        fail(f"{where} answered a reason of {len(reason)} characters", f"Keep it below {REASON_LIMIT}: more is cut")
