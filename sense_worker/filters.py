"""Route filters: a condition in CEL over `ref`, `subject`, `data` and `occurred_at` (docs/routes.md).

A filter is checked when it is saved and evaluated when an event is accepted. Only true lets the event pass: the library
answers an error as a value that Python holds for true, so its type is looked at first (DESIGN §11). An error is never
a match; its text names no value of the event, because receipts and the audit keep it (§9.6).

What bounds the cost of one evaluation: the length of the filter, the size of the body, what may stand in a filter
(`filter_bounds`), and the library's own limits (loops of 10,000 elements together, 32 levels). Of one event all filters
of one owner get CPU_S: so nobody's filters hold up those of others.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from runtime_core.errors import UsageError
from runtime_core.event import BODY_LIMIT
from sense_worker.filter_bounds import keys, patterns, read_checked, refusals

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_core.event import TriggerEvent

LENGTH_LIMIT = 2048
"""Bytes of a filter as UTF-8."""
BODY_BYTES = BODY_LIMIT // 4
"""An event whose data is larger passes no filter."""
CPU_S = 0.25
"""CPU time that the filters of one owner get for one event; a usual one takes some 20 µs."""
COMPILED = 1024
"""Compiled filters kept per process, the least recently used dropped first: some 20 KiB each."""
NO: Final = "filter false"
"""A filter said no. Not an error, and told by `route test` alone: such a route just does not match."""
UNAVAILABLE: Final = "filter unavailable"
"""The library is not installed where the event was accepted."""
KEY_SHOWN = 64

_PLACE = "filter"
_WAY_OUT = "see docs/routes.md"
_FAULT = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_KEY = re.compile(r'Key not found in map : "?(.*?)"?$', re.DOTALL)
_OVERLOAD = re.compile(r"No matching overloads found : (?:\((\w+)\)\.)?([^\s(]+)(?:\(([\w, ]+)\))?", re.ASCII)
_TEXTS = (
    ("Iteration budget exceeded", "a loop of more than 10000 elements"),
    ("Applying SELECT to non-message type", "a field of what is no object"),
    ("Invalid container type", "an element of what is no list or object"),
    ("<iter_range>", "a loop over what is no list or object"),
    ("Invalid map key type", "a key that is no text, number or true and false"),
    ("Index error", "no such element of a list"),
    ("divide by zero", "division by zero"),
    ("modulus by zero", "division by zero"),
    ("OUT_OF_RANGE", "a number or moment out of range"),
    ("infinite-", "a number or moment out of range"),
    ("conversion", "a value that cannot be converted"),
    ("cannot convert", "a value that cannot be converted"),
    ("<jump_condition>", "a condition that is not true or false"),
    ("Invalid timezone", "no such time zone"),
    ('name "occurred_at"', "occurred_at outside of the years 1 to 9999"),
)


class Filter:
    """A compiled filter. Raises UsageError naming line and column where `text` is none, or where CEL is missing."""

    def __init__(self, text: str) -> None:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UsageError(_PLACE, "is not UTF-8", "write it as UTF-8")
        if len(text.encode()) > LENGTH_LIMIT:
            raise UsageError(_PLACE, f"longer than {LENGTH_LIMIT} bytes", "make it shorter, or use several routes")
        environment = _environment()
        try:
            self._program = environment.compile(text)
            answers = self._program.return_type()
        except (RuntimeError, ValueError, TypeError) as error:
            raise _compile_fault(str(error)) from None
        checked = read_checked(self._program.serialize())
        for refused in refusals(checked):
            raise UsageError(_place_of(text, refused.at), refused.reason, refused.way_out)
        for at, pattern in patterns(checked):
            _check_pattern(_place_of(text, at), pattern)
        if answers != _library().Type.BOOL:
            way_out = 'compare, such as data.branch == "main" or data.urgent == true'
            raise UsageError(_PLACE, f"answers {answers.name().lower()}, not true or false", way_out)
        self._keys = keys(checked)

    def says(self, variables: dict[str, Any]) -> str | None:
        """Return None where the filter is true, NO where it is false, else the text of an error."""
        try:
            answer = self._program.eval(data=variables)
            kind, value = answer.type(), answer.value()
        except Exception as error:  # noqa: BLE001 - a binding may raise anything; whatever it is, it is no match
            return self._error(str(error))
        if kind == _library().Type.BOOL:
            return None if value is True else NO
        return self._error(str(value)) if kind == _library().Type.ERROR else _error("not true or false")

    def _error(self, text: str) -> str:
        key = _KEY.search(text)
        if key is not None:
            known = key[1] in self._keys
            return _error(f"no such key: {key[1][:KEY_SHOWN]}" if known else "no such key")
        overload = _OVERLOAD.search(text)
        if overload is not None and not overload[2].startswith("<"):
            of = ", ".join(filter(None, (overload[1], overload[3])))
            return _error(f"wrong type for {overload[2].strip('_@')}{f' of {of}' if of else ''}")
        return _error(next((told for part, told in _TEXTS if part in text), "cannot be evaluated"))


class Filtering:
    """The filters of one event: its data is made ready once, when the first filter asks for it."""

    def __init__(self, event: Callable[[], TriggerEvent], body_bytes: int) -> None:
        self._event = event
        self._body_bytes = body_bytes
        self._variables: dict[str, Any] | None = None
        self._spent: dict[str, float] = {}

    def says(self, owner: str, text: str) -> str | None:
        """Return None where the event passes the filter, NO where it does not, else the text of an error."""
        if self._body_bytes > BODY_BYTES:
            return _error(f"a body of more than {BODY_BYTES} bytes")
        if self._spent.get(owner, 0.0) > CPU_S:
            return _error(f"its owner's filters took more than {CPU_S:g} s")
        began = time.thread_time()
        compiled = _compiled(text)
        said = compiled if isinstance(compiled, str) else compiled.says(self._ready())
        self._spent[owner] = self._spent.get(owner, 0.0) + time.thread_time() - began
        return said

    def _ready(self) -> dict[str, Any]:
        if self._variables is None:
            event = self._event()
            self._variables = {"ref": event.ref, "subject": event.subject or "", "data": event.data}
            moment = moment_of(event.occurred_at)
            if moment is not None:
                self._variables["occurred_at"] = moment
        return self._variables


def check_filter(text: str) -> None:
    """Raise UsageError where `text` cannot be the filter of a route, naming line and column."""
    Filter(text)


def moment_of(occurred_at: str) -> datetime | None:
    """Return RFC 3339 text as a moment, to the microsecond; None where CEL has none such (years 1 to 9999 in UTC).

    A leap second is the second after it, as CEL knows none.
    """
    leap = occurred_at[17:19] == "60"
    text = f"{occurred_at[:17]}59{occurred_at[19:]}" if leap else occurred_at
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC) + timedelta(seconds=leap)
    except (ValueError, OverflowError):
        return None


@lru_cache(COMPILED)
def _compiled(text: str) -> Filter | str:
    """Return the filter that stands with a route, or why there is none here: it was checked when it was saved."""
    if _library() is None:
        return UNAVAILABLE
    try:
        return Filter(text)
    except UsageError:
        return _error("not accepted by this release")


@cache
def _library() -> Any:
    """Return the library, imported when the first filter is met; None where it is not installed."""
    try:
        from cel_expr_python import cel  # type: ignore[import-untyped]  # its stubs are beside no py.typed
    except ImportError:  # not there, or not for this platform: there is none for musl
        return None
    return cel


@cache
def _environment() -> Any:
    library = _library()
    if library is None:
        way_out = "pip install cel-expr-python (it needs glibc or macOS), or leave the filter out"
        raise UsageError(_PLACE, "filters need cel-expr-python, which is not installed here", way_out)
    kind = library.Type
    shape = {"ref": kind.STRING, "subject": kind.STRING, "occurred_at": kind.TIMESTAMP}
    return library.NewEnv(variables={**shape, "data": kind.Map(kind.STRING, kind.DYN)})


def _check_pattern(place: str, pattern: str) -> None:
    """Raise UsageError for a regular expression that RE2 does not take."""
    answer = _environment().compile("subject.matches(ref)").eval(data={"subject": "", "ref": pattern})
    if answer.type() != _library().Type.BOOL:
        raise UsageError(place, f"{pattern!r} is no regular expression of RE2", "see github.com/google/re2/wiki/Syntax")


def _compile_fault(text: str) -> UsageError:
    """Return what the compiler found first; it writes `ERROR: <input>:LINE:COLUMN: …` a fault."""
    fault = _FAULT.search(text)
    if "key type" in text:
        return UsageError(_PLACE, "a map whose keys are no text, number or true and false", "write it otherwise")
    if fault is None or "recursion" in text:
        return UsageError(_PLACE, "nested too deeply", "at most 32 levels, and chains of some 25 + or fields")
    what = fault[3].removesuffix(" [INVALID_ARGUMENT]").removesuffix(" (in container '')")
    what = what.removeprefix("Syntax error: ").partition(" expecting ")[0].replace("'<EOF>'", "the end")
    way_out = "variables are ref, subject, data and occurred_at" if "undeclared" in what else _WAY_OUT
    return UsageError(_at(int(fault[1]), int(fault[2])), what, way_out)


def _place_of(text: str, at: int) -> str:
    before = text[:at]
    return _at(before.count("\n") + 1, at - before.rfind("\n"))


def _at(line: int, column: int) -> str:
    return f"{_PLACE}, column {column}" if line == 1 else f"{_PLACE}, line {line}, column {column}"


def _error(text: str) -> str:
    return f"filter error: {text}"
