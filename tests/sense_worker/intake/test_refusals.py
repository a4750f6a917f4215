"""Entries that are refused become dead entries, kept as they came (DESIGN §7)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from pathlib import Path

import pytest

from sense_worker.intake.stream import StreamEntry
from sense_worker.storage import tables
from sense_worker.wire import stream_of
from tests.provision import Rows

CASES = Path(__file__).parents[2] / "cases"


@pytest.mark.case("C05")
@pytest.mark.case("C06")
def test_bad_entries_are_dead_at_first_sight_and_their_neighbour_is_delivered(bench):
    """No body, no JSON, an array, bytes that are no UTF-8 in value and name: each is kept raw, the good one arrives."""
    bench.granted()
    odd = (CASES / "C06-invalid-utf8.bin").read_bytes()
    bare = StreamEntry("t-red", stream_of("t-red"), f"{int(time.time() * 1000)}-0", {b"other": b"x"}, 1)

    counts = bench.record(
        bare,
        bench.entry(body=b"{not json"),
        bench.entry(body=b"[1,2,3]"),
        bench.entry(body=odd),
        bench.entry(fields={odd: b"x"}),
        bench.entry(fields={b"c": odd}),
        bench.entry(),
    )

    assert counts == {"no_body": 1, "malformed": 3, "unknown_field": 1, "unknown_credential": 1, "accepted": 1}
    assert bench.query("SELECT count(*) FROM inbox_item") == [(1,)]
    raw, length, digest = bench.query(
        "SELECT raw, raw_length, raw_digest FROM sense_dead_entry WHERE stream_id = ?", bare.id
    )[0]
    assert base64.b64decode(raw) == b"5:other,1:x,"
    assert (length, digest) == (12, hashlib.sha256(b"5:other,1:x,").hexdigest())


@pytest.mark.case("C02")
def test_an_entry_whose_body_is_gone_is_recorded_as_lost(bench):
    """An entry without fields becomes a dead entry with its id, audited, and never reaches a sink."""
    lost = StreamEntry("t-red", stream_of("t-red"), "1-1", None, 2)

    assert bench.record(lost) == {"no_body": 1}
    assert "its body is lost" in bench.dead()[0][1]
    assert bench.audited()[-1]["subject"] == "sense:t-red:events 1-1"


@pytest.mark.case("C43")
def test_a_refused_entry_that_comes_again_makes_no_second_record(bench):
    """A crash between the record and the acknowledgement leaves one dead entry."""
    bad = bench.entry(body=b"{not json")
    bench.record(bad)
    bench.record(bad)

    assert len(bench.dead()) == 1


@pytest.mark.parametrize("name", ["C07-nan-event.json", "C07-infinity-event.json"])
@pytest.mark.case("C07")
def test_words_that_are_no_numbers_never_pass(bench, name):
    """NaN and Infinity are malformed once, and no row or line carries the bare words."""
    bench.granted()

    assert bench.record(bench.entry(body=(CASES / name).read_bytes())) == {"malformed": 1}
    assert bench.query("SELECT count(*) FROM sense_event") == [(0,)]
    told = bench.settings.audit_file.read_text() + bench.dead()[0][1]
    assert re.search(r"(?<!['-])-?\b(NaN|Infinity)\b", told) is None, "quoted in a sentence they are no numbers"


@pytest.mark.case("C07")
def test_no_form_of_infinity_passes(bench):
    """-Infinity, and a number that overflows to it, are malformed too."""
    bench.granted()
    bodies = [b'{"ref":"new_item","data":{"n":%b}}' % number for number in (b"-Infinity", b"1e999", b"-1e999")]

    assert bench.record(*(bench.entry(body=body) for body in bodies)) == {"malformed": 3}


@pytest.mark.case("C09")
def test_nul_is_refused_alike_on_both_databases_and_its_spelling_comes_back(bench):
    """NUL in a value or key is malformed; backslash-u0000 written out is text and comes back unchanged."""
    bench.granted()
    spelled = json.loads((CASES / "C09-literal-escape.json").read_text())["payload"]

    counts = bench.record(
        bench.entry(data={"a": "x\0y"}),
        bench.entry(data={"x\0y": 1}),
        bench.entry(subject="x\0y"),
        bench.entry(data=spelled),
    )

    assert counts == {"malformed": 3, "accepted": 1}
    assert json.loads(bench.query("SELECT body FROM inbox_item")[0][0])["data"] == spelled


@pytest.mark.case("C12")
def test_only_fresh_moments_pass_and_none_raises(bench):
    """Each signed-at of the fixture is accepted or refused as it says, never with an exception."""
    bench.granted()
    now = time.time()
    forms = {
        "now-301": f"{now - 301:.0f}",
        "now-299": f"{now - 299:.0f}",
        "now+299": f"{now + 299:.0f}",
        "now+301": f"{now + 302:.0f}",
        "now+10y": f"{now + 315_576_000:.0f}",
        "now in milliseconds": f"{now * 1000:.0f}",
        "-5": "-5",
    }
    cases = json.loads((CASES / "C12-timestamps.json").read_text())["cases"]

    for case in cases[:-1]:
        signed_at = forms.get(str(case["signed_at"]), str(case["signed_at"]))
        counts = bench.record(bench.entry(signed_at=signed_at))
        assert ("accepted" in counts) == case["accept"], case
        assert case["accept"] or set(counts) <= {"stale", "early", "malformed", "bad_signature"}, case


@pytest.mark.case("C10")
@pytest.mark.case("C11")
def test_odd_and_empty_signatures_are_refused(bench):
    """Whatever stands in s is a failed authentication, and an empty secret signs nothing."""
    for value in ["sha256=é", "", "sha256=", "0" * 10_000, "ｆ" * 64]:
        assert bench.record(bench.entry(fields={b"s": value.encode()})) == {"bad_signature": 1}
    assert bench.record(bench.entry(fields={b"s": b"\xff" * 64})) == {"bad_signature": 1}


@pytest.mark.case("C13")
@pytest.mark.spec("9.2.1")
@pytest.mark.spec("9.1.2")
@pytest.mark.spec("1.1.principal")
def test_a_tenant_or_principal_named_in_the_message_has_no_effect(bench):
    """In data the names mean nothing; at top level or in a stream field the entry is refused; t-blue is untouched."""
    bench.granted()
    blue = Rows(bench.database, bench.vault, "t-blue")
    blue.principal("ana")
    blue.route("ana")

    counts = bench.record(
        bench.entry(data={"tenant_id": "t-blue", "principal": "p-blue"}),
        bench.entry(tenant_id="t-blue"),
        bench.entry(fields={b"tenant": b"t-blue"}),
        bench.entry(principal="p-blue"),
    )

    assert counts == {"accepted": 1, "unknown_field": 3}
    assert {row[0] for row in bench.query("SELECT tenant FROM sense_delivery")} == {"t-red"}
    assert {line["tenant"] for line in bench.audited()} == {"t-red"}


@pytest.mark.case("C13")
def test_a_credential_is_unknown_on_another_tenants_stream(bench):
    """An entry with ana's good signature on t-blue's stream is refused there."""
    Rows(bench.database, bench.vault, "t-blue")

    assert bench.record(bench.entry(tenant="t-blue")) == {"unknown_credential": 1}


@pytest.mark.parametrize(
    ("table", "key", "change", "word"),
    [
        (tables.ActivationRow, {"id": "a-ana"}, {"revoked_at": 5}, "activation_revoked"),
        (tables.SessionRow, {"id": "ses-ana"}, {"revoked_at": 5}, "session_revoked"),
        (tables.PrincipalRow, {"id": "ana"}, {"disabled_at": 5}, "principal_disabled"),
        (tables.SessionRow, {"id": "ses-ana"}, {"expires_at": 5}, "expired"),
        (tables.PackRow, {"pack_id": "mail"}, {"generation": None}, "pack_missing"),
    ],
)
def test_what_no_longer_stands_is_refused_at_arrival(bench, table, key, change, word):
    """Revoked activation or session, disabled principal, expired session, removed pack: each has its word."""
    bench.granted()
    bench.rows.change(table, key, **change)

    assert bench.record(bench.entry()) == {word: 1}


@pytest.mark.spec("1.3.trigger")
def test_undeclared_refs_and_data_outside_the_schema_are_refused(bench):
    """Only declared refs pass, and only with data as declared."""
    counts = bench.record(
        bench.entry("never_declared"), bench.entry("counted_item", {"n": "x"}), bench.entry("counted_item", {"n": 1})
    )

    assert counts == {"undeclared_ref": 1, "invalid_data": 1, "accepted": 1}


@pytest.mark.case("C11")
def test_an_entry_without_a_signature_or_signed_with_nothing_is_refused(bench):
    """No s at all, and a signature under the empty key, are failed authentications like any other."""
    unsigned = bench.entry()
    del unsigned.fields[b"s"]
    empty = bench.entry()
    parts = (b"sense1", *(empty.fields[name] for name in (b"c", b"i", b"t", b"b")))
    message = b"".join(b"%d:%b," % (len(part), part) for part in parts)
    empty.fields[b"s"] = hmac.digest(b"", message, "sha256").hex().encode()

    assert bench.record(unsigned, empty) == {"bad_signature": 2}


@pytest.mark.case("C06")
@pytest.mark.case("C10")
def test_what_was_refused_is_kept_byte_for_byte_and_audited(bench):
    """Each refused entry's raw form holds its exact bytes, one audit line says why, and a good neighbour arrives."""
    bench.granted()
    odd = (CASES / "C06-invalid-utf8.bin").read_bytes()
    bad = [bench.entry(body=odd), bench.entry(fields={odd: b"x"}), bench.entry(fields={b"s": b"\xff" * 64})]

    assert bench.record(*bad, bench.entry()) == {
        "malformed": 1,
        "unknown_field": 1,
        "bad_signature": 1,
        "accepted": 1,
    }
    kept = dict(bench.query("SELECT stream_id, raw FROM sense_dead_entry"))
    for entry in bad:
        raw = base64.b64decode(kept[entry.id])
        assert all(name in raw and value in raw for name, value in entry.fields.items())
    lines = [line for line in bench.audited() if line["action"] == "sense.refuse"]
    assert {line["subject"].split()[-1] for line in lines} == {entry.id for entry in bad}
    assert {line["ok"] for line in lines} == {False}
    assert bench.query("SELECT count(*) FROM inbox_item") == [(1,)]


@pytest.mark.case("C24")
def test_what_was_made_right_before_an_entry_came_does_not_refuse_it(bench):
    """A pack installed, and a principal enabled, after this process had looked: the next entry is accepted at once."""
    bench.granted()
    bench.rows.change(tables.PackRow, {"pack_id": "mail"}, generation=None)
    assert bench.record(bench.entry()) == {"pack_missing": 1}
    bench.rows.pack()
    assert bench.record(bench.entry()) == {"accepted": 1}

    bench.rows.change(tables.PrincipalRow, {"id": "ana"}, disabled_at=5)
    assert bench.record(bench.entry()) == {"principal_disabled": 1}
    bench.rows.change(tables.PrincipalRow, {"id": "ana"}, disabled_at=None)
    assert bench.record(bench.entry()) == {"accepted": 1}
