"""A fan-out of several transactions arrives whole, whatever happens between two of them (DESIGN §6.3)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.errors import AuditUnavailable
from sense_worker.cli.explained import told
from sense_worker.explain import explain
from sense_worker.intake import record as record_module
from sense_worker.intake.record import Recorder
from sense_worker.storage import tables
from sense_worker.wiring import build_ports
from tests.provision import POLICY, SURFACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sense_worker.explain import Explanation
    from sense_worker.intake.stream import StreamEntry
    from tests.intake_bench import IntakeBench

ROUTES = [f"rte-{number}" for number in range(8)]
FIRST, REST = ROUTES[:3], ROUTES[3:]


@pytest.fixture(autouse=True)
def three_routes_a_transaction(monkeypatch):
    """Cut a fan-out after three routes, not after 2,500."""
    monkeypatch.setattr(record_module, "ROUTES_A_TRANSACTION", 3)


@pytest.fixture
def entry(bench: IntakeBench) -> StreamEntry:
    """Ana's event, which eight of her routes want."""
    with bench.rows.together():
        bench.rows.grant("ana")
        for route in ROUTES:
            bench.rows.route("ana", id=route)
    return bench.entry(message_id="m")


def explained(bench: IntakeBench) -> Explanation:
    """Explain the only event."""
    return explain(bench.database, "t-red", bench.query("SELECT id FROM sense_event")[0][0].hex())


def between(monkeypatch: pytest.MonkeyPatch, fault: Callable[[], object]) -> None:
    """Let `fault` happen once, after the first slice has committed and before the second begins."""
    write_slice = Recorder._write_slice
    happened = []

    def faulty(self, *event):
        if not happened:
            happened.append(True)
            fault()
        return write_slice(self, *event)

    monkeypatch.setattr(Recorder, "_write_slice", faulty)


def crash() -> None:
    """End the process."""
    raise KeyboardInterrupt


def cut_short(bench: IntakeBench, monkeypatch: pytest.MonkeyPatch, entry: StreamEntry) -> None:
    """Accept the event and die before its second slice."""
    between(monkeypatch, crash)
    with pytest.raises(KeyboardInterrupt):
        bench.recorded(entry)
    assert bench.outcomes() == dict.fromkeys(FIRST, "delivered")


def remove(bench: IntakeBench, *routes: str) -> None:
    """Remove routes."""
    for route in routes:
        bench.rows.change(tables.RouteRow, {"id": route}, removed_at=5)


def grow(bench: IntakeBench) -> None:
    """Add a route before the first and one after the last."""
    for route in ("rte-", "rte-9"):
        bench.rows.route("ana", id=route)


def replace(bench: IntakeBench, *, land: str | None) -> None:
    """Replace the pack by one whose `new_item` has another land, or that does not declare it."""
    stimuli: dict[str, Any] = {ref: entry for ref, entry in POLICY["stimuli"].items() if ref != "new_item"}
    triggers = SURFACE["stimulusTriggers"][1:]
    if land is not None:
        stimuli["new_item"] = {"operation": "read", "privacy": {"land": land}}
        triggers = SURFACE["stimulusTriggers"]
    bench.rows.pack({**SURFACE, "stimulusTriggers": triggers}, {**POLICY, "stimuli": stimuli})


def rest(outcome: str) -> dict[str, str]:
    """Return the outcomes where the first slice was delivered and the rest met a text."""
    return dict.fromkeys(FIRST, "delivered") | dict.fromkeys(REST, outcome)


def delivered(*routes: str) -> dict[str, str]:
    """Return the outcomes where exactly these routes were delivered."""
    return dict.fromkeys(routes, "delivered")


FAULTS: dict[str, tuple[Any, dict[str, str]]] = {
    "nothing": (lambda _: None, delivered(*ROUTES)),
    "activation revoked": (
        lambda b: b.rows.change(tables.ActivationRow, {"id": "a-ana"}, revoked_at=5),
        rest("denied: activation revoked"),
    ),
    "session revoked": (
        lambda b: b.rows.change(tables.SessionRow, {"id": "ses-ana"}, revoked_at=5),
        rest("denied: session revoked"),
    ),
    "publisher disabled": (
        lambda b: b.rows.change(tables.PrincipalRow, {"id": "ana"}, disabled_at=5),
        rest("denied: principal disabled"),
    ),
    "session expired": (
        lambda b: b.rows.change(tables.SessionRow, {"id": "ses-ana"}, expires_at=5),
        delivered(*ROUTES),  # judged at arrival, and that was before
    ),
    "secret replaced": (
        lambda b: b.rows.change(tables.ActivationRow, {"id": "a-ana"}, secret=b.vault.seal(b"another")),
        delivered(*ROUTES),
    ),
    "grant revoked": (lambda b: b.rows.revoke("grt-ana-new_item-"), rest("denied: missing sense.enable")),
    "pack removed": (
        lambda b: b.rows.change(tables.PackRow, {"pack_id": "mail"}, generation=None),
        rest("pack not installed: mail"),
    ),
    "pack without the ref": (lambda b: replace(b, land=None), rest("trigger not declared: new_item")),
    "pack with another land": (
        lambda b: replace(b, land="brain"),
        rest("denied: privacy.land brain requires project_id"),
    ),
    "fewer routes": (lambda b: remove(b, "rte-0", "rte-4", "rte-5"), delivered(*FIRST, "rte-3", "rte-6", "rte-7")),
    "fewer routes than a slice": (lambda b: remove(b, *ROUTES[2:]), delivered(*FIRST)),
    "no route": (lambda b: remove(b, *ROUTES), delivered(*FIRST)),
    "more routes": (grow, delivered("rte-", *ROUTES, "rte-9")),
}


@pytest.mark.parametrize("crashed", [False, True], ids=["running", "crashed"])
@pytest.mark.parametrize("name", FAULTS)
def test_what_happens_between_two_slices_refuses_no_accepted_event(bench, monkeypatch, entry, name, crashed):
    """The rest gets its rows by what stands then; the entry is never dead, and coming again it adds nothing."""
    fault, expected = FAULTS[name]
    if crashed:
        cut_short(bench, monkeypatch, entry)
        fault(bench)
        assert not explained(bench).complete
        assert bench.record(entry) == {"redelivered": 1}
    else:
        between(monkeypatch, lambda: fault(bench))
        assert bench.record(entry) == {"accepted": 1}

    assert bench.outcomes() == expected
    assert bench.dead() == []
    bench.rows.route("ana", id="rte-later")
    assert bench.record(entry) == {"redelivered": 1}
    assert bench.outcomes() == expected
    receipt = explained(bench)
    assert (receipt.complete, receipt.without) == (True, {})
    assert {one.route_id for one in receipt.routes} == set(expected)
    items = [row[0] for row in bench.query("SELECT route_id FROM inbox_item")]
    assert sorted(items) == sorted(route for route, outcome in expected.items() if outcome == "delivered")
    assert len([line for line in bench.audited() if line["action"] == "sense.deliver"]) == len(expected)


@pytest.mark.parametrize("name", FAULTS)
def test_an_entry_that_comes_again_is_silent_whatever_has_changed(bench, name):
    """A crash between commit and acknowledgement, then a revocation: no dead entry of an event that was delivered."""
    for route in FIRST:
        bench.rows.route("ana", id=route)
    bench.rows.grant("ana")
    entry = bench.entry()
    bench.record(entry)
    FAULTS[name][0](bench)

    assert bench.record(entry) == {"redelivered": 1}
    assert (bench.dead(), bench.outcomes()) == ([], delivered(*FIRST))


def test_while_a_fan_out_is_unfinished_explain_says_so(bench, monkeypatch, entry):
    """Explain tells how many routes have their row, and that there are more to come."""
    cut_short(bench, monkeypatch, entry)

    receipt = explained(bench)

    assert (receipt.complete, len(receipt.routes)) == (False, 3)
    told_row = {"id": receipt.id, "without": {}, "routes": [{}] * 3, "refusals": [], "repeats": 0, "complete": False}
    told_row |= dict.fromkeys(("ref", "pack_id", "publisher", "tenant", "message_id", "stream_id"), "x")
    lines = told(told_row | {"accepted_at": 1, "project": None, "subject": None, "routes": []})
    assert "  0 of its routes have their row; the rest is still to be written" in lines


def test_who_is_in_the_project_now_gets_the_rest(bench, monkeypatch):
    """A member who left before the last slice gets no row and is counted; one who joined gets one."""
    bench.activate("a-apollo", "ana", project="apollo")
    people = ["ana", "ben", "cyd", "dan", "eve"]
    for who in people[1:]:
        bench.rows.principal(who)
    for who in people:
        bench.rows.grant(who, "shared_item")
        bench.rows.route(who, "shared_item", id=f"rte-{who}")
    bench.rows.member("apollo", *people[:4])
    between(monkeypatch, lambda: swap(bench))

    def swap(bench: IntakeBench) -> None:
        with bench.database.write() as connection:
            connection.exec_driver_sql("DELETE FROM sense_membership WHERE principal = 'dan'")
        bench.rows.member("apollo", "eve")

    bench.record(bench.entry("shared_item", activation="a-apollo"))

    assert bench.outcomes() == delivered("rte-ana", "rte-ben", "rte-cyd", "rte-eve")
    assert explained(bench).without == {"denied: not a member of the project": 1}


def test_a_batch_goes_on_after_an_event_of_several_slices(bench, entry):
    """Neighbours before and after it are recorded in the same batch, once each."""
    before, after = bench.entry(), bench.entry()

    assert bench.record(before, entry, after) == {"accepted": 3}
    assert bench.query("SELECT count(*) FROM sense_delivery WHERE state = 'delivered'") == [(24,)]
    assert bench.query("SELECT count(*) FROM sense_event WHERE unfinished_land IS NOT NULL") == [(0,)]


def test_rows_go_into_slices_no_larger_than_the_bound(bench, monkeypatch, entry):
    """Eight routes at three a transaction are three transactions with rows."""
    sizes = []
    insert = type(bench.ports.ledger).insert_deliveries
    monkeypatch.setattr(
        type(bench.ports.ledger),
        "insert_deliveries",
        lambda self, connection, records: (sizes.append(len(records)), insert(self, connection, records))[1],
    )

    bench.record(entry)

    assert sizes == [3, 3, 2]


def test_an_audit_that_fails_between_two_slices_only_delays_the_rest(bench, monkeypatch, entry):
    """The failing slice is undone; the same batch again writes it and counts the entry as redelivered."""

    def full() -> None:
        raise AuditUnavailable("audit.jsonl", "no space left on device")

    between(monkeypatch, full)
    with pytest.raises(AuditUnavailable):
        bench.recorded(entry)

    assert bench.record(entry) == {"redelivered": 1}
    assert bench.outcomes() == delivered(*ROUTES)


def test_two_readers_of_one_unfinished_event_write_each_row_once(bench, monkeypatch, entry):
    """A reader that was taken for dead goes on after another has finished its event, and adds nothing."""
    other = Recorder(build_ports(bench.settings))
    between(monkeypatch, lambda: other.record([entry], int(time.time() * 1e6)))

    assert bench.record(entry) == {"accepted": 1}
    assert bench.outcomes() == delivered(*ROUTES)
    assert bench.query("SELECT count(*) FROM inbox_item") == [(8,)]
    other._ports.database.dispose()


def test_a_repeat_finishes_an_unfinished_event(bench, monkeypatch, entry):
    """The publisher's second announcement is counted, and makes up for the first one's crash."""
    again = bench.entry(message_id="m", body=entry.fields[b"b"])
    cut_short(bench, monkeypatch, entry)

    assert bench.record(again) == {"repeat": 1}
    assert bench.outcomes() == delivered(*ROUTES)


def test_an_entry_that_lost_its_body_is_finished_from_the_ledger(bench, monkeypatch, entry):
    """Deleted from the stream after it was accepted, it is no loss: the ledger has what it said."""
    cut_short(bench, monkeypatch, entry)

    assert bench.record(entry._replace(fields=None)) == {"redelivered": 1}
    assert (bench.outcomes(), bench.dead()) == (delivered(*ROUTES), [])


def test_an_entry_that_ends_its_process_again_and_again_is_told_with_its_event(bench, monkeypatch, entry):
    """Buried while unfinished, it is a dead entry of its event; buried when complete, it is nothing new."""
    cut_short(bench, monkeypatch, entry)
    bench.recorder.bury(entry, "crashed", "its process died 3 times while handling it alone")

    receipt = explained(bench)
    assert (receipt.complete, [one.word for one in receipt.refusals]) == (False, ["crashed"])

    whole = bench.entry()
    bench.record(whole)
    assert bench.recorder.bury(whole, "crashed", "its process died").counts["redelivered"] == 1
    assert len(bench.dead()) == 1


def test_a_route_of_each_kind_of_sink_gets_its_rest(bench, monkeypatch):
    """Held, pending and local deliveries are born in later slices as in the first."""
    bench.rows.grant("ana")
    bench.rows.sink("paused", "memory", audience="principal:ana")
    bench.rows.change(tables.SinkRow, {"name": "paused"}, paused_at=5)
    for number in range(4):
        bench.rows.route("ana", sink="paused", id=f"rte-{number}")
        bench.rows.route("ana", id=f"rte-{number}-inbox")
        bench.rows.route("ana", sink="gone", id=f"rte-{number}-gone")

    bench.record(bench.entry())

    found = bench.query("SELECT state, reason, count(*) FROM sense_delivery GROUP BY state, reason ORDER BY 1, 2")
    assert found == [("delivered", None, 4), ("held", "sink missing", 4), ("held", "sink paused", 4)]
    assert json.loads(bench.query("SELECT body FROM inbox_item")[0][0])["ref"] == "new_item"


def test_a_fan_out_whose_entry_is_gone_is_finished_by_the_sweep(bench, monkeypatch, entry):
    """A broken fan-out whose entry nobody can read again is finished from the ledger, and a younger one is left."""
    cut_short(bench, monkeypatch, entry)

    assert bench.recorder.finish_left(entry.micros) == set()
    assert bench.outcomes() == dict.fromkeys(FIRST, "delivered")

    bench.recorder.finish_left(entry.micros + 1)

    assert bench.outcomes() == delivered(*ROUTES)
    assert bench.recorder.finish_left(entry.micros + 1) == set()
