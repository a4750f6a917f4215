"""Announcements on their way out: what an adapter hands in, judged here by the same door as at intake.

A mistake is cheaper here than as a dead entry: it is raised at once, with its place.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from runtime_core.errors import DoorError, UsageError
from runtime_core.event import MESSAGE_ID, parse_body
from runtime_core.exact_json import DEPTH_LIMIT, pointer

if TYPE_CHECKING:
    from datetime import datetime

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_WHAT = "event body"


@dataclass(frozen=True, slots=True)
class Announcement:
    """The world changed: `data` as the trigger `ref` of the pack declares it.

    `subject` (at most 256 characters) is shown, and is the ordering and collapse key. `occurred_at` is an aware
    datetime or RFC 3339 text with a zone; now, where it is absent. The same `id` is the same event: give one where a
    repeat of the call must not be a second event.
    """

    ref: str
    data: dict[str, Any]
    subject: str | None = None
    occurred_at: datetime | str | None = None
    id: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """What became of an announcement.

    On the stream under `stream_id`; or kept in the spool (`spooled`), to be sent before the next one.
    """

    message_id: str
    event_id: str
    """32 hex digits: what `sense-worker explain` takes."""
    stream_id: str | None
    spooled: bool = False


class Prepared(NamedTuple):
    """An announcement that passed the door. Signed-at and signature are not part of it: each XADD makes them anew."""

    message_id: str
    body: bytes
    traceparent: str | None


def prepare(announcement: Announcement, now: str, place: str = "") -> Prepared:
    """Turn an announcement into bytes; `now` is its moment where it has none.

    Raises DoorError or UsageError with the place, which begins with `place`.
    """
    message_id = uuid.uuid4().hex if announcement.id is None else announcement.id
    if not isinstance(message_id, str) or not MESSAGE_ID.fullmatch(message_id):
        raise UsageError(f"{place}id", "must be 1 to 128 printable ASCII characters without a space")
    traceparent = announcement.traceparent
    if traceparent is not None and not (isinstance(traceparent, str) and _TRACEPARENT.fullmatch(traceparent)):
        raise UsageError(f"{place}traceparent", "is no W3C traceparent", "00-<32 hex>-<16 hex>-<2 hex>")
    members: dict[str, object] = {"ref": announcement.ref, "data": announcement.data}
    if announcement.subject is not None:
        members["subject"] = announcement.subject
    given = announcement.occurred_at
    members["occurred_at"] = now if given is None else given if isinstance(given, str) else written(given, place)
    try:
        body = _encoded(members)
        parse_body(body)
    except DoorError as error:
        raise DoorError(error.word, f"{place}{error.place}", error.reason, error.way_out) from None
    return Prepared(message_id, body, traceparent)


def written(moment: datetime, place: str = "") -> str:
    """Return a moment in RFC 3339, with Z for UTC. Raises UsageError where it has no zone."""
    if moment.utcoffset() is None:
        raise UsageError(f"{place}occurred_at", "the datetime has no zone", "use datetime.now(UTC)")
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _encoded(members: dict[str, object]) -> bytes:
    try:
        return _JSON.encode(members).encode()
    except (TypeError, ValueError, RecursionError):
        _blame(members, [])
        raise DoorError("malformed", _WHAT, "is not a JSON value") from None


def _blame(value: object, steps: list[str | int]) -> None:
    """Raise for the first part of a value that is no JSON."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            _refuse(steps, "a lone surrogate in text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            _refuse(steps, f"{value} is no JSON number")
    elif isinstance(value, dict | list | tuple):
        if len(steps) >= DEPTH_LIMIT:
            _refuse(steps, f"nested more than {DEPTH_LIMIT} deep")
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict) and not isinstance(step, str):
                _refuse(steps, f"the name {step!r} is no text")
            _blame(step, steps)
            _blame(inner, [*steps, step])
    elif value is not None and not isinstance(value, bool | int):
        _refuse(steps, f"a {type(value).__name__} is no JSON value")


def _refuse(steps: list[str | int], reason: str) -> NoReturn:
    raise DoorError("malformed", f"{_WHAT} {pointer(steps)}", reason)
