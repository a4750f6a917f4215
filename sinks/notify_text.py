"""The text of a notification: a template with named fields, and shortening between whole characters (C54)."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from sinks.line import readable_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sinks.protocol import Delivery

FIELDS = ("pack_id", "ref", "subject", "principal", "publisher", "project", "tenant", "occurred_at", "id", "data")
MARK = "… shortened"
"""Stands where something was left out; no letter of it has a meaning in Markdown or HTML."""
EMPTY = "(no text)"

_HOLE = re.compile(r"\{\{|\}\}|\{([a-z_]*)\}|[{}]")
_JOINER = "\u200d"
_EXTENDING = frozenset({"Mn", "Mc", "Me"})
_SKIN = range(0x1F3FB, 0x1F400)
_TAGS = range(0xE0020, 0xE0080)
_FLAGS = range(0x1F1E6, 0x1F200)
_JAMO = range(0x1160, 0x1200)
"""Vowels and finals, which complete a syllable of Hangul."""


def checked(template: str) -> str:
    """Return a template whose every hole is one of FIELDS; raises ValueError naming the first that is not."""
    for found in _HOLE.finditer(template):
        hole = found[0]
        if hole in {"{", "}"}:
            raise ValueError("has a single brace; write {{ or }} for one")
        if found[1] is not None and found[1] not in FIELDS:
            raise ValueError(f"names {hole[:40]}; it may name {', '.join(f'{{{name}}}' for name in FIELDS)}")
    return template


def filled(template: str, delivery: Delivery) -> str:
    """Return a checked template with the delivery's fields in it; what a delivery does not have is empty.

    Only the template is read for holes, never what was filled in. Raises ValueError for a body that is no event.
    """
    values = {name: getattr(delivery, name) for name in FIELDS if name != "data"}
    values["data"] = readable_data(delivery.body)

    def value(found: re.Match[str]) -> str:
        return found[0][0] if found[1] is None else values[found[1]] or ""

    return _HOLE.sub(value, template)


def one_line(text: str) -> str:
    """Return text as a title may have it: without controls, each run of white space a blank."""
    return " ".join(_plain(text).split())


def paragraphs(text: str) -> str:
    """Return text as a body may have it: without controls but line breaks and tabs."""
    return _plain(text).strip()


def units(text: str) -> int:
    """Return the length in UTF-16 code units: services count these or characters, and these are never fewer."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def characters(text: str) -> Iterator[str]:
    """Yield what a reader takes for one character each: a base with its marks, an emoji sequence, a flag, a syllable.

    After Unicode's extended grapheme clusters (UAX 29), as far as the standard library's tables tell.
    """
    start, flags = 0, 0
    for at in range(1, len(text) + 1):
        flags = flags + 1 if ord(text[at - 1]) in _FLAGS else 0
        if at == len(text) or not _goes_on(text[at - 1], text[at], flags):
            yield text[start:at]
            start = at


def shortened(text: str, fits: Callable[[str], bool]) -> str:
    """Return the text where it fits, else as many whole characters of it as fit together with MARK.

    Raises ValueError where not even one does. `fits` has to hold for every beginning of a text that fits.
    """
    if fits(text):
        return text
    whole = list(characters(text))
    low, high = 0, len(whole)
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits("".join(whole[:middle]).rstrip() + MARK) else (low, middle)
    if low == 0:
        raise ValueError("not even one character fits")
    return "".join(whole[:low]).rstrip() + MARK


def _goes_on(before: str, after: str, flags: int) -> bool:
    """Tell whether two neighbours belong to one character; `flags`: regional indicators up to `before`."""
    code = ord(after)
    return (
        after == _JOINER
        or (before == _JOINER and unicodedata.category(after) in {"So", "Sk", "Sm", "Po"})
        or unicodedata.category(after) in _EXTENDING
        or code in _SKIN
        or code in _TAGS
        or code in _JAMO
        or (code in _FLAGS and flags % 2 == 1)
        or (before == "\r" and after == "\n")
    )


def _plain(text: str) -> str:
    kept = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c for c in kept if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs"})
