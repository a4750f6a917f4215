"""The strict parser: what it refuses, where it says so, and that its fast path is no laxer than its exact walk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime_core.errors import DoorError
from runtime_core.exact_json import pointer
from runtime_core.strict_json import kind_of, parse, parse_exactly, parse_object

CASES = Path(__file__).parents[1] / "cases"
LIMIT = 1 << 20

quietly = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])


def refusal(raw: bytes, limit: int = LIMIT) -> DoorError:
    """Return how both ways refuse the document; they must do it alike."""
    with pytest.raises(DoorError) as fast:
        parse(raw, limit=limit, what="doc")
    with pytest.raises(DoorError) as exact:
        parse_exactly(raw, limit=limit, what="doc")
    assert (fast.value.word, str(fast.value)) == (exact.value.word, str(exact.value))
    return fast.value


def outcome(read, raw: bytes) -> str:
    """Return the value with its types, or `refused`."""
    try:
        return repr(read(raw, limit=LIMIT, what="doc"))
    except DoorError as error:
        return f"refused: {error.word}"


TOKENS = [
    *('{"a":', '{"a":1,', '"a":', "{", "}", "[", "]", ",", ":", " ", "\n", "\t", "\r", "\v", "\x00", "\ufeff", "x"),
    *("0", "-0", "-", "1", "01", "1.", ".5", "1.5", "1e5", "1E+05", "1e-5", "1e999", "-1e999", "1e-999", "0e999"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "7" * 400),
    *("1.7976931348623157e308", "1.7976931348623159e308", "9" * 308 + ".0", "9" * 310 + ".0", "NaN", "-Infinity"),
    *("true", "false", "null", "nul", '""', '"a"', '"\\u0061"', '"b"', '"', "\\", '"\\"', '"\\\\"', '"\\x"', '"\\u12"'),
    *('"\\u0000"', '"\\\\u0000"', '"\\\\\\u0000"', '"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\ud83d\\u0041"'),
    *('"\x1f"', '"\x7f"', '"\u2028é😀"', "[" * 62 + "1" + "]" * 62, "[" * 70, "]" * 70, '{"d":' * 63 + "1" + "}" * 63),
]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 65), 1 << 65)
    | st.floats()
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.sampled_from(["\\u0000", "\x00", "\\", '"', "\ud800"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


class TestTheTwoWaysAreOne:
    @quietly
    @given(st.lists(st.sampled_from(TOKENS), max_size=9))
    def test_a_soup_of_tokens(self, tokens: list[str]) -> None:
        """Fast path and exact walk accept the same token sequences, with the same values."""
        raw = "".join(tokens).encode()
        assert outcome(parse, raw) == outcome(parse_exactly, raw)

    @quietly
    @given(st.sampled_from(TOKENS), st.sampled_from(["[%s]", '{"a":%s}', '{"a":{"b":[0,%s,{}]},"c":""}', '{"k%s":1}']))
    def test_a_token_where_a_value_stands(self, token: str, around: str) -> None:
        """Fast path and exact walk agree about each single token in place."""
        raw = (around % token).encode()
        assert outcome(parse, raw) == outcome(parse_exactly, raw)

    @quietly
    @given(json_values, st.booleans(), st.sampled_from([None, 1]))
    def test_generated_documents(self, value: object, ascii_only: bool, indent: int | None) -> None:
        """Fast path and exact walk agree about documents as other programs write them."""
        text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
        raw = text.encode("utf-8", "surrogatepass")
        assert outcome(parse, raw) == outcome(parse_exactly, raw)

    @quietly
    @given(json_values, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255), st.booleans()), max_size=3))
    def test_broken_bytes(self, value: object, changes: list[tuple[int, int, bool]]) -> None:
        """Fast path and exact walk agree about documents with bytes changed or put in."""
        raw = bytearray(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        for place, byte, insert in changes:
            at = place % len(raw)
            raw[at : at + (not insert)] = bytes([byte])
        assert outcome(parse, bytes(raw)) == outcome(parse_exactly, bytes(raw))

    @quietly
    @given(st.binary(max_size=12))
    def test_any_bytes(self, raw: bytes) -> None:
        """Fast path and exact walk agree about bytes of any kind, and neither raises anything but DoorError."""
        assert outcome(parse, raw) == outcome(parse_exactly, raw)

    @quietly
    @given(json_values)
    def test_what_is_accepted_is_what_was_written(self, value: object) -> None:
        """A document that is accepted means what the standard library reads in it."""
        raw = json.dumps(value).encode()
        if not outcome(parse, raw).startswith("refused"):
            assert repr(parse(raw, limit=LIMIT, what="doc")) == repr(json.loads(raw))


class TestRefusals:
    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            (b'{"a":{"b":1,"b":2}}', 'doc /a/b (line 1, column 13): the key "b" stands twice'),
            (b'{"a":1,\n "\\u0061":2}', 'doc /a (line 2, column 2): the key "a" stands twice'),
            (b'[{"x/y~":NaN}]', "doc /0/x~1y~0 (line 1, column 10): 'NaN' is no JSON number"),
            (b"[0,-Infinity]", "doc /1 (line 1, column 4): '-Infinity' is no JSON number"),
            (b'{"n":-1e999}', "doc /n (line 1, column 6): a number that overflows 64 bit floating point: -1e999"),
            (b"[9223372036854775808]", "doc /0 (line 1, column 2): an integer of 19 digits: outside signed 64 bit"),
            (b'["a\\ud800b"]', "doc /0 (line 1, column 4): lone surrogate \\ud800"),
            (b'["a\\udfffb"]', "doc /0 (line 1, column 4): lone surrogate \\udfff"),
            (b'{"k":"a\\u0000b"}', "doc /k (line 1, column 8): NUL (\\u0000) in text"),
            (b'{"a\\u0000b":1}', "doc (line 1, column 4): NUL (\\u0000) in text"),
            (b'["a\x00b"]', "doc /0 (line 1, column 4): NUL in text"),
            (b'["a\x1fb"]', "doc /0 (line 1, column 4): the control character U+001F in text"),
            (b'["\\x41"]', 'doc /0 (line 1, column 3): no JSON escape: "\\\\x41\\"]"'),
            (b'["ab', "doc /0 (line 1, column 2): text without its closing quote"),
            (b'{"a" 1}', 'doc /a (line 1, column 5): ":" is expected'),
            (b'{"a":1 "b":2}', 'doc (line 1, column 8): "," or "}" is expected'),
            (b"{1:2}", "doc (line 1, column 2): a key in double quotes is expected"),
            (b"[1,]", 'doc /1 (line 1, column 4): a value is expected, not "]"'),
            (b"[1, 2", "doc /2 (line 1, column 6): the document ends too early"),
            (b"", "doc (line 1, column 1): the document ends too early"),
            (b"{} {}", "doc (line 1, column 4): text follows the end of the document"),
            (b"[01]", 'doc /1 (line 1, column 3): "," or "]" is expected'),
            (b"[nope]", 'doc /0 (line 1, column 2): "n" is not expected'),
            (b'["\xff"]', "doc (byte 2): encoding error: not UTF-8, invalid start byte 0xff (save it as UTF-8)"),
            (
                b'["\xed\xa0\x80"]',
                "doc (byte 2): encoding error: not UTF-8, invalid continuation byte 0xed (save it as UTF-8)",
            ),
            (b"\xef\xbb\xbf{}", "doc: begins with a UTF-8 byte-order mark (EF BB BF) (save it without the mark)"),
            ("{}".encode("utf-16"), "doc: encoding error: UTF-16, by its byte-order mark (save it as UTF-8)"),
            ("{}".encode("utf-32"), "doc: encoding error: UTF-32, by its byte-order mark (save it as UTF-8)"),
            (
                "{}".encode("utf-16-le"),
                "doc: encoding error: UTF-16 or UTF-32, by the NUL among its first bytes (save it as UTF-8)",
            ),
        ],
    )
    def test_place_and_reason(self, raw: bytes, message: str) -> None:
        """A refusal names the place and the reason, in one line, the same on both ways."""
        error = refusal(raw)
        assert (error.word, str(error)) == ("malformed", message)

    def test_size(self) -> None:
        """A document at the limit is read; one byte more is too large, and both numbers are named."""
        assert parse(b'"' + b"x" * 98 + b'"', limit=100, what="doc") == "x" * 98
        error = refusal(b'"' + b"x" * 99 + b'"', limit=100)
        assert (error.word, str(error)) == ("too_large", "doc: 101 bytes, the limit is 100")

    @pytest.mark.parametrize(("opener", "closer"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
    def test_depth(self, opener: bytes, closer: bytes) -> None:
        """64 levels are read, 65 refused with the limit, and 20,000 fare as 65 do."""
        levels = opener.count(b"[") + opener.count(b"{")
        inside = opener * (64 // levels) + b"1" + closer * (64 // levels)
        assert parse(inside, limit=LIMIT, what="doc") == parse_exactly(inside, limit=LIMIT, what="doc")
        for times in (65, 100, 250, 20_000):
            assert "nested deeper than 64 levels" in str(refusal(opener * times + b"1" + closer * times))
            assert "nested deeper than 64 levels" in str(refusal(opener * times))

    @pytest.mark.parametrize("digits", [20, 400, 4299, 4301, 5000, 200_000])
    def test_long_integers(self, digits: int) -> None:
        """An integer outside 64 bit is refused whatever its length, also past Python's own limit of 4,300 digits."""
        message = f"doc /v (line 1, column 6): an integer of {digits} digits: outside signed 64 bit"
        assert str(refusal(b'{"v":-' + b"7" * digits + b"}")) == message

    def test_a_long_place_is_cut(self) -> None:
        """A place of many long keys stays readable."""
        raw = b"".join(b'{"%s":' % (b"k" * 50) for _ in range(10)) + b"NaN" + b"}" * 10
        assert refusal(raw).place.startswith("doc /" + "/".join(["k" * 50] * 10)[:199] + "… (line 1")

    def test_written_out_escapes_stay_text(self) -> None:
        """A backslash followed by u0000, written out, is text like any other."""
        raw = rb'["\\u0000", "\\\\u0000", "a\\\\\\u0000", "\\\u0061"]'
        written = ["\\u0000", "\\\\u0000", "a\\\\\\u0000", "\\a"]
        assert parse(raw, limit=LIMIT, what="doc") == written
        assert parse_exactly(raw, limit=LIMIT, what="doc") == written

    def test_not_an_object(self) -> None:
        """Where an object is due, any other value is refused by its kind."""
        found = []
        for raw in (b"[]", b'"x"', b"1", b"1.5", b"null", b"true"):
            with pytest.raises(DoorError) as caught:
                parse_object(raw, limit=LIMIT, what="doc")
            found.append(str(caught.value))
        kinds = ["a list", "text", "a number", "a number", "null", "true"]
        assert found == [f"doc: must be an object, not {kind}" for kind in kinds]
        assert kind_of({}) == "an object"


def test_a_pointer_escapes_as_rfc_6901() -> None:
    """A place is a JSON pointer."""
    assert pointer(["a/b", 0, "~"]) == "/a~1b/0/~0"


CASE_MESSAGES = {
    "C06-invalid-utf8.bin": "encoding error: not UTF-8",
    "C07-infinity-event.json": "doc /payload/high (line 1, column 109): 'Infinity' is no JSON number",
    "C07-nan-event.json": "doc /payload/value (line 1, column 110): 'NaN' is no JSON number",
    "C08-deep-array.json": "nested deeper than 64 levels",
    "C08-deep-object.json": "nested deeper than 64 levels",
    "C08-long-int.json": "an integer of 5000 digits: outside signed 64 bit",
    "C09-nul-key.json": "NUL (\\u0000) in text",
    "C09-nul-value.json": "doc /payload/note (line 1, column 111): NUL (\\u0000) in text",
}


@pytest.mark.case("C06")
@pytest.mark.case("C07")
@pytest.mark.case("C08")
@pytest.mark.case("C09")
@pytest.mark.parametrize("name", CASE_MESSAGES)
def test_handed_files(name: str) -> None:
    """The handed documents are refused with place and reason, on both ways."""
    assert CASE_MESSAGES[name] in str(refusal((CASES / name).read_bytes()))


@pytest.mark.case("C09")
def test_the_handed_written_out_escape() -> None:
    """The handed text of a backslash and u0000 is kept as written."""
    value = parse((CASES / "C09-literal-escape.json").read_bytes(), limit=LIMIT, what="doc")
    assert isinstance(value, dict)
    assert value["payload"]["note"] == "a\\u0000b"
