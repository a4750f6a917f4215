"""Dead entries: what was refused is kept as it came, so that an operator can look at it (C05, C06, C43)."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from runtime_core.errors import printable
from sense_worker.storage.records import DeadRecord

if TYPE_CHECKING:
    from sense_worker.intake.door import Turned

RAW_LIMIT = 256 * 1024
"""Bytes of an entry that are kept (DESIGN §7); length and digest are those of the whole."""
DETAIL_LIMIT = 500


def dead_record(one: Turned, now: int) -> DeadRecord:
    """Return the row of a refused entry. Its raw form is the netstrings of its field names and values, in base64."""
    fields = one.entry.fields or {}
    raw = b"".join(b"%d:%b," % (len(part), part) for pair in fields.items() for part in pair)
    return DeadRecord(
        stream=one.entry.stream,
        stream_id=one.entry.id,
        tenant=one.entry.tenant,
        word=one.word,
        detail=printable(one.detail)[:DETAIL_LIMIT],
        raw=base64.b64encode(raw[:RAW_LIMIT]).decode(),
        raw_length=len(raw),
        raw_digest=hashlib.sha256(raw).hexdigest(),
        activation_id=None if one.activation is None else one.activation.id,
        event_id=one.event_id,
        at=now,
    )
