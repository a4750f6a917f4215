"""What may stand in a route's filter, so that no filter and no event can keep intake busy (docs/routes.md).

The library ends a loop after 10,000 elements and stops at no other bound: what one step of a loop costs, how long a
text gets by `+`, or how large a regular expression is, it does not limit. So a filter is read once, as the library
parsed it, and only what looks at every part of an event a bounded number of times is taken:

- loops are `exists`, `all` and `exists_one`; one walks a list or map of the event, or constants, and what it asks of
  each element is short, mentions that element alone, not the rest of `data`, and holds no further loop;
- `+` adds numbers, moments and durations, never texts or lists;
- no regular expression stands within a loop: the library compiles it each time, 0.3 ms for one of 50 characters, and a
  loop may have 10,000 elements;
- a regular expression, what `contains` looks for and a time zone stand in the filter itself.

Then an evaluation costs at most the number of operations in the filter times the size of the event's data.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOOP_LIMIT = 60
"""Nodes that a loop evaluates for each element, its own half dozen among them."""
PATTERN_LIMIT = 128
"""Characters of all regular expressions of a filter, counted repetitions written out: RE2 may need a step for each of
them at each character of the event."""
UNICODE_CLASS = 50

_ZONE = re.compile(r"UTC|[+-]\d\d:\d\d|[A-Z][A-Za-z0-9_+-]*(?:/[A-Z][A-Za-z0-9_+-]*){0,2}", re.ASCII)
"""A zone's name, and no path: the library opens a file of that name below the system's zones."""
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\.", re.DOTALL)
_COUNT = re.compile(r"(.)\{(\d*)(?:,(\d*))?\}", re.DOTALL)
_UNICODE = re.compile(r"\\[pP]")
_INSTEAD = "for a list of plain values write VALUE in LIST; otherwise use several routes"
_JOINING = frozenset({"add_string", "add_bytes", "add_list"})
_SHORT = frozenset({"ref", "subject", "occurred_at"})


class Refused(NamedTuple):
    """What a filter may not hold: where (characters from its beginning), what, and what to write instead."""

    at: int
    reason: str
    way_out: str


class Node(NamedTuple):
    """A node of the checked expression. `name`: a variable, field, function, or the text of a constant."""

    kind: str
    id: int
    name: str = ""
    parts: tuple[Node, ...] = ()
    """Operands in order. Of a loop: its range, what it begins with, its condition, its step, its result."""


class Checked(NamedTuple):
    """An expression as the library parsed and checked it."""

    root: Node
    overloads: Mapping[int, frozenset[str]]
    """Which functions a call may turn out to be, by its node's id."""
    places: Mapping[int, int]
    """Where a node stands: characters from the beginning, by its id."""


def read_checked(serialized: bytes) -> Checked:
    """Return the expression in the library's serialized form, a `cel.expr.CheckedExpr` in a protobuf `Any`."""
    wrapped = dict(_fields(serialized))
    root = Node("const", 0)
    overloads: dict[int, frozenset[str]] = {}
    places: dict[int, int] = {}
    for number, value in _fields(_raw(wrapped[2])):
        if number == 2:  # noqa: PLR2004 - numbers of cel.expr.CheckedExpr, here and below
            entry = dict(_fields(_raw(value)))
            named = [_raw(one).decode() for at, one in _fields(_raw(entry[2])) if at == 3]  # noqa: PLR2004
            overloads[cast("int", entry[1])] = frozenset(named)
        elif number == 4:  # noqa: PLR2004
            root = _node(_raw(value))
        elif number == 5:  # noqa: PLR2004
            entries = [dict(_fields(_raw(one))) for at, one in _fields(_raw(value)) if at == 4]  # noqa: PLR2004
            places = {cast("int", one[1]): cast("int", one.get(2, 0)) for one in entries}
    return Checked(root, overloads, places)


def refusals(checked: Checked) -> Iterator[Refused]:
    """Yield everything in a filter whose cost has no bound, or that a filter has no use for."""
    patterns = 0
    for node, loop in _walk(checked.root, looped=False):
        at = checked.places.get(node.id, 0)
        if node.kind == "loop":
            yield from _loop(node, at, looped=loop)
        elif node.kind == "ident" and loop and node.name == "data":
            yield Refused(at, "a loop may look at its own element only, not at data", _INSTEAD)
        elif node.kind == "message":
            yield Refused(at, "a filter makes no messages", "compare with literals")
        elif node.kind == "call":
            yield from _call(node, at, checked.overloads.get(node.id, frozenset()), looped=loop)
            patterns += pattern_size(node.parts[-1].name) if node.name == "matches" else 0
    if patterns > PATTERN_LIMIT:
        reason = f"regular expressions of {patterns} characters, repetitions written out"
        yield Refused(0, reason, f"at most {PATTERN_LIMIT}; compare with ==, startsWith or contains")


def keys(checked: Checked) -> frozenset[str]:
    """Return the keys that the filter itself names: an error may tell these, and no other text of an event."""
    named = set()
    for node, _ in _walk(checked.root, looped=False):
        if node.kind == "select":
            named.add(node.name)
        elif node.kind == "call" and node.name == "_[_]" and node.parts[1].kind == "text":
            named.add(node.parts[1].name)
    return frozenset(named)


def patterns(checked: Checked) -> Iterator[tuple[int, str]]:
    """Yield where each regular expression stands, and its text."""
    for node, _ in _walk(checked.root, looped=False):
        if node.kind == "call" and node.name == "matches":
            yield checked.places.get(node.id, 0), node.parts[-1].name


def pattern_size(pattern: str) -> int:
    """Return the characters of a regular expression, with every counted repetition written out.

    A repeated group counts as if it alone filled the limit: what is repeated in it would multiply. A class of Unicode
    stands for hundreds of ranges of bytes.
    """
    plain = _CLASS.sub("C", pattern)
    size = len(plain) + UNICODE_CLASS * len(_UNICODE.findall(pattern))
    for atom, least, most in _COUNT.findall(plain):
        size += PATTERN_LIMIT if atom in ")}*+?" else max(int(least or 0), int(most or 0))
    return size


def _loop(node: Node, at: int, *, looped: bool) -> Iterator[Refused]:
    over, begins = node.parts[:2]
    if begins.kind == "list":
        yield Refused(at, "map and filter make lists of any length", "use exists, all or exists_one")
    if looped:
        yield Refused(at, "a loop within a loop", "one loop at a time, joined by && or ||")
    cost = sum(1 for part in node.parts[1:] for _ in _walk(part, looped=True))
    if cost > LOOP_LIMIT:
        yield Refused(at, f"a loop of {cost} steps for each element", f"at most {LOOP_LIMIT}; use several routes")
    if not (_path(over) or (over.kind == "list" and all(part.kind in ("const", "text") for part in over.parts))):
        yield Refused(at, "a loop walks a part of data or a list of constants", "such as data.files.exists(f, …)")


def _call(node: Node, at: int, overloads: frozenset[str], *, looped: bool) -> Iterator[Refused]:
    last = node.parts[-1] if node.parts else node
    if node.name == "_+_" and overloads & _JOINING:
        yield Refused(at, "+ may join texts or lists here", "compare the parts; for numbers write int(…) or double(…)")
    elif node.name == "matches" and last.kind != "text":
        yield Refused(at, "a regular expression that is no literal", 'write it out, such as matches("^v[0-9]+$")')
    elif node.name == "matches" and looped:
        yield Refused(at, "a regular expression within a loop", "use ==, startsWith, endsWith or contains there")
    elif node.name == "contains" and not (last.kind == "text" or (last.kind == "ident" and last.name in _SHORT)):
        yield Refused(at, "contains looks for a literal, ref or subject only", "use ==, startsWith or in")
    elif node.name.startswith("get") and len(node.parts) > 1:
        if last.kind != "text" or _ZONE.fullmatch(last.name) is None:
            yield Refused(at, "a time zone is a literal name", 'such as "Europe/Vienna" or "+02:00"')
        elif looped:
            yield Refused(at, "a time zone within a loop", "use UTC there")


def _path(node: Node) -> bool:
    """Tell whether a node is a part of the event: a variable, its fields, its elements by a constant."""
    return _root(node).kind == "ident"


def _root(node: Node) -> Node:
    while node.kind == "select" or (node.name == "_[_]" and node.parts[1].kind in ("const", "text")):
        node = node.parts[0]
    return node


def _walk(node: Node, *, looped: bool) -> Iterator[tuple[Node, bool]]:
    """Yield every node, and whether it is evaluated once for each element of a loop."""
    yield node, looped
    for at, part in enumerate(node.parts):
        yield from _walk(part, looped=looped or (node.kind == "loop" and at > 0))


def _node(raw: bytes) -> Node:
    """Return a `cel.expr.Expr` as a node."""
    found = dict(_fields(raw))
    ident = cast("int", found.pop(2, 0))
    ((number, value),) = found.items()
    fields = list(_fields(_raw(value)))
    by_number = dict(fields)
    match number:
        case 3:
            text = by_number.get(6)
            return Node("const", ident) if text is None else Node("text", ident, _raw(text).decode())
        case 4:
            return Node("ident", ident, _raw(by_number[1]).decode())
        case 5:
            return Node("select", ident, _raw(by_number[2]).decode(), (_node(_raw(by_number[1])),))
        case 6:
            operands = [one for at, one in fields if at == 1] + [one for at, one in fields if at == 3]  # noqa: PLR2004
            return Node("call", ident, _raw(by_number[2]).decode(), tuple(_node(_raw(one)) for one in operands))
        case 7:
            return Node("list", ident, "", tuple(_node(_raw(one)) for at, one in fields if at == 1))
        case 8:
            entries = [dict(_fields(_raw(one))) for at, one in fields if at == 2]  # noqa: PLR2004
            parts = tuple(_node(_raw(entry[at])) for entry in entries for at in (3, 4) if at in entry)
            return Node("message" if 1 in by_number else "map", ident, "", parts)
        case 9:
            return Node("loop", ident, "", tuple(_node(_raw(by_number[at])) for at in _LOOP))
    raise AssertionError(number)


_LOOP = (2, 4, 5, 6, 7)
"""Fields of `cel.expr.Expr.Comprehension`: range, what it begins with, condition, step, result."""


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: number and value."""
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(raw, at)
            yield key >> 3, value
            continue
        size, at = (8, at) if kind == 1 else (4, at) if kind == 5 else _varint(raw, at)  # noqa: PLR2004
        yield key >> 3, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a number has its high bit clear
            return value, at


def _raw(value: int | bytes) -> bytes:
    return cast("bytes", value)
