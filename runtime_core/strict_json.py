"""The one JSON parser for every door: what it accepts has one meaning, everywhere (DESIGN §4).

Refused, naming place and limit: a key that stands twice, NaN and Infinity, numbers that overflow, integers outside
64 bit, lone surrogates, NUL, nesting deeper than 64, size, bytes that are not UTF-8, a byte-order mark.

The fast path is jiter with duplicate detection and one look at each parsed value. jiter lets NUL, 1e999, long integers
and 200 levels through, so a document with such a suspect goes to the exact walk, and so does one that jiter refuses:
the walk alone refuses, and names the place. Both accept the same documents with the same values; a property test
compares them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import jiter

from runtime_core.errors import DoorError
from runtime_core.exact_json import DEPTH_LIMIT, INT_MAX, INT_MIN, Fault, walk

if TYPE_CHECKING:
    from collections.abc import Iterable

_BACKSLASH = 0x5C
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""The escape itself: after an even number of backslashes. `\\\\u0000` is text that was written out (C09)."""


def parse(raw: bytes, *, limit: int, what: str) -> object:
    """Return the value of one JSON document of at most `limit` bytes; `what` names the document in a refusal.

    Raises DoorError with the word `too_large`, else `malformed`.
    """
    if len(raw) > limit:
        raise DoorError("too_large", what, f"{len(raw)} bytes, the limit is {limit}")
    try:
        value = jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return parse_exactly(raw, limit=limit, what=what)
    # One byte is found eight times faster than six, and most documents have no escape at all.
    if _BACKSLASH in raw and b"\\u0000" in raw and _NUL.search(raw):
        return parse_exactly(raw, limit=limit, what=what)
    if not _sound((value,), DEPTH_LIMIT):
        return parse_exactly(raw, limit=limit, what=what)
    return value


def parse_object(raw: bytes, *, limit: int, what: str) -> dict[str, Any]:
    """Return the members of one JSON object; raises DoorError as `parse` does, and `malformed` for another value."""
    value = parse(raw, limit=limit, what=what)
    if type(value) is dict:
        return value
    raise DoorError("malformed", what, f"must be an object, not {kind_of(value)}")


def parse_exactly(raw: bytes, *, limit: int, what: str) -> object:
    """Return what `parse` returns, by the exact walk; some fifty times slower. Raises DoorError as `parse` does."""
    if len(raw) > limit:
        raise DoorError("too_large", what, f"{len(raw)} bytes, the limit is {limit}")
    try:
        return walk(raw)
    except Fault as fault:
        place = f"{what} {fault.place}" if fault.place else what
        raise DoorError("malformed", place, fault.reason, fault.way_out) from None


def kind_of(value: object) -> str:
    """Name the JSON kind of a parsed value, for a refusal."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    kinds = {dict: "an object", list: "a list", str: "text", int: "a number", float: "a number"}
    return kinds.get(type(value), type(value).__name__)


def _sound(values: Iterable[object], levels: int) -> bool:
    """Tell whether no value overflows or nests more than `levels` deep."""
    for value in values:
        kind = type(value)
        if kind is str:
            continue
        if kind is dict:
            if not levels or not _sound(value.values(), levels - 1):  # type: ignore[attr-defined]
                return False
        elif kind is list:
            if not levels or not _sound(value, levels - 1):  # type: ignore[arg-type]
                return False
        elif kind is int:
            if not INT_MIN <= value <= INT_MAX:  # type: ignore[operator]
                return False
        elif kind is float and value - value != 0:  # type: ignore[operator] # infinity is the one that is not zero
            return False
    return True
