"""TriggerEvent: one announcement that the world changed, and its identity (§1.3, DESIGN §4)."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

from runtime_core.errors import DoorError
from runtime_core.exact_json import pointer, shown
from runtime_core.strict_json import kind_of, parse_object

MESSAGE_ID = re.compile(r"[!-~]{1,128}", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
"""verb_key and ref, matched whole."""
ANY_REF = "*"
PACK_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}", re.ASCII)
SUBJECT_LIMIT = 256
"""Characters of a subject: it is shown, and is the ordering and collapse key."""
BODY_LIMIT = 256 * 1024
"""Bytes of an event body (DESIGN §4)."""

_EVENT_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_DELIVERY_ID = re.compile(r"([0-9a-f]{32})\.([!-~]+)", re.ASCII)
_WHAT = "event body"
_FIELDS = frozenset({"ref", "data", "subject", "occurred_at"})
# RFC 3339 §5.6. Fractions end at attoseconds, so that nobody stores a novel in one; 60 is a leap second.
MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d{1,18})?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)


BODY_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "ref": {"type": "string", "pattern": f"^(?:{NAME.pattern})$", "description": "A declared trigger of the pack."},
        "data": {"type": "object", "description": "What the trigger's own schema in the manifest takes."},
        "subject": {"type": "string", "maxLength": SUBJECT_LIMIT, "description": "Shown; orders and collapses."},
        "occurred_at": {
            "type": "string",
            "format": "date-time",
            "pattern": f"^(?:{MOMENT.pattern})$",
            "description": "RFC 3339 with a zone; absent: when it was signed.",
        },
    },
    "required": ["ref", "data"],
    "additionalProperties": False,
}
"""JSON Schema 2020-12 of what `parse_body` takes, as far as one can say it."""


class TriggerEvent(NamedTuple):
    """An accepted body, parsed. `data` is the object as parsed; the ledger keeps the bytes it came from."""

    ref: str
    data: dict[str, Any]
    subject: str | None
    occurred_at: str
    """RFC 3339 with a zone, as written; empty when the body has none."""


def parse_body(raw: bytes) -> TriggerEvent:
    """Return the event that a body announces: `{ref, data, subject?, occurred_at?}`, closed (DESIGN §4).

    Raises DoorError with the word `too_large`, `malformed` or `unknown_field`, in this order. null is never absent.
    """
    fields = parse_object(raw, limit=BODY_LIMIT, what=_WHAT)
    ref = fields.get("ref")
    if type(ref) is not str or NAME.fullmatch(ref) is None:
        raise _malformed(fields, "ref", "must be 1 to 128 letters, digits, dots, dashes and underscores")
    data = fields.get("data")
    if type(data) is not dict:
        raise _malformed(fields, "data", "must be an object")
    subject = fields.get("subject")
    if "subject" in fields and (type(subject) is not str or len(subject) > SUBJECT_LIMIT):
        raise _malformed(fields, "subject", f"must be text of at most {SUBJECT_LIMIT} characters")
    occurred_at = fields.get("occurred_at", "")
    if "occurred_at" in fields and (type(occurred_at) is not str or not is_moment(occurred_at)):
        raise _malformed(fields, "occurred_at", "must be RFC 3339 with a zone, as 2026-06-01T12:00:00Z")
    if not fields.keys() <= _FIELDS:
        raise _unknown(fields)
    return TriggerEvent(ref, data, subject, occurred_at)


def is_moment(text: str) -> bool:
    """Tell whether the text is a moment in RFC 3339 with a zone; a leap second only where one can be."""
    if MOMENT.fullmatch(text) is None:
        return False
    try:
        date.fromisoformat(text[:10])
        return text[17:19] != "60" or _ends_a_month(text)
    except (ValueError, OverflowError):
        return False


def event_id(tenant: str, publisher: str, pack_id: str, message_id: str) -> bytes:
    """Return 16 bytes: SHA-256 over the length-prefixed key, cut. Equal keys are one event in the dedupe window."""
    a, b, c, d = tenant.encode(), publisher.encode(), pack_id.encode(), message_id.encode()
    key = b"%d:%b%d:%b%d:%b%d:%b" % (len(a), a, len(b), b, len(c), c, len(d), d)
    return hashlib.sha256(key).digest()[:16]


def delivery_id(event: bytes, route_id: str) -> str:
    """Return `<event id in hex>.<route id>`: stable over retries and replays, the sink's idempotency key."""
    return f"{event.hex()}.{route_id}"


def parse_event_id(text: str) -> bytes | None:
    """Return the 16 bytes of an event id, 32 lower-case hex digits as it is always shown; None for any other text."""
    return None if _EVENT_ID.fullmatch(text) is None else bytes.fromhex(text)


def parse_delivery_id(text: str) -> tuple[bytes, str] | None:
    """Return event and route of what `delivery_id` returned; None for any other text."""
    match = _DELIVERY_ID.fullmatch(text)
    return None if match is None else (bytes.fromhex(match[1]), match[2])


def _ends_a_month(text: str) -> bool:
    """Tell whether the minute of a `:60` is the last one of a month in UTC (RFC 3339 §5.7)."""
    last = datetime.fromisoformat(f"{text[:17]}59{text[19:]}".upper()).astimezone(UTC)
    return (last + timedelta(seconds=1)).strftime("%d %H:%M:%S") == "01 00:00:00"


def _malformed(fields: dict[str, Any], name: str, rule: str) -> DoorError:
    value = fields.get(name)
    if name not in fields:
        found = "missing"
    elif not isinstance(value, str):
        found = f"not {kind_of(value)}"
    else:
        found = f"not text of {len(value)} characters" if name == "subject" else f"not {shown(value)}"
    return DoorError("malformed", f"{_WHAT} /{name}", f"{found}; {rule}")


def _unknown(fields: dict[str, Any]) -> DoorError:
    names = sorted(fields.keys() - _FIELDS)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return DoorError("unknown_field", f"{_WHAT} {pointer(names[:1])}", f"unknown field{more}", "put it into data")
