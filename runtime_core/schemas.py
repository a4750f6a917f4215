"""JSON Schema 2020-12 of args and data: compiled once, never fetching anything (DESIGN §5).

A validator of jsonschema-rs checks about a million small objects a second; compiling costs a thousand times a check.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs

from runtime_core.errors import printable
from runtime_core.exact_json import pointer
from runtime_core.schema_size import size_by_references

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

REFERENCES_LIMIT: Final = 10_000
"""Parts that following the references of a schema may add: some 0.2 ms of checking a value."""

_MASK = "the value"
_REASON_LIMIT = 300
"""Characters of a reason: an `enum` may list thousands of values."""


class SchemaFault(ValueError):
    """Why a document is no schema; `at` are the steps to the place within it."""

    def __init__(self, reason: str, at: Sequence[str | int] = ()) -> None:
        super().__init__(reason)
        self.at = tuple(at)


class Schema:
    """A compiled schema; `document` is what the manifest says. Made by `compile_schema`."""

    __slots__ = ("_validator", "document")

    def __init__(self, document: dict[str, Any] | bool, validator: jsonschema_rs.Draft202012Validator) -> None:
        self.document = document
        self._validator = validator

    def check(self, value: object) -> str | None:
        """Return None, or `PATH: REASON` of the first fault; a reason never shows a value, for it may be logged."""
        if self._validator.is_valid(value):
            return None
        first = next(iter(self._validator.iter_errors(value)))
        return printable(f"{pointer(first.instance_path) or '/'}: {first.message[:_REASON_LIMIT]}")


def compile_schema(document: Any) -> Schema:
    """Return the schema compiled; raises SchemaFault where it is none, or points outside itself."""
    if not isinstance(document, dict | bool):
        raise SchemaFault("must be a JSON Schema: an object, true or false")
    if isinstance(document, dict) and str(document.get("$schema", DIALECT)).removesuffix("#") != DIALECT:
        raise SchemaFault("must be JSON Schema 2020-12", ["$schema"])
    if isinstance(document, dict) and size_by_references(document) > REFERENCES_LIMIT:
        raise SchemaFault(f"its references make it more than {REFERENCES_LIMIT} parts larger; name each once")
    try:
        validator = jsonschema_rs.Draft202012Validator(document, retriever=_refuse, mask=_MASK)
    except jsonschema_rs.ValidationError as error:
        # Our retriever's sentence comes wrapped; what it says of the schema's own values need not be masked.
        reason = error.message.rpartition("ValueError: ")[2].replace(_MASK, json.dumps(error.instance), 1)
        raise SchemaFault(f"no JSON Schema 2020-12: {reason[:_REASON_LIMIT]}", error.instance_path) from None
    return Schema(document, validator)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside the schema; only references within it are followed")


ANY_OBJECT: Final = compile_schema({"type": "object"})
NO_PROPERTIES: Final = compile_schema({"type": "object", "maxProperties": 0})
