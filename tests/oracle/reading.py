"""Strict JSON (DESIGN §4), names, moments and the small part of JSON Schema that the oracle's worlds use."""

import json
import math
import re
from datetime import datetime
from typing import Any

EVENT_LIMIT = 256 * 1024  # bytes: event body and envelope
FILE_LIMIT = 1024 * 1024  # bytes: pack file
DEPTH_LIMIT = 64
SECOND = 1_000_000  # microseconds

PACK_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MESSAGE_ID = re.compile(r"[!-~]{1,128}")
DURATION = re.compile(r"\+([0-9]+)([smhd])")
RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")


class NotStrict(ValueError):
    """The text is not the JSON that every door asks for."""


def too_large(text: str, limit: int = EVENT_LIMIT) -> bool:
    """Whether the text has more than `limit` bytes of UTF-8."""
    return len(text.encode("utf-8", "surrogatepass")) > limit


def strict_json(text: str) -> Any:
    """The value of a text under DESIGN §4 "every door is strict"; raises NotStrict."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
            parse_int=_int64,
            parse_float=_finite,
        )
    except RecursionError as error:
        raise NotStrict("nesting") from error
    except ValueError as error:
        raise NotStrict(str(error)) from error
    _walk(value, 0)
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = {}
    for key, value in pairs:
        if key in result:
            raise NotStrict("duplicate key")
        result[key] = value
    return result


def _no_constant(word: str) -> Any:
    raise NotStrict(f"{word} is no number")


def _int64(digits: str) -> int:
    if len(digits) > 20:
        raise NotStrict("integer outside 64 bit")
    number = int(digits)
    if number < -(2**63) or number >= 2**63:
        raise NotStrict("integer outside 64 bit")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise NotStrict("number overflows")
    return number


def _walk(value: Any, depth: int) -> None:
    if isinstance(value, str):
        for character in value:
            if character == "\0":
                raise NotStrict("NUL")
            if "\ud800" <= character <= "\udfff":
                raise NotStrict("lone surrogate")
    if isinstance(value, dict | list):
        if depth + 1 > DEPTH_LIMIT:
            raise NotStrict("nesting")
        if isinstance(value, dict):
            for key in value:
                _walk(key, depth + 1)
            value = list(value.values())
        for item in value:
            _walk(item, depth + 1)


def is_moment(text: Any) -> bool:
    """Whether it is an RFC 3339 text with a zone."""
    if not isinstance(text, str) or not RFC3339.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def moment(text: str, since: int) -> int:
    """Microseconds of `+2h` after `since`, or of an RFC 3339 text."""
    match = DURATION.fullmatch(text)
    if match:
        seconds = int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
        return since + seconds * SECOND
    return round(datetime.fromisoformat(text).timestamp()) * SECOND


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value fits: type, enum, maxLength, properties, required, additionalProperties: false."""
    if "type" in schema and not _is_a(value, schema["type"]):
        return False
    if "enum" in schema and not any(type(value) is type(one) and value == one for one in schema["enum"]):
        return False
    if isinstance(value, str) and "maxLength" in schema and len(value) > schema["maxLength"]:
        return False
    if isinstance(value, dict):
        return _fits_object(value, schema)
    return True


def _fits_object(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            return False
    for name, item in value.items():
        if name in properties:
            if not fits(item, properties[name]):
                return False
        elif schema.get("additionalProperties") is False:
            return False
    return True


def _is_a(value: Any, name: str) -> bool:
    if name == "object":
        return isinstance(value, dict)
    if name == "array":
        return isinstance(value, list)
    if name == "string":
        return isinstance(value, str)
    if name == "boolean":
        return isinstance(value, bool)
    if name == "null":
        return value is None
    if isinstance(value, bool):
        return False
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if name == "number":
        return isinstance(value, int | float)
    raise ValueError(f"the oracle does not know type {name}")
