"""Options of a kind: read as strictly as at every door, and shown without what is secret in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError

from runtime_core.errors import UsageError

if TYPE_CHECKING:
    from sinks.protocol import Sink

MASK = "***"
_SECRET = (SecretStr, SecretBytes)


def validated(sink: type[Sink], options: Mapping[str, object]) -> BaseModel:
    """Return the options, read by the kind's model as the JSON they are kept as; raises UsageError without a value."""
    names = ", ".join(sink.Options.model_fields) or "none"
    way_out = f"options of {sink.kind}: {names}; see docs/sinks.md"
    try:
        text = json.dumps(dict(options), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise UsageError("options", "hold a value that is not JSON", way_out) from None
    try:
        return sink.Options.model_validate_json(text, strict=True)
    except ValidationError as error:
        # Not `str(error)`, and no cause: both show the values.
        first, *others = error.errors(include_url=False, include_context=False, include_input=False)
        place = ".".join(("options", *(str(part) for part in first["loc"])))
        reason = first["msg"].removeprefix("Value error, ")
        more = f", and {len(others)} more" if others else ""
        raise UsageError(place, f"{reason[:1].lower()}{reason[1:]}{more}", way_out) from None


def secret_names(model: type[BaseModel]) -> frozenset[str]:
    """Return the options that are secrets as a whole."""
    return frozenset(name for name, field in model.model_fields.items() if holds(field.annotation, *_SECRET))


def holds(annotation: Any, *kinds: type) -> bool:
    """Return whether one of the kinds, or a subclass, is in a type: `list[SecretStr] | None` holds SecretStr."""
    if isinstance(annotation, type) and issubclass(annotation, kinds):
        return True
    return any(holds(part, *kinds) for part in get_args(annotation))


def shown(options: BaseModel) -> dict[str, Any]:
    """Return the options as JSON values, defaults among them, every secret masked as its type masks itself."""
    return {name: _shown(value) for name, value in options.model_dump(mode="python").items()}


def _shown(value: Any) -> Any:
    match value:
        case SecretStr() | SecretBytes():
            text = str(value)
            return MASK if set(text) <= {"*"} else text
        case Mapping():
            return {str(name): _shown(one) for name, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_shown(one) for one in value]
        case bool() | int() | float() | None:
            return value
    return str(value)
