"""How large a JSON Schema becomes when its references are followed, before a validator follows them.

A reference costs what it leads to, each time it is met: thirty definitions that each name the next one twice are a
billion checks for one event (20 of them 22 ms, 30 of them 22 s). Recursion is no such thing: it ends with the data.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

_HUGE: Final = 1 << 60
"""Sizes are cut here, so that nobody pays for long integers."""

_REFERENCES: Final = ("$ref", "$dynamicRef")
_MEANINGS_LIMIT: Final = 200_000
"""Parts that all references together could mean, looked at in half a second: a file of `$id`s has a billion."""

_Part = dict[str, Any] | list[Any]


def size_by_references(document: dict[str, Any]) -> int:
    """Return how many parts (objects and lists) following the references adds; parts that lead back count once."""
    parts: dict[int, _Part] = {}
    waiting: list[_Part] = [document]
    while waiting:
        part = waiting.pop()
        parts[id(part)] = part
        waiting += _inner(part)
    if not any(word in part for part in parts.values() if isinstance(part, dict) for word in _REFERENCES):
        return 0  # as nearly every schema
    return _Sizes(document, list(parts.values())).of(document) - len(parts)


class _Sizes:
    def __init__(self, document: dict[str, Any], parts: list[_Part]) -> None:
        # Everything that a relative reference could mean: an `$id` within begins a document of its own.
        self._roots: list[_Part] = [document, *(part for part in parts if isinstance(part, dict) and "$id" in part)]
        self._anchors: dict[str, list[_Part]] = {}
        for part in parts:
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(part, dict) and isinstance(part.get(keyword), str):
                    self._anchors.setdefault(part[keyword], []).append(part)
        self._known: dict[int, int] = {}
        self._meanings = 0

    def of(self, document: dict[str, Any]) -> int:
        """Return the size of the document; without recursion, for references make long chains."""
        open_parts: set[int] = set()
        waiting: list[tuple[_Part, bool]] = [(document, False)]
        while waiting and self._meanings < _MEANINGS_LIMIT:
            part, inner_known = waiting.pop()
            if id(part) in self._known or (id(part) in open_parts and not inner_known):
                continue
            # Definitions apply where they are referred to. Only at the top is their name sure to be the keyword.
            without = [document.get("$defs"), document.get("definitions")] if part is document else []
            inner = [one for one in _inner(part) if not any(one is left for left in without)]
            targets = self._targets(part)
            if not inner_known:
                open_parts.add(id(part))
                waiting.append((part, True))
                waiting += [(one, False) for group in (inner, *targets) for one in group]
                continue
            size = 1 + sum(self._known.get(id(one), 1) for one in inner)
            size += sum(max((self._known.get(id(one), 1) for one in group), default=0) for group in targets)
            self._known[id(part)] = min(size, _HUGE)
        return self._known.get(id(document), _HUGE)

    def _targets(self, part: _Part) -> list[list[_Part]]:
        """Return for each reference of a part the parts that it could mean."""
        if not isinstance(part, dict):
            return []
        references = [part[keyword] for keyword in _REFERENCES if isinstance(part.get(keyword), str)]
        return [self._meant(reference) for reference in references]

    def _meant(self, reference: str) -> list[_Part]:
        name, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            anchored = self._anchors.get(fragment, [])
            self._meanings += len(anchored)
            return anchored
        self._meanings += len(self._roots)
        if not name and not fragment:
            return self._roots
        return [part for root in self._roots if isinstance(part := resolved(root, fragment), dict | list)]


def resolved(document: Any, fragment: str) -> Any:
    """Return what the fragment of a reference, a JSON pointer, names in a document; None where there is nothing."""
    for step in unquote(fragment).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict) and name in document:
            document = document[name]
        elif isinstance(document, list) and (index := _index(name)) < len(document):
            document = document[index]
        else:
            return None
    return document


def _inner(part: _Part) -> list[_Part]:
    return [one for one in (part.values() if isinstance(part, dict) else part) if isinstance(one, dict | list)]


_INDEX_DIGITS: Final = 8
"""More than a file of 1 MiB has items; int() itself refuses texts of over 4,300 digits."""


def _index(name: str) -> int:
    """Return the index that a step names, a huge one where it names none; the validator takes leading zeros too."""
    digits = name.lstrip("0") or "0"
    return int(digits) if name and digits.isdecimal() and len(digits) < _INDEX_DIGITS else _HUGE
