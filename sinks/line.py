"""One delivery as one line of text: JSON for a file, words for a console. Both are ASCII without controls (C62)."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jiter

if TYPE_CHECKING:
    from sinks.protocol import Delivery

CONSOLE_DATA_LIMIT = 2000
"""Characters of `data` that a console shows; a file gets all of it."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC; without a zone its text ends where the fraction follows
# With ensure_ascii every character outside ` ` to `~` is escaped, DEL too; NaN and Infinity raise ValueError.
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def told(delivery: Delivery, *without: str) -> dict[str, str | None]:
    """Return the fields of a delivery as every sink tells them, in this order, `without` some."""
    fields = {
        "id": delivery.id,
        "event_id": delivery.event_id,
        "route_id": delivery.route_id,
        "tenant": delivery.tenant,
        "principal": delivery.principal,
        "publisher": delivery.publisher,
        "project": delivery.project,
        "pack_id": delivery.pack_id,
        "ref": delivery.ref,
        "land": delivery.land,
        "subject": delivery.subject,
        "occurred_at": delivery.occurred_at,
        "accepted_at": rfc3339(delivery.accepted_at),
    }
    for name in without:
        del fields[name]
    return fields


def json_line(delivery: Delivery) -> bytes:
    """Return the delivery as one JSON object and a newline; `data` is the parsed JSON of the body.

    Raises ValueError for a body that is no JSON object with an object `data`, or holds a number JSON has no name for.
    """
    text = _encode({**told(delivery, "route_id"), "attempt": delivery.attempt, "data": _data(delivery.body)})
    return text.encode("ascii") + b"\n"


def console_line(sink: str, delivery: Delivery) -> str:
    """Return the delivery in words, without a newline; texts of strangers stand as JSON, so they cannot pose as ours.

    Raises ValueError like `json_line`.
    """
    data = data_json(delivery.body)
    if len(data) > CONSOLE_DATA_LIMIT:
        data = f"{data[:CONSOLE_DATA_LIMIT]}... ({len(data)} characters)"
    subject = "" if delivery.subject is None else f" {_encode(delivery.subject)}"
    whose = _word(f"{delivery.tenant}/{delivery.principal}")
    what = f"{_word(delivery.pack_id)} {_word(delivery.ref)}"
    return f"sink {_word(sink)}: {what} for {whose}{subject} {data} [{_word(delivery.id)}]"


def data_json(body: bytes) -> str:
    """Return `data` of a body as compact JSON; raises ValueError like `json_line`."""
    return _encode(_data(body))


def readable_data(body: bytes) -> str:
    """Return `data` of a body as compact JSON for people, letters as they are. Raises ValueError like `json_line`."""
    return json.dumps(_data(body), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def rfc3339(micros: int) -> str:
    """Return a moment as RFC 3339 in UTC with six decimals, so that texts sort like moments."""
    seconds, rest = divmod(micros, 1_000_000)
    return f"{_second(seconds)}.{rest:06d}Z"


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    # Kept, because a batch falls into few seconds: 0.5 µs a line where the calendar takes 5 µs.
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def _data(body: bytes) -> dict[str, Any]:
    parsed = jiter.from_json(body)
    data = parsed.get("data") if isinstance(parsed, dict) else None
    if not isinstance(data, dict):
        raise ValueError("the body is no JSON object with an object `data`")  # noqa: TRY004 - one kind for the caller
    return data


def _word(text: str) -> str:
    """Return the text as it is where it is plain, else as JSON: with quotes and escapes."""
    return text if text.isascii() and text.isprintable() and " " not in text else _encode(text)
