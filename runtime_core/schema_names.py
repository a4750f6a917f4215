"""What a JSON Schema says of the members of the value itself, without an instance to try it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from runtime_core.schema_size import resolved

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAME_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SAME_PLACE: Final = ("if", "then", "else", "not")
_OF_OTHERS: Final = ("additionalProperties", "unevaluatedProperties")


def own_level(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a schema that speak of the value itself, each once: alternatives and references included.

    A reference may lead to what is no schema where the validator never looks, as in an `if` alone.
    """
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        waiting += [part[keyword] for keyword in _SAME_PLACE if keyword in part]
        waiting += [inner for keyword in _SAME_PLACE_LISTS for inner in _list(part.get(keyword))]
        waiting += _object(part, "dependentSchemas").values()
        waiting.append(_referenced(schema, part.get("$ref")))


def declared_names(schema: Any) -> set[str]:
    """Return the names that a schema says anything about."""
    found: set[str] = set()
    for part in own_level(schema):
        for keyword in ("properties", "dependentRequired", "dependentSchemas"):
            found.update(_object(part, keyword))
        for names in _object(part, "dependentRequired").values():
            found.update(name for name in _list(names) if isinstance(name, str))
    return found | required_names(schema)


def required_names(schema: Any) -> set[str]:
    """Return the names that a schema requires, be it in an alternative only."""
    lists = (_list(part.get("required")) for part in own_level(schema))
    return {name for names in lists for name in names if isinstance(name, str)}


def permitted_names(schema: Any) -> set[str]:
    """Return the names of the properties that a schema describes, but for those it forbids."""
    parts = own_level(schema)
    return {name for part in parts for name, rule in _object(part, "properties").items() if rule is not False}


def names_others(schema: Any) -> bool:
    """Tell whether a schema lets in names on purpose that it does not say, or cannot be read here to its end."""
    return schema is True or any(
        any(part.get(keyword, False) is not False for keyword in _OF_OTHERS)
        or "patternProperties" in part
        or "$dynamicRef" in part
        or not f"{part.get('$ref', '#')}/".startswith("#/")
        for part in own_level(schema)
    )


def _object(part: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = part.get(keyword)
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _referenced(schema: Any, reference: Any) -> Any:
    """Return what a `#/…` reference names; None for another form."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    return resolved(schema, reference[1:])
