from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_core.signing import freshness, parse_signed_at, sign, verify

CASES = Path(__file__).parents[1] / "cases"
SECRET = b"a secret of thirty-two bytes ....."
FIELDS = ("act_0123456789abcdef", "m-1", "1780000000", b'{"ref":"commit.created","data":{}}')
NOW = 1_780_000_000_000_000
SECOND = 1_000_000
C10 = json.loads((CASES / "C10-signatures.json").read_text())
C12 = json.loads((CASES / "C12-timestamps.json").read_text())


def test_a_signature_is_hex_hmac_sha256_over_netstrings():
    """The signature is what any shell computes over the netstrings of sense1, c, i, t and b."""
    text = b'6:sense1,20:act_0123456789abcdef,3:m-1,10:1780000000,34:{"ref":"commit.created","data":{}},'

    assert sign(SECRET, *FIELDS) == hmac.new(SECRET, text, hashlib.sha256).hexdigest()


def test_the_right_signature_passes_as_text_and_as_bytes():
    """A signature verifies as the stream carries it (bytes) and as Python made it (text)."""
    signature = sign(SECRET, *FIELDS)

    assert verify([SECRET], *FIELDS, signature)
    assert verify([SECRET], b"act_0123456789abcdef", b"m-1", b"1780000000", FIELDS[3], signature.encode())


def test_either_of_two_live_secrets_verifies():
    """During the overlap of a rotation the replaced secret verifies too; a third does not."""
    signature = sign(b"old", *FIELDS)

    assert verify([b"new", b"old"], *FIELDS, signature)
    assert not verify([b"new", b"newer"], *FIELDS, signature)
    assert not verify([], *FIELDS, signature)


@pytest.mark.parametrize("changed", [{"c": "act_1"}, {"i": "m-2"}, {"t": "1780000000.0"}, {"b": b"{}"}], ids=str)
def test_every_field_is_under_the_signature(changed: dict[str, Any]):
    """A message with one field changed is another message."""
    c, i, t, b = {**dict(zip("citb", FIELDS, strict=True)), **changed}.values()

    assert not verify([SECRET], c, i, t, b, sign(SECRET, *FIELDS))


def test_bytes_moved_over_a_field_border_are_another_message():
    """The lengths are signed: `ab` + `c` is not `a` + `bc`."""
    signature = sign(SECRET, "ab", "c", "1", b"")

    assert not verify([SECRET], "a", "bc", "1", b"", signature)


@pytest.mark.case("C10")
@pytest.mark.parametrize("value", [case["value"] for case in C10], ids=[case["note"] for case in C10])
def test_a_foreign_signature_value_fails_without_an_exception(value: str):
    """Each value of the fixture is an authentication failure as text and as bytes; the right one still passes."""
    assert not verify([SECRET], *FIELDS, value)
    assert not verify([SECRET], *FIELDS, value.encode())
    assert verify([SECRET], *FIELDS, sign(SECRET, *FIELDS))


@pytest.mark.case("C10")
@pytest.mark.parametrize(
    "spoil",
    [
        str.upper,
        lambda s: f"sha256={s}",
        lambda s: f" {s}",
        lambda s: f"{s}\n",
        lambda s: s[:-1],
        lambda s: s + "0",
        lambda s: s[:-1] + "é",
        lambda s: s[:-1] + "\udcff",
        lambda s: s + "\0",
    ],
)
def test_only_sixty_four_lower_case_digits_are_the_signature(spoil):
    """Another spelling of the right digits is not the signature."""
    assert not verify([SECRET], *FIELDS, spoil(sign(SECRET, *FIELDS)))


@pytest.mark.case("C10")
@given(st.binary(max_size=200), st.binary(max_size=200), st.text(max_size=200), st.binary(max_size=200))
def test_no_bytes_make_verification_raise(c: bytes, b: bytes, i: str, s: bytes):
    """Verification answers no, and never raises, for any bytes and any text in any field."""
    assert not verify([SECRET], c, i, c, b, s)


@pytest.mark.case("C11")
def test_an_empty_secret_verifies_nothing_and_signs_nothing():
    """A missing secret never means "do not check": not for its own signature, nor for none."""
    text = b'6:sense1,20:act_0123456789abcdef,3:m-1,10:1780000000,34:{"ref":"commit.created","data":{}},'
    under_empty = hmac.new(b"", text, hashlib.sha256).hexdigest()

    assert not verify([b""], *FIELDS, under_empty)
    assert not verify([b""], *FIELDS, "")
    assert not verify([b"", SECRET], *FIELDS, under_empty)
    with pytest.raises(ValueError, match="must not be empty"):
        sign(b"", *FIELDS)


def _written(signed_at: object) -> bytes:
    """Turn a form of the fixture into the bytes of `t` at NOW."""
    now = NOW // SECOND
    words = {"now in milliseconds": str(now * 1_000), "now+10y": str(now + 315_576_000)}
    text = str(signed_at).split(",")[0]
    if text.startswith("now") and text not in words:
        return str(now + int(text[3:])).encode()
    return words.get(text, text).encode()


@pytest.mark.case("C12")
@pytest.mark.parametrize("case", [c for c in C12["cases"] if c.get("note") != "repeat"], ids=str)
def test_a_moment_is_accepted_within_the_tolerance_only(case: dict):
    """Each form of the fixture is accepted or refused as it says, and none raises."""
    moment = parse_signed_at(_written(case["signed_at"]))
    accepted = moment is not None and freshness(moment, NOW, C12["tolerance_s"]) is None

    assert accepted == case["accept"]


@pytest.mark.case("C12")
def test_the_word_says_which_way_a_moment_lies():
    """Exactly the tolerance is within it; one microsecond more is stale or early."""
    assert freshness(NOW - 300 * SECOND, NOW, 300) is None
    assert freshness(NOW + 300 * SECOND, NOW, 300) is None
    assert freshness(NOW - 300 * SECOND - 1, NOW, 300) == "stale"
    assert freshness(NOW + 300 * SECOND + 1, NOW, 300) == "early"
    assert freshness(NOW - 501_000, NOW, 0.5) == "stale"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"0", 0),
        (b"1780000000", 1_780_000_000 * SECOND),
        (b"1780000000.5", 1_780_000_000 * SECOND + 500_000),
        (b"1780000000.000001", 1_780_000_000 * SECOND + 1),
        (b"99999999999", 99_999_999_999 * SECOND),
    ],
)
def test_decimal_seconds_are_read_exactly(raw: bytes, expected: int):
    """Seconds with up to six digits of fraction give the exact microsecond."""
    assert parse_signed_at(raw) == expected


@pytest.mark.case("C12")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" 1",
        b"1 ",
        b"1\n",
        b"-5",
        b"+5",
        b".5",
        b"1.",
        b"1.0000001",
        b"1e9",
        b"1_000",
        b"0x10",
        b"NaN",
        b"inf",
        b"1,5",
        b"1780000000000",
        "\uff11\uff17\uff18\uff10".encode(),
        "\u0663".encode(),
        b"\xff",
        b"1\x00",
        b"2026-01-01T00:00:00",
        datetime(2026, 1, 1, tzinfo=UTC).isoformat().encode(),
        b"9" * 5_000,
    ],
)
def test_every_other_form_of_a_moment_is_none(raw: bytes):
    """What is not decimal seconds is refused by its form, without an exception."""
    assert parse_signed_at(raw) is None
