"""Entries become events, deliveries and receipts, or dead entries, in one transaction (DESIGN §6, §7)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runtime_core.errors import AuditUnavailable
from sense_worker.intake import door
from sense_worker.intake import record as record_module
from sense_worker.intake.stream import StreamEntry
from sense_worker.storage import tables
from sense_worker.storage.rows import Rows as Statements
from sense_worker.wire import stream_of
from sense_worker.wiring import build_ports
from tests.intake_bench import IntakeBench
from tests.provision import POLICY, SURFACE, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sense_worker.storage.engine import Database

CASES = Path(__file__).parents[2] / "cases"


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """A recorder on each of the two databases."""
    bench = IntakeBench(tmp_path, database)
    yield bench
    bench.close()


def granted(bench: IntakeBench, ref: str = "new_item", sink: str = "inbox") -> str:
    """Give ana the grant and a route."""
    bench.rows.grant("ana", ref)
    return bench.rows.route("ana", ref, sink)


@pytest.mark.spec("9.4.axes")
@pytest.mark.spec("1.3.sense")
def test_an_event_is_written_with_its_delivery_and_inbox_item(bench):
    """A granted event is born delivered, its body kept byte for byte in ledger and inbox."""
    route = granted(bench)
    entry = bench.entry(data={"ä": 'line\nbreak "quoted"'})

    assert bench.record(entry) == {"accepted": 1}
    assert bench.outcomes() == {route: "delivered"}
    assert bench.query("SELECT body FROM sense_event")[0][0] == entry.fields[b"b"]
    assert bench.query("SELECT body FROM inbox_item")[0][0] == entry.fields[b"b"]
    assert [line["action"] for line in bench.audited()] == ["sense.deliver"]


@pytest.mark.spec("9.7.sense")
@pytest.mark.spec("9.4.4")
@pytest.mark.spec("9.6.3")
def test_without_the_grant_it_is_denied_and_no_sink_sees_it(bench):
    """No matching grant is a denial with the exact text, audited, and the inbox stays empty."""
    route = bench.rows.route("ana")

    bench.record(bench.entry())

    assert bench.outcomes() == {route: "denied: missing sense.enable"}
    assert bench.query("SELECT count(*) FROM inbox_item") == [(0,)]
    line = bench.audited()[-1]
    assert (line["ok"], line["reason"], line["principal"]) == (False, "denied: missing sense.enable", "ana")


def test_a_revocation_between_two_batches_takes_effect_at_once(bench):
    """What was delivered before the grant went is denied after, in a process that had cached it."""
    granted(bench)
    bench.record(bench.entry())
    bench.rows.revoke("grt-ana-new_item-")

    bench.record(bench.entry())

    states = bench.query(
        "SELECT state FROM sense_delivery d JOIN sense_event e ON e.id = d.event_id ORDER BY stream_id"
    )
    assert states == [("delivered",), ("denied",)]


def test_a_revocation_between_admitting_and_locking_is_seen(bench, monkeypatch):
    """A revocation that commits after a batch was admitted and before its transaction locks the version denies it."""
    granted(bench)
    bench.record(bench.entry())
    admit = door.admit
    revoked = []

    def slow(*arguments):
        verdict = admit(*arguments)
        if not revoked:
            revoked.append(bench.rows.revoke("grt-ana-new_item-"))
        return verdict

    monkeypatch.setattr(record_module, "admit", slow)
    bench.record(bench.entry())

    assert bench.query("SELECT state, count(*) FROM sense_delivery GROUP BY state ORDER BY state") == [
        ("delivered", 1),
        ("denied", 1),
    ]


@pytest.mark.case("C12")
@pytest.mark.case("C59")
def test_a_repeat_is_counted_once_and_delivers_nothing(bench):
    """The same message under another stream id is a repeat; the same entry again is silent."""
    granted(bench)
    first = bench.entry(message_id="m")
    again = bench.entry(message_id="m", body=first.fields[b"b"])

    assert bench.record(first) == {"accepted": 1}
    assert bench.record(again) == {"repeat": 1}
    assert bench.record(again) == {}
    assert bench.record(first) == {"redelivered": 1}
    assert bench.query("SELECT repeats FROM sense_event") == [(1,)]
    assert bench.query("SELECT count(*) FROM inbox_item") == [(1,)]


@pytest.mark.case("C59")
def test_a_used_id_with_another_body_is_a_conflict_with_a_receipt(bench):
    """A message id that was used for another body is kept as a conflict, in a later batch and within one."""
    granted(bench)
    one, two, three = (bench.entry(message_id="m", data={"n": number}) for number in range(3))

    assert bench.record(one) == {"accepted": 1}
    assert bench.record(two) == {"conflict": 1}
    assert bench.record(three) == {"conflict": 1}
    four, five = (bench.entry(message_id="m2", data={"n": number}) for number in range(2))
    assert bench.record(four, five) == {"accepted": 1, "conflict": 1}
    assert {word for word, _ in bench.dead()} == {"conflict"}
    assert bench.query("SELECT count(*) FROM inbox_item") == [(2,)]


@pytest.mark.case("C59")
def test_two_tenants_and_two_principals_may_use_one_id(bench):
    """Neither another tenant nor another principal of the same tenant can suppress an event by using its id."""
    granted(bench)
    blue = Rows(bench.database, bench.vault, "t-blue")
    for rows, who in ((blue, "ana"), (bench.rows, "ben")):
        rows.principal(who)
        bench.activate(f"a-{rows.tenant}-{who}", who, rows)
        rows.grant(who)
        rows.route(who)
    blue.pack()

    counts = bench.record(
        bench.entry(message_id="e-1", data={"n": 1}),
        bench.entry(message_id="e-1", data={"n": 2}, activation="a-t-blue-ana", tenant="t-blue"),
        bench.entry(message_id="e-1", data={"n": 3}, activation="a-t-red-ben"),
    )

    assert counts == {"accepted": 3}
    assert bench.query("SELECT count(*) FROM inbox_item") == [(3,)]


@pytest.mark.case("C05")
@pytest.mark.case("C06")
def test_bad_entries_are_dead_at_first_sight_and_their_neighbour_is_delivered(bench):
    """No body, no JSON, an array, bytes that are no UTF-8 in value and name: each is kept raw, the good one arrives."""
    granted(bench)
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
    granted(bench)

    assert bench.record(bench.entry(body=(CASES / name).read_bytes())) == {"malformed": 1}
    assert bench.query("SELECT count(*) FROM sense_event") == [(0,)]
    told = bench.settings.audit_file.read_text() + bench.dead()[0][1]
    assert re.search(r"(?<!['-])-?\b(NaN|Infinity)\b", told) is None, "quoted in a sentence they are no numbers"


@pytest.mark.case("C07")
def test_no_form_of_infinity_passes(bench):
    """-Infinity, and a number that overflows to it, are malformed too."""
    granted(bench)
    bodies = [b'{"ref":"new_item","data":{"n":%b}}' % number for number in (b"-Infinity", b"1e999", b"-1e999")]

    assert bench.record(*(bench.entry(body=body) for body in bodies)) == {"malformed": 3}


@pytest.mark.case("C09")
def test_nul_is_refused_alike_on_both_databases_and_its_spelling_comes_back(bench):
    """NUL in a value or key is malformed; backslash-u0000 written out is text and comes back unchanged."""
    granted(bench)
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
    granted(bench)
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
    granted(bench)
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


@pytest.mark.case("C17")
@pytest.mark.case("C18")
@pytest.mark.spec("9.2.2")
@pytest.mark.spec("9.2.3")
@pytest.mark.spec("9.7.brain")
@pytest.mark.spec("4.3.brain")
def test_land_brain_wants_a_project_and_membership(bench):
    """A member's project delivers; another, one of another tenant, one that is nowhere, and none are denied."""
    rows = bench.rows
    rows.member("P1", "ana")
    Rows(bench.database, bench.vault, "t-blue").member("P3", "ana")
    rows.grant("ana", "shared_item")
    route = rows.route("ana", "shared_item")
    texts = {}
    for project in ("P1", "P2", "P3", "nowhere"):
        bench.activate(f"a-{project}", "ana", project=project)
    scopes: tuple[str | None, ...] = ("P1", "P2", "P3", "nowhere", None)
    for scope in scopes:
        name = f"a-{scope}" if scope else "a-ana"
        bench.record(bench.entry("shared_item", activation=name))
        found = bench.query(
            "SELECT d.state, d.reason FROM sense_delivery d JOIN sense_event e ON e.id = d.event_id "
            "WHERE e.activation_id = ? AND d.route_id = ?",
            name,
            route,
        )
        texts[scope] = found[0][1] or found[0][0]

    assert texts == {
        "P1": "delivered",
        "P2": "denied: not a member of the project",
        "P3": "denied: not a member of the project",
        "nowhere": "denied: not a member of the project",
        None: "denied: privacy.land brain requires project_id",
    }
    assert bench.query("SELECT count(*) FROM inbox_item") == [(1,)]
    assert len(bench.audited()) == 5


@pytest.mark.spec("4.3.personal")
def test_personal_events_give_others_no_delivery_only_a_count(bench):
    """Another principal's route gets no Delivery of a personal event; the event keeps the text and how many."""
    bench.rows.principal("ben")
    bench.rows.grant("ben")
    bench.rows.route("ben")

    bench.record(bench.entry())

    assert bench.outcomes() == {}
    assert json.loads(bench.query("SELECT receipt FROM sense_event")[0][0]) == {"denied: privacy.land personal": 1}


def test_an_event_that_nobody_wants_keeps_a_receipt(bench):
    """With no matching route the event says `no route`."""
    bench.record(bench.entry())

    assert json.loads(bench.query("SELECT receipt FROM sense_event")[0][0]) == {"no route": 1}


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
    granted(bench)
    bench.rows.change(table, key, **change)

    assert bench.record(bench.entry()) == {word: 1}


@pytest.mark.spec("1.3.trigger")
def test_undeclared_refs_and_data_outside_the_schema_are_refused(bench):
    """Only declared refs pass, and only with data as declared."""
    counts = bench.record(
        bench.entry("never_declared"), bench.entry("counted_item", {"n": "x"}), bench.entry("counted_item", {"n": 1})
    )

    assert counts == {"undeclared_ref": 1, "invalid_data": 1, "accepted": 1}


def test_deliveries_to_a_sink_that_cannot_take_them_are_held(bench):
    """Paused, disabled, and missing sinks hold; nothing is dropped."""
    bench.rows.grant("ana")
    for name in ("one", "two"):
        bench.rows.sink(name, "memory", audience="principal:ana")
    bench.rows.change(tables.SinkRow, {"name": "one"}, paused_at=5)
    bench.rows.change(tables.SinkRow, {"name": "two"}, disabled_at=5, disabled_reason="410")
    routes = [bench.rows.route("ana", sink=name) for name in ("one", "two", "three")]

    bench.record(bench.entry())

    found = bench.query("SELECT route_id, state, reason FROM sense_delivery")
    assert {row[0]: row[1:] for row in found} == {
        routes[0]: ("held", "sink paused"),
        routes[1]: ("held", "sink disabled: 410"),
        routes[2]: ("held", "sink missing"),
    }


def test_nothing_is_written_while_the_audit_cannot_be(bench, monkeypatch):
    """An audit that cannot be written undoes the transaction; the same batch later is recorded whole."""
    granted(bench)
    entry = bench.entry()

    def full(_records):
        raise AuditUnavailable("audit.jsonl", "no space left on device")

    monkeypatch.setattr(type(bench.ports.audit), "append", lambda self, records: full(records))
    with pytest.raises(AuditUnavailable):
        bench.recorded(entry)
    assert bench.query("SELECT count(*) FROM sense_event") == [(0,)]
    assert bench.query("SELECT count(*) FROM inbox_item") == [(0,)]
    monkeypatch.undo()

    assert bench.record(entry) == {"accepted": 1}


def test_a_fan_out_larger_than_a_transaction_arrives_whole(bench, monkeypatch):
    """An event for more routes than a transaction may write is cut by route; a crash in between is made up for."""
    monkeypatch.setattr(record_module, "ROUTES_A_TRANSACTION", 3)
    bench.rows.grant("ana")
    for number in range(8):
        bench.rows.route("ana", id=f"rte-{number}")
    entry = bench.entry()
    write = record_module.Recorder._write
    parts = []

    def dying(self, *arguments):
        if len(parts) == 1:
            parts.append("died")
            raise KeyboardInterrupt
        parts.append("written")
        return write(self, *arguments)

    monkeypatch.setattr(record_module.Recorder, "_write", dying)
    with pytest.raises(KeyboardInterrupt):
        bench.recorded(entry)
    assert bench.query("SELECT count(*) FROM sense_delivery") == [(3,)]

    bench.recorded(entry)

    assert bench.query("SELECT count(*) FROM sense_delivery WHERE state = 'delivered'") == [(8,)]
    assert bench.query("SELECT count(*) FROM inbox_item") == [(8,)]


def test_the_happy_path_writes_three_rows_and_appends_once(bench, monkeypatch):
    """Per event and route three inserts, no update; per batch one audit append and one commit (DESIGN §6.3)."""
    granted(bench)
    bench.record(bench.entry())  # caches are warm
    statements = []
    inserted = []
    for name in ("query", "execute", "execute_many"):
        original = getattr(Statements, name)
        monkeypatch.setattr(
            Statements, name, lambda self, sql, *rest, o=original: (statements.append(sql), o(self, sql, *rest))[1]
        )
    insert = Statements.insert
    monkeypatch.setattr(
        Statements,
        "insert",
        lambda self, table, columns, many: (inserted.append((table, len(many))), insert(self, table, columns, many))[1],
    )
    append = type(bench.ports.audit).append
    appends = []
    monkeypatch.setattr(
        type(bench.ports.audit),
        "append",
        lambda self, records: (appends.append(len(records)), append(self, records))[1],
    )

    bench.record(*(bench.entry() for _ in range(50)))

    written = dict(inserted) | ({"sense_event": 50} if bench.database.kind == "postgresql" else {})
    assert {table: number for table, number in written.items() if number} == {
        "sense_event": 50,
        "sense_delivery": 50,
        "inbox_item": 50,
    }
    assert not any(sql.lstrip().startswith("UPDATE") for sql in statements)
    assert appends == [50]


def test_an_announcement_without_a_moment_happened_when_it_was_signed(bench):
    """occurred_at may be left out; the ledger and the inbox then hold the moment of the signature."""
    granted(bench)
    moment = f"{int(time.time())}"
    bench.record(bench.entry(body=b'{"ref":"new_item","data":{}}', signed_at=moment))

    expected = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(int(moment)))
    assert bench.query("SELECT occurred_at FROM sense_event") == [(expected,)]
    assert bench.query("SELECT occurred_at FROM inbox_item") == [(expected,)]


@pytest.mark.case("C12")
def test_a_repeat_is_a_repeat_in_every_process(bench):
    """Recorders that share nothing but the database, as processes do, accept one message once between them."""
    granted(bench)
    others = [record_module.Recorder(build_ports(bench.settings)) for _ in range(2)]
    moment = f"{time.time() - 299:.0f}"
    first = bench.entry(message_id="m", signed_at=moment)
    copies = [bench.entry(message_id="m", signed_at=moment, body=first.fields[b"b"]) for _ in others]

    counts = [bench.record(first)]
    for other, copy in zip(others, copies, strict=True):
        parts = other.record([copy], int(time.time() * 1e6))
        counts.append({word: number for word, number in parts[0].counts.items() if number})
        other._ports.database.dispose()

    assert counts == [{"accepted": 1}, {"repeat": 1}, {"repeat": 1}]
    assert bench.query("SELECT count(*) FROM inbox_item") == [(1,)]


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
    granted(bench)
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


@pytest.mark.case("C59")
def test_one_id_under_two_packs_and_two_projects(bench):
    """The same message id of one principal is another event under another pack, and a conflict within one pack."""
    granted(bench)
    bench.rows.pack({**SURFACE, "id": "post"}, {**POLICY, "surface_id": "post"})
    bench.rows.put(
        tables.ActivationRow,
        id="a-post",
        session_id="ses-ana",
        pack_id="post",
        secret=bench.vault.seal(b"post secret"),
        previous_until=0,
        created_at=1,
    )
    bench.secrets["a-post"] = b"post secret"
    bench.activate("a-apollo", "ana", project="apollo")

    assert bench.record(
        bench.entry(message_id="e-1", data={"n": 1}),
        bench.entry(message_id="e-1", data={"n": 2}, activation="a-post"),
        bench.entry(message_id="e-1", data={"n": 3}, activation="a-apollo"),
    ) == {"accepted": 2, "conflict": 1}
