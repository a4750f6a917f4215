"""Dead and denied deliveries are replayed by an operator, each under the full check (C16, §9.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from runtime_core.errors import AuditUnavailable, Denied, NotFound, UsageError
from sense_worker.audit_check import check_audit
from sense_worker.drain import Drain
from sense_worker.explain import explain
from sense_worker.operator import Operator
from sense_worker.operator import replay as replay_module
from sense_worker.storage import tables
from sense_worker.storage.schema import DELIVERY, EVENT
from sense_worker.storage.states import State
from sinks.memory import Memory
from sinks.protocol import Rejected, Retry, SinkBase
from sinks.registry import Registry
from tests.intake_bench import IntakeBench
from tests.provision import Rows
from tests.sense_worker.test_drain import Bell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no statement of its own decides; the others run on PostgreSQL too."""
NO_GRANT = "denied: missing sense.enable"
GONE = Rejected("answered 410")


class Remote(SinkBase):
    """A sink that only a drain hands over to, scripted like the memory sink."""

    kind: ClassVar[str] = "remote"
    concurrency: ClassVar[int] = 2

    def deliver(self, batch):
        return Memory.of("remote").take(batch)


class Replay:
    """A ledger with ana's route to the sink `remote`, a drain, and the tenant's operator."""

    def __init__(self, home: Path, database: Database) -> None:
        Memory.forget()
        registry = Registry()
        registry.register(Remote)
        self.bench = IntakeBench(home, database, registry, SENSE_RETRY_SCHEDULE_S="1", SENSE_RETRY_JITTER="0")
        self.rows = self.bench.rows
        self.rows.sink("remote", "remote", audience="principal:ana")
        self.rows.grant("ana")
        self.route = self.rows.route("ana", sink="remote")
        made = Operator.initialize(self.bench.settings, tenant="t-red")
        self.operator = Operator.open(self.bench.settings, session_file=home / made.session_file, registry=registry)
        self.rung: list[str] = []
        self.operator._ring = self.rung.extend

    def ended(self, *outcomes: Any, **entry: Any) -> list[str]:
        """Deliver one event an outcome and let it end so; returns the ids of the deliveries."""
        sent = len(Memory.of("remote").attempts)
        for outcome in outcomes:
            Memory.of("remote").outcomes = [outcome]
            self.bench.record(self.bench.entry(**entry))
            self.drain()
        return [one.id for one in Memory.of("remote").attempts[sent:]]

    def drain(self) -> None:
        """Drain the lane once."""
        Drain(self.bench.ports).run("t-red/remote", Bell(), 0.0)

    def state(self, delivery: str) -> tuple[str, str | None]:
        """Return state and reason of a delivery."""
        event, _, route = delivery.partition(".")
        where = "WHERE event_id = ? AND route_id = ?"
        found = self.bench.query(f"SELECT state, reason FROM sense_delivery {where}", bytes.fromhex(event), route)
        return found[0]

    def lines(self, *actions: str) -> list[dict[str, Any]]:
        """Return the audit's lines of these actions."""
        return [line for line in self.bench.audited() if line["action"] in actions]

    def close(self) -> None:
        """Close what it opened."""
        self.operator.close()
        self.bench.close()


@pytest.fixture
def on(tmp_path: Path, database: Database) -> Iterator[Replay]:
    """A world for replays, on both databases."""
    on = Replay(tmp_path, database)
    yield on
    on.close()


def told(rows: Any) -> list[tuple[str, str | None]]:
    """Return outcome and reason of each."""
    return [(row.outcome, row.reason) for row in rows]


@pytest.mark.case("C16")
@on_sqlite
def test_each_goes_through_the_full_check_as_its_own_principal(on):
    """One whose grant is gone and one whose pack is gone stay dead with the reason; another tenant's is not found."""
    (dead,) = on.ended(GONE)
    blue = Rows(on.bench.database, on.bench.vault, "t-blue")
    blue.principal("ana")
    foreign = f"{'ab' * 16}.rte-t-blue"
    with on.bench.database.write() as connection:
        row = {"event_id": b"\xab" * 16, "route_id": "rte-t-blue", "tenant": "t-blue", "lane": "t-blue/remote"}
        more = {"owner": "ana", "state": "dead", "alone": False, "due_at": 1, "created_at": 1}
        connection.execute(DELIVERY.insert().values(**row, **more))
        names = ", ".join(column.name for column in EVENT.columns if column.name not in ("id", "tenant"))
        copied = f"SELECT x'{'ab' * 16}', 't-blue', {names} FROM sense_event"
        connection.exec_driver_sql(f"INSERT INTO sense_event (id, tenant, {names}) {copied}")

    on.rows.revoke("grt-ana-new_item-")
    first = on.operator.replay([dead, foreign])
    on.rows.grant("ana")
    on.rows.change(tables.PackRow, {"pack_id": "mail"}, generation=None)
    second = on.operator.replay([dead, foreign])

    unknown = ("not found", "no delivery of this tenant")
    assert told(first) == [("refused", NO_GRANT), unknown]
    assert told(second) == [("refused", "pack not installed: mail"), unknown]
    assert on.state(dead) == ("dead", "rejected: answered 410")
    assert len(Memory.of("remote").attempts) == 1
    assert on.bench.query("SELECT state FROM sense_delivery WHERE tenant = 't-blue'") == [("dead",)]
    assert on.rung == []


@pytest.mark.case("C16")
@pytest.mark.parametrize("by", ["route", "sink"])
@on_sqlite
def test_all_that_is_dead_in_one_call_is_of_the_own_tenant(on, by):
    """Another tenant's dead rows, though they name the same route or lane, are neither replayed nor told of."""
    own = on.ended(GONE, GONE)
    blue = Rows(on.bench.database, on.bench.vault, "t-blue")
    blue.principal("ana")
    names = ", ".join(column.name for column in EVENT.columns if column.name not in ("id", "tenant"))
    with on.bench.database.write() as connection:
        for number in (0x01, 0xFE):  # before and behind the own ones
            row = {"event_id": bytes([number]) * 16, "route_id": on.route, "tenant": "t-blue", "lane": "t-red/remote"}
            more = {"owner": "ana", "state": "dead", "alone": False, "due_at": 1, "created_at": 1}
            connection.execute(DELIVERY.insert().values(**row, **more))
            copied = f"SELECT x'{f'{number:02x}' * 16}', 't-blue', {names} FROM sense_event LIMIT 1"
            connection.exec_driver_sql(f"INSERT INTO sense_event (id, tenant, {names}) {copied}")
    ids = [bytes.fromhex(name.partition(".")[0]) for name in own]
    foreign = "SELECT * FROM sense_delivery WHERE tenant = 't-blue' ORDER BY event_id"
    before = on.bench.query(foreign)

    found = on.operator.replay(state="dead", **{by: on.route if by == "route" else "remote"})

    assert [(one.id, one.outcome) for one in found] == [(name, "replayed") for name in sorted(own)]
    assert [on.state(name)[0] for name in own] == ["pending", "pending"]
    assert (on.bench.query(foreign), len(before)) == (before, 2)
    assert {line["tenant"] for line in on.lines("delivery.replay")} == {"t-red"}
    assert on.bench.query("SELECT count(*) FROM sense_attempt WHERE event_id NOT IN (?, ?)", *ids) == [(0,)]


@pytest.mark.case("C16")
@on_sqlite
def test_the_age_of_an_event_does_not_matter(on):
    """Long past the freshness tolerance it is replayed, judged again by a drain and delivered under its own id."""
    (dead,) = on.ended(GONE)
    with on.bench.database.write() as connection:
        connection.exec_driver_sql("UPDATE sense_event SET signed_at = 1, accepted_at = 1")

    assert told(on.operator.replay([dead])) == [("replayed", None)]
    assert on.state(dead) == ("pending", None)
    assert on.rung == ["t-red/remote"]
    on.drain()

    assert on.state(dead) == ("delivered", None)
    assert [one.id for one in Memory.of("remote").deliveries] == [dead]
    assert Memory.of("remote").attempts[-1].attempt == 1


@pytest.mark.case("C16")
@on_sqlite
def test_what_is_delivered_is_not_delivered_again(on):
    """A second replay leaves it alone, before the drain and after it."""
    (dead,) = on.ended(GONE)
    on.operator.replay([dead])

    assert told(on.operator.replay([dead])) == [("unchanged", "is pending")]
    on.drain()
    assert told(on.operator.replay([dead, dead])) == [("unchanged", "is delivered already")]
    on.drain()

    assert len(Memory.of("remote").deliveries) == 1
    assert len(on.lines("delivery.replay")) == 1


@pytest.mark.case("C16")
@on_sqlite
def test_the_audit_keeps_operator_and_attributed_principal_apart(on):
    """The replay's line has the operator as principal and the publisher beside it; the decision is the owner's."""
    (dead,) = on.ended(GONE)
    on.rows.revoke("grt-ana-new_item-")
    on.operator.replay([dead])
    on.rows.grant("ana")
    on.operator.replay([dead])
    on.drain()

    replays = on.lines("delivery.replay")
    assert [(line["principal"], line["publisher"], line["subject"], line["ok"]) for line in replays] == [
        ("operator", "ana", dead, False),
        ("operator", "ana", dead, True),
    ]
    assert replays[0]["reason"] == NO_GRANT
    assert (replays[0]["pack_id"], replays[0]["key"], replays[0]["tenant"]) == ("mail", "new_item", "t-red")
    decided = [(line["principal"], line["publisher"], line["reason"]) for line in on.lines("sense.deliver")]
    assert decided == [("ana", "ana", "answered 410"), ("ana", "ana", NO_GRANT), ("ana", "ana", None)]
    checked = check_audit(on.bench.settings)
    assert (checked.problems, checked.anchors > 0) == ((), True)


@on_sqlite
def test_a_replay_is_anchored_at_once(on):
    """Without a worker no sweep does it, and a chain cut behind it would look whole."""
    (dead,) = on.ended(GONE)
    on.operator.replay([dead])

    assert on.bench.query("SELECT max(seq) FROM sense_audit_anchor") == [(len(on.bench.audited()),)]


@pytest.mark.case("C14")
@on_sqlite
def test_a_revocation_between_replay_and_drain_denies(on):
    """A replay decides nothing by itself: the attempt that follows is judged like any other."""
    (dead,) = on.ended(GONE)
    on.operator.replay([dead])
    on.rows.revoke("grt-ana-new_item-")
    on.drain()

    assert on.state(dead) == ("denied", NO_GRANT)
    assert len(Memory.of("remote").attempts) == 1


@on_sqlite
def test_a_denied_delivery_arrives_once_its_grant_is_there(on):
    """Replayed by its id, not by a replay of what is dead."""
    on.rows.revoke("grt-ana-new_item-")
    on.bench.record(on.bench.entry())
    on.drain()
    (denied,) = (one.id for one in on.operator.list_deliveries(state="denied"))
    assert told(on.operator.replay([denied])) == [("refused", NO_GRANT)]
    on.rows.grant("ana")

    assert on.operator.replay(sink="remote") == []
    assert told(on.operator.replay(sink="remote", state="denied")) == [("replayed", None)]
    on.drain()

    assert on.state(denied) == ("delivered", None)


def test_its_tries_begin_anew_and_its_history_stays(on):
    """A replayed delivery has the whole schedule before it; explain tells how it had ended and who replayed it."""
    (dead,) = on.ended(GONE)
    Memory.of("remote").outcomes = [Retry("answered 503")]
    on.operator.replay([dead])
    on.drain()

    assert on.state(dead) == ("retrying", "answered 503")
    (route,) = explain(on.bench.database, "t-red", dead).routes
    assert [(one.attempt, one.state, one.by, one.reason) for one in route.attempts] == [
        (1, "pending", "replay", "replayed by operator; was dead: rejected: answered 410"),
        (1, "retrying", "drain", "answered 503"),
    ]


@on_sqlite
def test_what_cannot_be_attempted_is_refused(on):
    """A route that is gone, a sink that is gone: the reason, and it stays dead."""
    first, second = on.ended(GONE, GONE)
    on.rows.change(tables.RouteRow, {"id": on.route}, removed_at=5)
    assert told(on.operator.replay([first])) == [("refused", "route removed or expired")]
    on.rows.change(tables.RouteRow, {"id": on.route}, removed_at=None)
    on.rows.change(tables.SinkRow, {"name": "remote"}, kind="nothing")

    ((outcome, reason),) = told(on.operator.replay([second]))
    assert outcome == "refused"
    assert str(reason).startswith("sink cannot be opened: kind: there is no sink kind 'nothing' (kinds: ")
    assert [on.state(one)[0] for one in (first, second)] == ["dead", "dead"]


@on_sqlite
def test_a_paused_sink_gets_it_when_it_is_resumed(on):
    """It is replayed and waits; the reason says for what."""
    (dead,) = on.ended(GONE)
    on.operator.pause_sink("remote")

    assert told(on.operator.replay([dead])) == [("replayed", "sink paused")]
    on.drain()
    assert on.state(dead) == ("held", "sink paused")
    on.operator.resume_sink("remote")
    on.drain()
    assert on.state(dead) == ("delivered", None)


def test_all_of_a_sink_or_route_are_replayed_page_by_page(on, monkeypatch):
    """Every dead one once, whatever stays refused among them; each page is told and audited when it has committed."""
    monkeypatch.setattr(replay_module, "PAGE", 3)
    dead = on.ended(*[GONE] * 8)
    dead += on.ended(GONE)
    kept = on.rows.route("ana", sink="remote", id="rte-kept")
    pages: list[int] = []
    with on.bench.database.write() as connection:
        some = "SELECT event_id FROM sense_delivery ORDER BY event_id LIMIT 4"
        connection.exec_driver_sql(f"UPDATE sense_delivery SET route_id = 'rte-gone' WHERE event_id IN ({some})")

    rows = on.operator.replay(sink="remote", told=lambda page: pages.append(len(page)))

    assert (pages, len(rows)) == ([3, 3, 3], 9)
    assert [row.outcome for row in rows].count("refused") == 4
    assert len({row.id for row in rows}) == 9
    assert on.operator.replay(route=kept) == []
    assert told(on.operator.replay(route=on.route)) == []
    on.drain()
    states = dict(on.bench.query("SELECT state, count(*) FROM sense_delivery GROUP BY state"))
    assert states == {"delivered": 5, "dead": 4}
    assert len(dead) == 9


def test_many_ids_are_answered_in_their_order(on, monkeypatch):
    """Over several pages, unknown ones among them."""
    monkeypatch.setattr(replay_module, "PAGE", 2)
    one, two = on.ended(GONE, GONE)
    asked = ["x", one, f"{'00' * 16}.rte", two, one.upper()]

    rows = on.operator.replay(asked)

    assert [row.id for row in rows] == asked
    assert [row.outcome for row in rows] == ["not found", "replayed", "not found", "replayed", "not found"]


@on_sqlite
def test_a_replay_is_an_operators(on, tmp_path):
    """Others are denied, in the audit too; what cannot be meant is refused; without the audit nothing changes."""
    (dead,) = on.ended(GONE)
    session = on.operator.create_session("ana", file=tmp_path / "ana.session")
    with Operator.open(on.bench.settings, session_file=tmp_path / "ana.session") as ana, pytest.raises(Denied):
        ana.replay([dead])
    assert session.principal == on.lines("delivery.replay")[-1]["principal"] == "ana"
    assert on.lines("delivery.replay")[-1]["reason"] == "denied: requires an operator"

    for wrong in ({}, {"ids": [dead], "sink": "remote"}, {"sink": "remote", "state": "delivered"}):
        with pytest.raises(UsageError):
            on.operator.replay(**wrong)
    for unknown in ({"sink": "none"}, {"route": "rte_none"}):
        with pytest.raises(NotFound):
            on.operator.replay(**unknown)

    file = on.bench.settings.audit_file
    kept = file.rename(file.with_suffix(".old"))
    file.mkdir()
    with pytest.raises(AuditUnavailable):
        on.operator.replay([dead])
    file.rmdir()
    kept.rename(file)
    assert on.state(dead)[0] == State.DEAD
