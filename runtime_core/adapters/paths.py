"""Args that are paths: none leads out of the folder that a command works in, by name or by link (§1.5.sandbox, C32)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.adapters.argv import ArgvFault
from runtime_core.exact_json import pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from runtime_core.schemas import Schema

_ALL_OF = ("allOf", "anyOf", "oneOf")
_ALSO = ("if", "then", "else")


def check_paths(schema: Schema, args: Mapping[str, Any], folder: Path) -> None:
    """Refuse an arg of format `path` that leads out of the folder. Raises ArgvFault.

    It is looked at wherever the schema can say it: in lists and objects, behind `$ref`, in any alternative.
    """
    inside = os.path.realpath(folder)
    for at, value in _Paths(schema.document).of(_Spot(schema.document, dict(args), ())):
        place = pointer(at) or "/"
        if "\0" in value:
            raise ArgvFault(f"{place}: holds a NUL")
        real = os.path.realpath(os.path.join(inside, value))  # noqa: PTH118 - pathlib keeps `..` of a link's target
        if real != inside and not real.startswith(inside.rstrip(os.sep) + os.sep):
            raise ArgvFault(f"{place}: leads out of the working folder")


class _Spot(NamedTuple):
    rule: Any
    value: Any
    at: tuple[str | int, ...]


class _Paths:
    """Finds the values that a schema calls paths."""

    def __init__(self, document: Any) -> None:
        self._document = document

    def of(self, first: _Spot) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield place and value of each text under a rule of format `path`."""
        waiting = [first]
        seen = set()  # a schema may point to itself
        while waiting:
            spot = waiting.pop()
            if not isinstance(spot.rule, dict) or (id(spot.rule), spot.at) in seen:
                continue
            seen.add((id(spot.rule), spot.at))
            if spot.rule.get("format") == "path" and isinstance(spot.value, str):
                yield spot.at, spot.value
            waiting += self._same(spot)
            if isinstance(spot.value, dict):
                waiting += _members(spot)
            elif isinstance(spot.value, list):
                waiting += _items(spot)

    def _same(self, spot: _Spot) -> Iterator[_Spot]:
        """Yield the further rules for the same value."""
        rules = [one for name in _ALL_OF for one in spot.rule.get(name, ())]
        rules += [spot.rule[name] for name in _ALSO if name in spot.rule]
        rules += [rule for name, rule in _mapping(spot.rule, "dependentSchemas") if name in _names(spot.value)]
        for name in ("$ref", "$dynamicRef"):
            if name in spot.rule:
                rules.append(self._referenced(spot.rule[name]))
        for rule in rules:
            yield spot._replace(rule=rule)

    def _referenced(self, reference: Any) -> Any:
        """Return the rule that a reference names: by pointer, or by an anchor or id anywhere in the document."""
        name = str(reference)
        if name == "#" or name.startswith("#/"):
            found = self._document
            for step in name[2:].split("/") if name != "#" else ():
                key = step.replace("~1", "/").replace("~0", "~")
                if isinstance(found, list):
                    found = found[int(key)] if key.isdecimal() and int(key) < len(found) else None
                else:
                    found = found.get(key) if isinstance(found, dict) else None
            return found
        return next((rule for rule in _objects(self._document) if name in _own_names(rule)), None)


def _members(spot: _Spot) -> Iterator[_Spot]:
    """Yield the members of an object with their rules; a further name counts under every rule for others."""
    named = dict(_mapping(spot.rule, "properties"))
    others = [rule for _, rule in _mapping(spot.rule, "patternProperties")]
    others += [spot.rule[name] for name in ("additionalProperties", "unevaluatedProperties") if name in spot.rule]
    for name, value in spot.value.items():
        for rule in [named[name]] if name in named else others:
            yield _Spot(rule, value, (*spot.at, name))


def _items(spot: _Spot) -> Iterator[_Spot]:
    """Yield the items of a list with their rules."""
    first = spot.rule.get("prefixItems", [])
    others = [spot.rule[name] for name in ("items", "contains", "unevaluatedItems") if name in spot.rule]
    for index, value in enumerate(spot.value):
        for rule in [first[index]] if index < len(first) else others:
            yield _Spot(rule, value, (*spot.at, index))


def _mapping(rule: dict[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    found = rule.get(name)
    yield from found.items() if isinstance(found, dict) else ()


def _names(value: Any) -> frozenset[str]:
    return frozenset(value) if isinstance(value, dict) else frozenset()


def _own_names(rule: dict[str, Any]) -> tuple[str, ...]:
    return (str(rule.get("$id")), f"#{rule.get('$anchor')}", f"#{rule.get('$dynamicAnchor')}")


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    waiting = [document]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found
