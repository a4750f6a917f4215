"""Schemas of OpenAPI documents as self-contained JSON Schema 2020-12, for requests.

3.0 has `nullable` and `exclusiveMinimum: true`, and a reference hides what stands beside it. In both versions a
property that is `readOnly` is required in answers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from runtime_core.adapters.openapi_document import DocumentFault
from runtime_core.exact_json import shown
from runtime_core.schema_size import resolved
from runtime_core.schemas import Schema, SchemaFault, compile_schema

if TYPE_CHECKING:
    from runtime_core.adapters.openapi_document import Document

_MAPS: Final = ("properties", "patternProperties", "dependentSchemas")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE: Final = (
    *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_KEPT: Final = (
    *("type", "enum", "const", "multipleOf", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"),
    *("maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains"),
    *("maxProperties", "minProperties", "dependentRequired"),
)
"""Keywords that say something of a value and hold no schema; annotations are left out."""


def compiled(document: Document, schema: Any, place: str) -> Schema | None:
    """Return a schema of the document ready to check with; None for an absent one. Raises DocumentFault."""
    if schema is None:
        return None
    walk = _Walk(document)
    plain = walk.schema(schema)
    while walk.waiting:
        pointer = walk.waiting.pop()
        target = resolved(document.root, pointer)
        if not isinstance(target, dict | bool):
            raise DocumentFault(f"{place}: reference {shown('#' + pointer)} leads nowhere")
        walk.found[pointer] = walk.schema(target)
    if walk.found and isinstance(plain, dict):
        plain["$defs"] = {walk.names[pointer]: target for pointer, target in walk.found.items()}
    try:
        return compile_schema(plain)
    except SchemaFault as fault:
        raise DocumentFault(f"{place}: {fault}") from None


class _Walk:
    """One conversion: what is referred to gets a number in `$defs`, so that only what is reached comes along."""

    def __init__(self, document: Document) -> None:
        self._old = document.old_schemas
        self.names: dict[str, str] = {}
        self.found: dict[str, Any] = {}
        self.waiting: list[str] = []

    def schema(self, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        plain: dict[str, Any] = {}
        if isinstance(given.get("$ref"), str):
            plain["$ref"] = self._reference(given["$ref"])
            if self._old:
                return plain
        plain |= {name: given[name] for name in _KEPT if name in given}
        for name in _MAPS:
            if isinstance(given.get(name), dict):
                plain[name] = {key: self.schema(inner) for key, inner in given[name].items()}
        for name in _LISTS:
            if isinstance(given.get(name), list):
                plain[name] = [self.schema(inner) for inner in given[name]]
        plain |= {name: self.schema(given[name]) for name in _SINGLE if name in given}
        if isinstance(given.get("required"), list):
            plain["required"] = [name for name in given["required"] if not _is_read_only(given, name)]
        return _of_3_0(plain, nullable=given.get("nullable") is True) if self._old else plain

    def _reference(self, reference: str) -> str:
        if not reference.startswith("#"):
            raise DocumentFault(f"reference {shown(reference)}: leads out of the document")
        pointer = reference[1:]
        if pointer not in self.names:
            self.names[pointer] = f"part{len(self.names)}"
            self.waiting.append(pointer)
        return f"#/$defs/{self.names[pointer]}"


def _is_read_only(given: dict[str, Any], name: Any) -> bool:
    properties = given.get("properties")
    declared = properties.get(name) if isinstance(properties, dict) and isinstance(name, str) else None
    return isinstance(declared, dict) and declared.get("readOnly") is True


def _of_3_0(plain: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    """Return a schema of OpenAPI 3.0 as one of 2020-12."""
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(plain.get(exclusive), bool) and plain.pop(exclusive) and limit in plain:
            plain[exclusive] = plain.pop(limit)
    return {"anyOf": [{"type": "null"}, plain]} if nullable and "type" in plain else plain
