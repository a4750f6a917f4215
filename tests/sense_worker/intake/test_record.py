"""Entries become events, deliveries and receipts in one transaction (DESIGN §6)."""

from __future__ import annotations

import json
import time

import pytest

from runtime_core.errors import AuditUnavailable
from sense_worker.intake import door
from sense_worker.intake import record as record_module
from sense_worker.storage import tables
from sense_worker.storage.rows import Rows as Statements
from tests.provision import Rows


def test_an_event_is_written_with_its_delivery_and_inbox_item(bench):
    """A granted event is born delivered, its body kept byte for byte in ledger and inbox."""
    route = bench.granted()
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
    bench.granted()
    bench.record(bench.entry())
    bench.rows.revoke("grt-ana-new_item-")

    bench.record(bench.entry())

    states = bench.query(
        "SELECT state FROM sense_delivery d JOIN sense_event e ON e.id = d.event_id ORDER BY stream_id"
    )
    assert states == [("delivered",), ("denied",)]


def test_a_revocation_between_admitting_and_locking_is_seen(bench, monkeypatch):
    """A revocation that commits after a batch was admitted and before its transaction locks the version denies it."""
    bench.granted()
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
    bench.granted()
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


def test_the_happy_path_writes_three_rows_and_appends_once(bench, monkeypatch):
    """Per event and route three inserts, no update; per batch one audit append and one commit (DESIGN §6.3).

    Two sinks of the inbox's kind share one statement for their principals' counters.
    """
    bench.granted()
    bench.rows.sink("second", "inbox")
    bench.rows.route("ana", sink="second")
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
    counted = []
    add = Statements.add
    monkeypatch.setattr(
        Statements,
        "add",
        lambda self, table, key, amounts, many: (
            counted.append((table, [row[:3] for row in many])),
            add(self, table, key, amounts, many),
        )[1],
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
        "sense_delivery": 100,
        "inbox_item": 100,
    }
    assert counted == [("inbox_counter", [("t-red", "ana", "")])]
    assert not any(sql.lstrip().startswith("UPDATE") for sql in statements)
    assert not any("inbox_" in sql for sql in statements)
    assert appends == [100]


def test_an_announcement_without_a_moment_happened_when_it_was_signed(bench):
    """occurred_at may be left out; the ledger and the inbox then hold the moment of the signature."""
    bench.granted()
    moment = f"{int(time.time())}"
    bench.record(bench.entry(body=b'{"ref":"new_item","data":{}}', signed_at=moment))

    expected = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(int(moment)))
    assert bench.query("SELECT occurred_at FROM sense_event") == [(expected,)]
    assert bench.query("SELECT occurred_at FROM inbox_item") == [(expected,)]
