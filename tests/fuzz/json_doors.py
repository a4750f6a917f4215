"""The JSON parser against its exact walk and the standard library; the body of an event against a naive reading."""

from __future__ import annotations

import calendar
import json
import re
from typing import TYPE_CHECKING, Any

from runtime_core.errors import DoorError
from runtime_core.event import BODY_LIMIT, TriggerEvent, parse_body
from runtime_core.strict_json import parse, parse_exactly
from tests.fuzz.door import Door, corpus, one_line
from tests.fuzz.mutation import TOKENS, chance, json_bytes, json_value, with_bytes, written

if TYPE_CHECKING:
    import random

LIMIT = 1 << 20
BODIES = (
    '{"ref":"new_item","data":{"n":1}}',
    '{"ref":"commit.created","data":{"a":[1,2.5,null,true,{"b":"c"}]},"subject":"s","occurred_at":"2026-06-01T12:00:00Z"}',
    '{"data":{},"occurred_at":"2016-12-31t23:59:60.123456-00:30","ref":"A"}',
)
WORDS = ("ref", "data", "subject", "occurred_at", "Ref", "tenant", "principal", "id", "")
MOMENTS = (
    *("2026-06-01T12:00:00Z", "2024-02-29T00:00:00+23:59", "2023-02-29T00:00:00Z", "0000-01-01T00:00:00Z"),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:60Z", "9999-12-31T23:59:59-23:59", "2016-12-31T23:59:60Z"),
    *("2017-01-01T08:59:60+09:00", "2016-12-31T22:59:60Z", "2026-06-01T24:00:00Z", "2026-06-01 12:00:00Z"),
    *("2026-06-01T12:00:00", "2026-6-1T12:00:00Z", "2026-06-01T12:00:00.Z", "2026-06-01T12:00:00.1234567890123456789Z"),
    *("2026-06-01T12:00:00+24:00", "２026-06-01T12:00:00Z", "2026-06-01T12:00:00Z\n", "20260601T120000Z"),
)
PARTS = (
    *MOMENTS,
    "new_item",
    "x" * 128,
    "x" * 129,
    "-x",
    "a b",
    "é",
    "ü" * 256,
    "ü" * 257,
    {"n": 1},
    {"confirm": True},
)
_SHAPE = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,18})?"
    r"([Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; fails for a key that stands twice."""
    found = dict(pairs)
    assert len(found) == len(pairs), "a key stands twice"
    return found


def check_value(value: Any, levels: int = 64) -> None:
    """Fail for a value that no door lets in (DESIGN §4)."""
    if isinstance(value, str):
        assert "\0" not in value
        value.encode()  # no lone surrogate
    elif isinstance(value, dict | list):
        assert levels, "nested too deep"
        if isinstance(value, dict):
            for key in value:
                check_value(key)
        for inner in value.values() if isinstance(value, dict) else value:
            check_value(inner, levels - 1)
    elif isinstance(value, float):
        assert value - value == 0, "no number"
    elif value is not None:
        assert type(value) in {bool, int}
        assert -(2**63) <= value < 2**63


def exact(raw: bytes, limit: int = LIMIT) -> Any:
    """Return what the slow walk reads; AssertionError where it refuses what a door has accepted."""
    try:
        return parse_exactly(raw, limit=limit, what="d")
    except DoorError as error:
        raise AssertionError(f"accepted, and the exact walk refuses it: {error}") from None


def _both(raw: bytes) -> str:
    try:
        walked: Any = parse_exactly(raw, limit=LIMIT, what="d")
        refused = None
    except DoorError as error:
        walked, refused = None, error
    try:
        value = parse(raw, limit=LIMIT, what="d")
    except DoorError as error:
        assert refused is not None, f"refused, and the exact walk accepts: {error}"
        assert (error.word, one_line(error)) == (refused.word, str(refused))
        return error.word
    assert refused is None, f"accepted, and the exact walk refuses: {refused}"
    assert repr(value) == repr(walked)
    check_value(value)
    assert repr(json.loads(raw, object_pairs_hook=once)) == repr(value)
    return "accepted"


def _any_json(rng: random.Random) -> bytes:
    kind = rng.randrange(12)
    if kind == 0:
        return b"".join(rng.choices(TOKENS, k=rng.randrange(10)))
    if kind == 1:
        return rng.randbytes(rng.randrange(12))
    if kind == 2 and chance(rng, 20):
        return rng.choice((b'"%b"', b"[%b1]", b'{"a":"%b"}')) % (
            rng.choice((b"x", b" ", b"\\n")) * rng.randrange(20_000)
        )
    raw = written(rng, json_value(rng, 6))
    return with_bytes(rng, raw) if kind <= 5 else raw


def naive_moment(text: str) -> bool:
    """Read RFC 3339 by hand: a real day, an hour below 24, a leap second only at the end of a month in UTC."""
    match = _SHAPE.fullmatch(text)
    if match is None or not text.isascii():
        return False
    year, month, day, hour, minute, second = (int(match[at]) for at in range(1, 7))
    off_hour, off_minute = int(match[10] or 0), int(match[11] or 0)
    if not (year and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
        return False
    if hour > 23 or minute > 59 or second > 60 or off_hour > 23 or off_minute > 59:
        return False
    if second < 60:
        return True
    utc = hour * 60 + minute - (off_hour * 60 + off_minute) * (-1 if match[9] == "-" else 1)
    last_minute, day_of = utc % 1440 == 1439, day + utc // 1440
    return last_minute and day_of in {0, calendar.monthrange(year, month)[1]} and not _beyond(year, month, day_of)


def _beyond(year: int, month: int, day_of: int) -> bool:
    """Tell that the second after it has no year: nobody counts there, and the door may refuse it."""
    return (year == 9999 and month == 12 and day_of == 31) or (year == 1 and month == 1 and day_of == 0)


def body_word(raw: bytes) -> str:
    """Return the word that DESIGN §4 and §7 give a body."""
    if len(raw) > BODY_LIMIT:
        return "too_large"
    try:
        value: Any = parse_exactly(raw, limit=BODY_LIMIT, what="d")
    except DoorError as error:
        return error.word
    if not isinstance(value, dict) or not isinstance(value.get("data"), dict) or not isinstance(value.get("ref"), str):
        return "malformed"
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,127}", value["ref"]):
        return "malformed"
    subject, moment = value.get("subject", ""), value.get("occurred_at", "2026-06-01T12:00:00Z")
    if not isinstance(subject, str) or len(subject) > 256 or not isinstance(moment, str) or not naive_moment(moment):
        return "malformed"
    return "unknown_field" if set(value) - {"ref", "data", "subject", "occurred_at"} else "accepted"


def make_body(rng: random.Random) -> bytes:
    """Return a body, or what is nearly one."""
    if chance(rng, 6):
        moment = rng.choice(MOMENTS)
        at = rng.randrange(len(moment))
        moment = rng.choice((moment, moment[:at] + rng.choice("0123456789:-+.Z 6") + moment[at + 1 :]))
        return json.dumps({"ref": "r", "data": {}, "occurred_at": moment}).encode()
    if chance(rng, 500):
        return b'{"ref":"r","data":{"x":"%b"}}' % (b"x" * (BODY_LIMIT - 28 + rng.randrange(-2, 3)))
    return json_bytes(rng, BODIES, WORDS, PARTS)


def _body(raw: bytes) -> str:
    try:
        event = parse_body(raw)
        word = "accepted"
    except DoorError as error:
        one_line(error)
        word = error.word
    assert word == body_word(raw)
    if word == "accepted":
        value = exact(raw)
        assert event == TriggerEvent(value["ref"], value["data"], value.get("subject"), value.get("occurred_at", ""))
    return word


DOORS = {
    "strict_json": Door("strict_json", _any_json, _both, corpus("json")),
    "body": Door("body", make_body, _body, corpus("json")),
}
