"""The body of an event at its door: closed, strictly typed, and refused by the word of the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime_core.errors import DoorError
from runtime_core.event import (
    BODY_LIMIT,
    TriggerEvent,
    delivery_id,
    event_id,
    is_moment,
    parse_body,
    parse_delivery_id,
    parse_event_id,
)

CASES = Path(__file__).parents[1] / "cases"
GOOD = {"ref": "new_item", "data": {"n": 1}}


def refusal(body: object) -> tuple[str, str]:
    """Return word and message of the refusal."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(DoorError) as caught:
        parse_body(raw)
    return caught.value.word, str(caught.value)


def test_the_whole_body() -> None:
    """All four fields are read as written."""
    body = {**GOOD, "subject": "ü" * 256, "occurred_at": "2026-06-01T12:00:00.5+02:00"}
    event = TriggerEvent("new_item", {"n": 1}, "ü" * 256, "2026-06-01T12:00:00.5+02:00")
    assert parse_body(json.dumps(body).encode()) == event


def test_the_least_body() -> None:
    """Subject and occurred_at may be absent."""
    assert parse_body(json.dumps(GOOD).encode()) == TriggerEvent("new_item", {"n": 1}, None, "")


@pytest.mark.spec("1.1.principal")
@pytest.mark.spec("1.1.invoker")
@pytest.mark.parametrize(
    "field", ["tenant", "principal", "project", "pack_id", "surface_id", "land", "confirm", "grants", "Ref", "ref "]
)
@pytest.mark.parametrize("value", ["t-blue", None, {}])
def test_unknown_fields(field: str, value: object) -> None:
    """A field that is not of the body is refused by its name, whatever it holds: nobody names a tenant here."""
    message = f"event body /{field}: unknown field (put it into data)"
    assert refusal({**GOOD, field: value}) == ("unknown_field", message)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("ref", None, "not null; must be 1 to 128 letters, digits, dots, dashes and underscores"),
        ("ref", 7, "not a number; must be"),
        ("ref", "", 'not ""; must be'),
        ("ref", "new item", 'not "new item"; must be'),
        ("ref", "new_item\n", 'not "new_item\\n"; must be'),
        ("ref", ".new", 'not ".new"; must be'),
        ("ref", "x" * 129, "must be 1 to 128"),
        ("ref", "néw", "must be 1 to 128"),
        ("data", None, "not null; must be an object"),
        ("data", [], "not a list; must be an object"),
        ("data", "{}", "must be an object"),
        ("subject", None, "not null; must be text of at most 256 characters"),
        ("subject", 5, "not a number; must be text of at most 256 characters"),
        ("subject", "s" * 257, "not text of 257 characters; must be text of at most 256 characters"),
        ("occurred_at", None, "not null; must be RFC 3339 with a zone, as 2026-06-01T12:00:00Z"),
        ("occurred_at", "", 'not ""; must be RFC 3339'),
        ("occurred_at", 1780315200, "not a number; must be RFC 3339"),
        ("occurred_at", "2026-06-01T12:00:00", 'not "2026-06-01T12:00:00"; must be RFC 3339 with a zone'),
    ],
)
def test_malformed_fields(field: str, value: object, reason: str) -> None:
    """A field of a wrong type or form is malformed, with its place, what it is and what it must be."""
    word, message = refusal({**GOOD, field: value})
    assert word == "malformed"
    assert message.startswith(f"event body /{field}: ")
    assert reason in message


@pytest.mark.parametrize("field", ["ref", "data"])
def test_required_fields(field: str) -> None:
    """Without ref or data a body is malformed."""
    word, message = refusal({name: value for name, value in GOOD.items() if name != field})
    assert (word, message.split(";")[0]) == ("malformed", f"event body /{field}: missing")


def test_the_first_word_wins() -> None:
    """Of a malformed field and an unknown one the table names the malformed one first; size comes before both."""
    assert refusal({"ref": "", "data": {}, "tenant": "t"})[0] == "malformed"
    assert refusal(b"x" * (BODY_LIMIT + 1))[0] == "too_large"


def test_many_unknown_fields_make_one_line() -> None:
    """A body with many unknown fields names one and counts the rest."""
    message = refusal({**GOOD, **{f"x{n}": n for n in range(1000)}})[1]
    assert message == "event body /x0: unknown field and 999 more (put it into data)"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("2026-06-01T12:00:00Z", True),
        ("2026-06-01t12:00:00z", True),
        ("2026-06-01T12:00:00.123456789-00:00", True),
        ("2024-02-29T23:59:59+23:59", True),
        ("2016-12-31T23:59:60Z", True),
        ("2017-01-01T01:29:60.5+01:30", True),
        ("2016-12-31T22:59:60Z", False),
        ("2016-12-30T23:59:60Z", False),
        ("9999-12-31T23:59:60Z", False),
        ("2025-02-29T00:00:00Z", False),
        ("0000-01-01T00:00:00Z", False),
        ("2026-13-01T00:00:00Z", False),
        ("2026-06-01T24:00:00Z", False),
        ("2026-06-01T12:60:00Z", False),
        ("2026-06-01T12:00:61Z", False),
        ("2026-06-01T12:00:00+24:00", False),
        ("2026-06-01T12:00:00", False),
        ("2026-06-01 12:00:00Z", False),
        ("2026-06-01T12:00Z", False),
        ("2026-06-01T12:00:00,5Z", False),
        ("2026-06-01T12:00:00.Z", False),
        (f"2026-06-01T12:00:00.{'1' * 19}Z", False),
        ("2026-06-01T12:00:00 Z", False),
        ("2026-06-01T12:00:00+0200", False),
        ("20260601T120000Z", False),
        ("2026-W23-1T12:00:00Z", False),
        ("\uff12026-06-01T12:00:00Z", False),
        ("2026-06-01T12:00:00Z\n", False),
        ("1780315200", False),
        ("now", False),
    ],
)
def test_moments(text: str, holds: bool) -> None:
    """A moment is RFC 3339 with a zone and a date of the calendar, nothing near it."""
    assert is_moment(text) == holds


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("C06-invalid-utf8.bin", "encoding error: not UTF-8", marks=pytest.mark.case("C06")),
        pytest.param("C07-nan-event.json", "'NaN' is no JSON number", marks=pytest.mark.case("C07")),
        pytest.param("C07-infinity-event.json", "'Infinity' is no JSON number", marks=pytest.mark.case("C07")),
        pytest.param("C08-deep-array.json", "nested deeper than 64 levels", marks=pytest.mark.case("C08")),
        pytest.param("C08-deep-object.json", "nested deeper than 64 levels", marks=pytest.mark.case("C08")),
        pytest.param("C08-long-int.json", "an integer of 5000 digits", marks=pytest.mark.case("C08")),
        pytest.param("C09-nul-key.json", "NUL (\\u0000) in text", marks=pytest.mark.case("C09")),
        pytest.param("C09-nul-value.json", "NUL (\\u0000) in text", marks=pytest.mark.case("C09")),
    ],
)
def test_handed_bodies(name: str, reason: str) -> None:
    """The handed bodies are malformed, with the reason and in one line."""
    word, message = refusal((CASES / name).read_bytes())
    assert word == "malformed"
    assert reason in message
    assert "\n" not in message


@pytest.mark.case("C08")
def test_a_body_of_32_mib() -> None:
    """A text of 32 MiB is too large, naming the limit."""
    word, message = refusal(b'{"ref":"a","data":{"v":"' + b"x" * (32 << 20) + b'"}}')
    assert (word, message) == ("too_large", "event body: 33554459 bytes, the limit is 262144")


@pytest.mark.case("C08")
def test_just_inside_the_limits() -> None:
    """A body just inside depth and size is accepted; one level or byte more is not."""
    frame = b'{"ref":"a","data":{"v":%s}}'
    deepest = frame % (b"[" * 62 + b"]" * 62)
    largest = frame % (b'"' + b"x" * (BODY_LIMIT - len(frame % b"") - 2) + b'"')
    assert parse_body(deepest).ref == "a"
    assert (len(largest), parse_body(largest).ref) == (BODY_LIMIT, "a")
    assert refusal(frame % (b"[" * 63 + b"]" * 63))[0] == "malformed"
    assert refusal(largest + b" ")[0] == "too_large"


@pytest.mark.case("C09")
def test_the_written_out_escape_is_kept() -> None:
    """A backslash and u0000, written out, comes back unchanged."""
    assert parse_body(rb'{"ref":"a","data":{"note":"a\\u0000b"}}').data == {"note": "a\\u0000b"}


@pytest.mark.case("C07")
@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "nan", "1e999", "-1e999", "1" + "0" * 400 + ".0"])
def test_no_number_is_without_end(word: str) -> None:
    """NaN and the infinities are malformed, as words and as numbers that overflow."""
    assert refusal(b'{"ref":"a","data":{"v":%s}}' % word.encode())[0] == "malformed"


EVENT = event_id("default", "ana", "mail", "m-1")


class TestIds:
    def test_ids_are_read_as_they_are_shown(self) -> None:
        """An event id and a delivery id give back what they were made of; neither is taken for the other."""
        made = delivery_id(EVENT, "rte_1")
        assert (parse_event_id(EVENT.hex()), parse_delivery_id(made)) == (EVENT, (EVENT, "rte_1"))
        assert (parse_event_id(made), parse_delivery_id(EVENT.hex())) == (None, None)

    @pytest.mark.parametrize(
        "odd",
        [
            "",
            EVENT.hex().upper(),
            EVENT.hex()[:30],
            EVENT.hex() + "00",
            f" {EVENT.hex()}",
            f"{EVENT.hex()[:2]} {EVENT.hex()[2:]}",
            f"{EVENT.hex()}\n",
            "٣" * 32,
            "1780000000000-0",
        ],
    )
    def test_another_spelling_is_no_id(self, odd: str) -> None:
        """What Python's own hex reader would let pass (capitals, blanks) or a stream's id names no event."""
        assert (parse_event_id(odd), parse_delivery_id(f"{odd}.rte_1")) == (None, None)

    @pytest.mark.parametrize("route", ["", " ", "rte 1", "rte_1\n", "rte_\0", "rté"])
    def test_a_route_id_is_visible_ascii(self, route: str) -> None:
        """A delivery id without a route, or with what no route is named, is none."""
        assert parse_delivery_id(f"{EVENT.hex()}.{route}") is None
