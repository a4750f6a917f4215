"""What the files of a pack have in common: names, limit, closed models, and faults that name their place (§4)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from runtime_core.errors import DoorError, PackParseError
from runtime_core.exact_json import pointer, shown
from runtime_core.strict_json import kind_of, parse_object

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE_NAMES = {"surface": "surface.json", "policy": "policy.json", "harness": "HARNESS.md"}
"""The three files of a pack (§1.2), by the word that errors use, in the order in which they are judged."""
FILE_LIMIT = 1024 * 1024
"""Bytes of one pack file (DESIGN §4)."""

_Model = TypeVar("_Model", bound=BaseModel)

_REASONS = {
    "missing": "required field is missing",
    "extra_forbidden": "unknown field",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "literal_error": "must be {expected}",
    "greater_than": "must be greater than {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "string_too_short": "must not be empty",
    "string_too_long": "must be at most {max_length} characters",
    "too_short": "must not be empty",
}
_SAYS_ALL = {"missing", "extra_forbidden", "value_error", "string_too_short", "too_short"}
"""Kinds of fault whose reason stands alone; the others also show what was found."""


class Closed(BaseModel):
    """A part of a pack file: strictly typed, frozen, without unknown fields (§4.0.strict)."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", protected_namespaces=())


def read_document(file: str, raw: bytes) -> dict[str, Any]:
    """Return the object that a JSON file of a pack holds; raises PackParseError."""
    try:
        return parse_object(raw, limit=FILE_LIMIT, what=FILE_NAMES[file])
    except DoorError as error:
        raise PackParseError(file, error.place, error.reason, error.way_out) from None


def read_model(model: type[_Model], file: str, document: dict[str, Any]) -> _Model:
    """Return the document as its model; raises PackParseError with the first fault and the number of the others."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        place, reason = _place(document, faults[0]), _reason(faults[0])
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise fault(file, place, f"{reason}{more}") from None


def fault(file: str, steps: Sequence[str | int], reason: str) -> PackParseError:
    """Return the error for one place of a JSON file of a pack."""
    return PackParseError(file, f"{FILE_NAMES[file]} {pointer(steps)}".rstrip(), reason)


def found(value: object) -> str:
    """Return what stands in a document, for a refusal: scalars as written and cut, the others by their kind."""
    if isinstance(value, str):
        return shown(value)
    return json.dumps(value) if isinstance(value, int | float) else kind_of(value)


def _place(document: Any, found_fault: Any) -> list[str | int]:
    """Return the steps to a fault that exist in the document: the models name their unions and keys as steps too."""
    steps: list[str | int] = []
    for step in found_fault["loc"]:
        is_index = isinstance(document, list) and isinstance(step, int) and step < len(document)
        if is_index or (isinstance(document, dict) and step in document):
            document = document[step]
            steps.append(step)
    if found_fault["type"] == "missing":
        steps.append(found_fault["loc"][-1])
    # A fault within a JSON Schema knows its place in there.
    return [*steps, *getattr(found_fault.get("ctx", {}).get("error"), "at", ())]


def _reason(found_fault: Any) -> str:
    kind, context = found_fault["type"], found_fault.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    reason = _REASONS[kind].format(**context) if kind in _REASONS else str(found_fault["msg"])
    return reason if kind in _SAYS_ALL else f"{reason}, not {found(found_fault['input'])}"
