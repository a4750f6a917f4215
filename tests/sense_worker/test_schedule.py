"""The sweep: rings what is due, forgets what is past retention and nothing else, anchors the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sense_worker import schedule
from sense_worker.drain import Drain
from sense_worker.schedule import DAY_MICROS, Sweep
from sense_worker.storage import tables
from sense_worker.storage.anchors import anchors_of
from tests.intake_bench import IntakeBench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database


class Bell:
    """Keeps what was rung."""

    def __init__(self) -> None:
        self.rung: list[str] = []

    def ring(self, lanes) -> None:
        self.rung += lanes


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """A ledger of each kind, with ana granted and routed to the inbox."""
    bench = IntakeBench(tmp_path, database)
    bench.rows.grant("ana")
    bench.rows.route("ana")
    yield bench
    bench.close()


def sweep(bench: IntakeBench) -> tuple[Sweep, Bell]:
    """Return a sweep and its bell; it takes no lock, since no other sweeps here."""
    bell = Bell()
    return Sweep(bench.ports, None, bell, bench.settings), bell


def age(bench: IntakeBench, days: int) -> None:
    """Make everything recorded so far older."""
    with bench.database.write() as connection:
        for table, column in (("sense_event", "accepted_at"), ("sense_dead_entry", "at")):
            connection.exec_driver_sql(f"UPDATE {table} SET {column} = {column} - {days * DAY_MICROS}")


def test_what_is_past_retention_and_settled_is_forgotten(bench, monkeypatch):
    """Old settled events and dead entries go, batch by batch; young ones, waiting ones and inbox items stay."""
    monkeypatch.setattr(schedule, "PRUNE_EVENTS", 2)
    bench.record(*(bench.entry() for _ in range(5)), *(bench.entry(body=b"[]") for _ in range(3)))
    bench.rows.change(tables.SinkRow, {"name": "inbox"}, paused_at=5)
    bench.record(bench.entry())
    bench.rows.change(tables.SinkRow, {"name": "inbox"}, paused_at=None)
    age(bench, 31)
    bench.record(bench.entry())
    sweeper, _ = sweep(bench)

    more = [sweeper.prune() for _ in range(4)]

    assert more == [True, True, False, False]
    assert bench.query("SELECT state FROM sense_delivery ORDER BY state") == [("delivered",), ("held",)]
    assert bench.query("SELECT count(*) FROM sense_event") == [(2,)]
    assert bench.dead() == []
    assert bench.query("SELECT count(*) FROM inbox_item") == [(6,)]


def test_nothing_younger_than_retention_is_forgotten(bench):
    """29 days are within the default of 30."""
    bench.record(bench.entry(), bench.entry(body=b"[]"))
    age(bench, 29)
    sweeper, _ = sweep(bench)

    assert sweeper.prune() is False
    assert (bench.query("SELECT count(*) FROM sense_event"), len(bench.dead())) == ([(1,)], 1)


def test_lanes_with_something_due_are_rung_and_held_ones_now_and_then(bench):
    """Due, retrying and lapsed rows ring their lane; held ones only when asked for; settled ones never."""
    bench.rows.sink("files", "jsonl", {"workspace": True})
    bench.rows.route("ana", sink="gone")
    bench.record(bench.entry())
    sweeper, bell = sweep(bench)

    assert sweeper.ring(held=False) == []
    assert sweeper.ring(held=True) == ["t-red/gone"]
    bench.rows.sink("gone", "inbox")
    Drain(bench.ports).claim("t-red/gone")
    assert sweeper.ring(held=True) == []
    assert bell.rung == ["t-red/gone"]


def test_the_head_of_the_audit_is_anchored_when_it_moved(bench):
    """The newest head stands in SQL; an anchor of the same hour is replaced."""
    sweeper, _ = sweep(bench)
    sweeper.anchor()
    for _ in range(2):
        bench.record(bench.entry())
        sweeper.anchor()
    head = bench.ports.audit.head()

    with bench.database.read() as connection:
        kept = anchors_of(bench.ports.ledger.rows(connection), bench.ports.chain)
    assert kept == [(head.seq, head.mac)]


def test_what_was_snoozed_until_now_wakes_with_nobody_reading(bench):
    """The sweep moves it, so that the tables are true for who reads them without us; what is not due stays."""
    bench.record(*(bench.entry() for _ in range(3)))
    with bench.database.write() as connection:
        for number, ends in ((1, 1), (2, 2**62)):
            connection.exec_driver_sql(
                f"UPDATE inbox_item SET state = 'snoozed', snooze_ends_at = {ends} WHERE number = {number}"
            )
        connection.exec_driver_sql("UPDATE inbox_counter SET unseen = 1, snoozed = 2")
    sweeper, _ = sweep(bench)

    sweeper.wake()

    assert bench.query("SELECT number, state FROM inbox_item ORDER BY number") == [
        (2, "snoozed"),
        (3, "unseen"),
        (4, "unseen"),
    ]
    assert bench.query("SELECT number, unseen, snoozed FROM inbox_counter") == [(4, 2, 1)]
