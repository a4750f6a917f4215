"""The fields of an entry: the vectors of docs/wire.md, the order of refusals, and bytes that are no text."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_core.errors import INTAKE_WORDS, DoorError
from runtime_core.event import BODY_LIMIT, event_id, parse_body
from runtime_core.signing import parse_signed_at, sign, verify
from sense_worker.wire import KNOWN, build_entry, check_entry, parse_entry, stream_of

ROOT = Path(__file__).parents[2]
VECTORS: dict[str, Any] = json.loads((ROOT / "tests/vectors/wire.json").read_bytes())
PLAIN = VECTORS["signatures"][0]
PAGE = (ROOT / "docs/wire.md").read_text()


def named(vectors: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("vector", vectors, ids=[vector.get("name", vector.get("i")) for vector in vectors])


def fields_of(vector: dict[str, Any]) -> dict[bytes, bytes]:
    built = build_entry(vector["secret"].encode(), vector["c"], vector["i"], vector["t"], vector["b"].encode())
    return {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in built.items()}


def refusal(fields: dict[bytes, bytes], secret: bytes) -> str | None:
    """Judge an entry in the order of the table, as far as the wire goes."""
    try:
        entry = parse_entry(fields)
        if not verify([secret], entry.c, entry.i, entry.t, entry.b, entry.s):
            return "bad_signature"
        check_entry(entry)
    except DoorError as error:
        return error.word
    return None


@named(VECTORS["signatures"])
def test_a_signature_vector_is_reproduced(vector):
    """Each vector's fields give its signature, and the signature is over its netstrings."""
    built = build_entry(vector["secret"].encode(), vector["c"], vector["i"], vector["t"], vector["b"].encode())
    parts = ["sense1", vector["c"], vector["i"], vector["t"], vector["b"]]
    assert vector["signed"] == "".join(f"{len(part.encode())}:{part}," for part in parts)
    assert built == {name: vector[name] for name in "cits"} | {"v": b"1", "b": vector["b"].encode()}


@named(VECTORS["signatures"])
def test_a_vector_is_a_good_entry(vector):
    """Each vector passes every door: the wire, the signature, the moment and the body."""
    entry = parse_entry(fields_of(vector))
    check_entry(entry)
    assert verify([vector["secret"].encode()], entry.c, entry.i, entry.t, entry.b, entry.s)
    assert (entry.activation_id, entry.message_id) == (vector["c"], vector["i"])
    assert parse_signed_at(entry.t) is not None
    assert parse_body(entry.b).ref == "commit.created"


@named(VECTORS["event_ids"])
def test_an_event_id_vector_is_reproduced(vector):
    """The id of an event is the documented digest of its key."""
    found = event_id(vector["tenant"], vector["principal"], vector["pack_id"], vector["i"])
    assert found.hex() == vector["event_id"]


@named(VECTORS["refused"])
def test_a_vector_to_refuse_meets_its_word(vector):
    """Each refused vector ends with the documented word, which is one of the table."""
    fields = {name.encode(): value.encode() for name, value in vector["fields"].items()}
    if "pad_body_to" in vector:
        fields[b"b"] = fields[b"b"].ljust(vector["pad_body_to"])
    assert refusal(fields, PLAIN["secret"].encode()) == vector["word"]
    assert vector["word"] in INTAKE_WORDS


def test_the_page_shows_the_vectors():
    """docs/wire.md holds the vectors as they are in the file."""
    blocks = [json.loads(block) for block in re.findall(r"```json\n(\[.*?\n\])\n```", PAGE, re.DOTALL)]
    assert VECTORS["signatures"] in blocks
    for vector in VECTORS["event_ids"]:
        cells = (vector[name] for name in ("tenant", "principal", "pack_id", "i", "event_id"))
        assert f"| {' | '.join(f'`{cell}`' for cell in cells)} |" in PAGE
    for vector in VECTORS["refused"]:
        assert f"| {vector['name']} | `{vector['word']}` |" in PAGE


def test_the_page_names_every_intake_word_in_order():
    """The words of the page are those of the table of refusals, in its order."""
    table = PAGE.split("## What is refused")[1].split("## Test vectors")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    assert tuple(re.findall(r"`(\w+)`", "".join(rows))) == INTAKE_WORDS


def test_the_order_of_the_fields_is_that_of_the_page():
    """An entry is written in the order v, c, i, t, s, b, tp."""
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    built = build_entry(b"secret", "act_1", "e-1", "1780315200", b"{}", traceparent)
    assert list(built) == ["v", "c", "i", "t", "s", "b", "tp"]
    assert built["tp"] == traceparent


def test_a_body_at_the_limit_is_read():
    """262144 bytes are a body, and one more is too large."""
    fields = fields_of(PLAIN)
    fields[b"b"] = b"x" * BODY_LIMIT
    assert len(parse_entry(fields).b) == BODY_LIMIT
    fields[b"b"] += b"x"
    assert refusal(fields, b"") == "too_large"


def test_what_comes_after_authentication_waits_for_it():
    """An entry with a wrong version, a further field and a bad signature is told of its signature only."""
    fields = fields_of(PLAIN) | {b"v": b"2", b"tenant": b"t-blue", b"s": b"0" * 64}
    entry = parse_entry(fields)
    assert entry.extra == (b"tenant",)
    assert refusal(fields, PLAIN["secret"].encode()) == "bad_signature"


@pytest.mark.case("C13")
@pytest.mark.parametrize("name", [b"tenant", b"principal", b"X-Tenant", b"project", b"B"])
def test_a_field_that_names_a_tenant_or_principal_is_refused(name):
    """A signed entry with a further field is refused: nothing beside the credential says who somebody is."""
    assert refusal(fields_of(PLAIN) | {name: b"t-blue"}, PLAIN["secret"].encode()) == "unknown_field"


@pytest.mark.case("C06")
def test_bytes_that_are_no_text_stay_bytes():
    """An entry with a value, and a name, that is not UTF-8 is parsed; what names it in the refusal is escaped."""
    raw = (ROOT / "tests/cases/C06-invalid-utf8.bin").read_bytes()
    entry = parse_entry(fields_of(PLAIN) | {b"b": raw, b"c": raw, b"i": raw, raw: b"x"})
    assert (entry.b, entry.activation_id, entry.message_id) == (raw, "", "")
    with pytest.raises(DoorError) as caught:
        check_entry(entry._replace(i=b"e-1"))
    assert caught.value.word == "unknown_field"
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


@pytest.mark.case("C06")
@given(st.dictionaries(st.sampled_from(sorted(KNOWN)) | st.binary(max_size=9), st.binary()))
def test_no_bytes_raise_anything_but_a_door_error(fields):
    """Whatever stands in an entry, it is refused by a word or authenticated, and it was not signed."""
    assert refusal(fields, b"secret") in {"no_body", "bad_signature"}
    with suppress(DoorError):
        entry = parse_entry(fields)
        assert entry.activation_id.isascii()
        check_entry(entry)


@pytest.mark.case("C10")
def test_any_signature_bytes_are_a_bad_signature():
    """A signature field of any bytes is an authentication failure, never an exception."""
    for signature in (b"", b"\xff" * 64, b"a" * 10_000, "\uff10".encode() * 64, b"sha256="):
        assert refusal(fields_of(PLAIN) | {b"s": signature}, PLAIN["secret"].encode()) == "bad_signature"


@pytest.mark.case("C11")
def test_no_entry_is_signed_with_an_empty_secret():
    """Building an entry without a secret raises, and one signed with an empty key verifies under nothing."""
    with pytest.raises(ValueError, match="empty"):
        build_entry(b"", "act_1", "e-1", "1780315200", b"{}")
    assert not verify([b""], b"act_1", b"e-1", b"1780315200", b"{}", sign(b"x", "act_1", "e-1", "1780315200", b"{}"))


def test_each_tenant_has_its_own_stream():
    """The key of a stream holds the tenant."""
    assert stream_of("t-red") == "sense:t-red:events"
