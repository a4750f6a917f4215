"""TriggerEvent: one announcement that the world changed, and its identity (§1.3, DESIGN §4)."""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

MESSAGE_ID = re.compile(r"[!-~]{1,128}", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
"""verb_key and ref, matched whole."""
PACK_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}", re.ASCII)
SUBJECT_LIMIT = 256
"""Characters of a subject: it is shown, and is the ordering and collapse key."""
BODY_LIMIT = 256 * 1024
"""Bytes of an event body (DESIGN §4)."""


class TriggerEvent(NamedTuple):
    """An accepted body, parsed. `data` is the object as parsed; the ledger keeps the bytes it came from."""

    ref: str
    data: dict[str, Any]
    subject: str | None
    occurred_at: str
    """RFC 3339 with a zone, as written."""


def event_id(tenant: str, publisher: str, pack_id: str, message_id: str) -> bytes:
    """Return 16 bytes: SHA-256 over the length-prefixed key, cut. Equal keys are one event in the dedupe window."""
    key = b"".join(b"%d:%s" % (len(part), part) for part in _encoded(tenant, publisher, pack_id, message_id))
    return hashlib.sha256(key).digest()[:16]


def delivery_id(event: bytes, route_id: str) -> str:
    """Return `<event id in hex>.<route id>`: stable over retries and replays, the sink's idempotency key."""
    return f"{event.hex()}.{route_id}"


def _encoded(*parts: str) -> tuple[bytes, ...]:
    return tuple(part.encode() for part in parts)
