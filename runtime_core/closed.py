"""Closed models, and faults that name their place: what documents of a fixed form have in common (§4.0.strict)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema

from runtime_core.exact_json import shown
from runtime_core.strict_json import kind_of

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

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
    """A part of a document: strictly typed, frozen, without unknown fields (§4.0.strict)."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", protected_namespaces=())


class Misfit(ValueError):
    """A document that does not fit its model: the steps to the place of the first fault, and the reason.

    `faults` are all of them, in the order of the model, each as steps and reason; the message counts the others.
    """

    def __init__(self, faults: Sequence[tuple[Sequence[str | int], str]]) -> None:
        self.faults = tuple(faults)
        self.at, first = self.faults[0]
        self.reason = f"{first} (and {len(self.faults) - 1} more)" if len(self.faults) > 1 else first
        super().__init__(self.reason)


def fit(model: type[_Model], document: Any) -> _Model:
    """Return the document as its model; raises Misfit."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise Misfit([(_place(document, one), _reason(one)) for one in faults]) from None


def found(value: object) -> str:
    """Return what stands in a document, for a refusal: scalars as written and cut, the others by their kind."""
    if isinstance(value, str):
        return shown(value)
    return json.dumps(value) if isinstance(value, int | float) else kind_of(value)


def whole(pattern: re.Pattern[str]) -> WithJsonSchema:
    """Say in JSON Schema what a validator of text checks: it matches the pattern from end to end."""
    return WithJsonSchema({"type": "string", "pattern": f"^(?:{pattern.pattern})$"})


def _is_version(value: Any) -> Any:
    """Compare by type and value: a strict Literal[1] takes true and 1.0 for 1 (§4.1.version)."""
    if type(value) is int and value == 1:
        return value
    raise ValueError(f"must be the integer 1, not {found(value)}")


VersionOne = Annotated[Literal[1], BeforeValidator(_is_version)]
"""The integer 1, by type and value (§4.1.version)."""


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
