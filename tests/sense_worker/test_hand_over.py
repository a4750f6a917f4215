"""Between a claim and its hand-over lie time, changes of the authority, and what a lane may start at once."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, ClassVar

import pytest

from sense_worker.drain import Drain
from sense_worker.storage import tables
from sense_worker.storage.engine import Database
from sinks.inbox import Inbox
from sinks.protocol import Delivered, SinkBase
from sinks.registry import Registry
from tests.intake_bench import IntakeBench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LANE = "t-red/wide"
KINDS = "console, inbox, jsonl, memory, notify, redis_stream, webhook, wide"
TELEGRAPH = f"sink cannot be opened: kind: there is no sink kind 'telegraph' (kinds: {KINDS})"
CALLS = 40


class Wide(SinkBase):
    """Takes forty calls at once; each waits until all have come."""

    kind: ClassVar[str] = "wide"
    concurrency: ClassVar[int] = CALLS
    together: ClassVar[threading.Barrier]
    taken: ClassVar[list[str]]

    def deliver(self, batch):
        type(self).taken += [one.id for one in batch]
        self.together.wait()
        return [Delivered()] * len(batch)


class Bell:
    """A doorbell that nobody rings."""

    def start(self, lane: str) -> None: ...

    def at_work(self, lane: str) -> None: ...

    def wait(self, lane: str, seconds: float) -> bool:
        return False

    def stop(self, lane: str) -> bool:
        return False

    def ring(self, lanes: list[str]) -> None:
        raise AssertionError(lanes)


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """A recorder and a drain, with ana granted and routed to the sink `wide`."""
    Wide.together, Wide.taken = threading.Barrier(1), []
    registry = Registry()
    registry.register(Wide)
    bench = IntakeBench(tmp_path, database, registry)
    bench.rows.sink("wide", "wide", audience="principal:ana")
    bench.rows.grant("ana")
    bench.rows.route("ana", sink="wide")
    yield bench
    bench.close()


def states(bench: IntakeBench) -> list[tuple[object, ...]]:
    """Return state, attempt, reason and number of the deliveries."""
    return bench.query("SELECT state, attempt, reason, count(*) FROM sense_delivery GROUP BY state, attempt, reason")


def test_every_call_that_was_claimed_starts_at_once(bench):
    """A sink's concurrency is had on any number of cores: no claimed batch waits for a thread while its lease runs."""
    Wide.together = threading.Barrier(CALLS, timeout=20)
    bench.record(*(bench.entry() for _ in range(CALLS)))

    Drain(bench.ports).run(LANE, Bell(), 0.0)

    assert states(bench) == [("delivered", 1, None, CALLS)]


def test_a_lane_is_drained_until_it_is_empty_where_judging_settles_everything(bench):
    """A backlog of the inbox, or of denials, is many claims long: the drain goes on with no ring in between."""
    bench.rows.route("ana", sink="inbox")
    bench.rows.change(tables.SinkRow, {"name": "inbox"}, paused_at=5)
    count = Inbox.batch_size + 20
    for at in range(0, count, 260):
        bench.record(*(bench.entry() for _ in range(min(260, count - at))))
    bench.rows.change(tables.SinkRow, {"name": "inbox"}, paused_at=None)

    Drain(bench.ports).run("t-red/inbox", Bell(), 0.0)

    assert bench.query("SELECT count(*) FROM inbox_item") == [(count,)]


@pytest.mark.parametrize(
    ("table", "key", "change", "expected"),
    [
        (tables.RouteRow, {"owner": "ana"}, {"removed_at": 5}, ("cancelled", 0, "route removed or expired", 1)),
        (tables.SinkRow, {"name": "wide"}, {"paused_at": 5}, ("held", 0, "sink paused", 1)),
        (tables.SinkRow, {"name": "wide"}, {"kind": "telegraph"}, ("held", 0, TELEGRAPH, 1)),
        (tables.PrincipalRow, {"id": "ana"}, {"disabled_at": 5}, ("denied", 1, "denied: principal disabled", 1)),
    ],
)
def test_a_late_hand_over_looks_at_everything_a_claim_looks_at(bench, table, key, change, expected):
    """What changed between the claim and a late hand-over ends or holds the delivery as it would have at the claim."""
    bench.record(bench.entry())
    runner = Drain(bench.ports)
    work = runner.claim(LANE)
    bench.rows.change(table, key, **change)

    runner.hand_over(work.opened, work.batches[0], time.monotonic() - 1.0)

    assert states(bench) == [expected]
    assert Wide.taken == []


@pytest.mark.spec("9.5.no-skip")
@pytest.mark.parametrize(
    ("table", "key", "expected"),
    [
        (tables.GrantRow, {"principal": "ana"}, ("denied", 1, "denied: missing sense.enable", 1)),
        (tables.RouteRow, {"owner": "ana"}, ("cancelled", 0, "route removed or expired", 1)),
    ],
)
def test_what_ends_before_a_late_hand_over_is_seen_by_it(bench, monkeypatch, table, key, expected):
    """The end of a grant or route moves no version: a late hand-over looks at the clock for it."""
    clock, hour = Database.now, 3_600_000_000
    with bench.database.read() as connection:
        ends_at = bench.database.now(connection) + hour
    bench.rows.change(table, key, expires_at=ends_at)
    bench.record(bench.entry())
    runner = Drain(bench.ports)
    work = runner.claim(LANE)
    monkeypatch.setattr(Database, "now", lambda database, connection: clock(database, connection) + 2 * hour)

    runner.hand_over(work.opened, work.batches[0], time.monotonic() - 1.0)

    assert states(bench) == [expected]
    assert Wide.taken == []


def test_a_hand_over_that_might_outlive_its_lease_is_left_to_another_drain(bench):
    """A process that slept between claim and hand-over does not call the sink: another may be doing so by now."""
    bench.record(bench.entry())
    runner = Drain(bench.ports)
    work = runner.claim(LANE)

    runner.hand_over(work.opened, work.batches[0], time.monotonic() - bench.ports.lease_slack_s - 1)

    assert states(bench) == [("delivering", 1, None, 1)]
    assert Wide.taken == []


def test_a_workspace_that_cannot_be_looked_at_is_one_that_is_not_served(bench):
    """A folder whose name this file system does not take holds the delivery; it breaks no batch."""
    bench.rows.sink("files", "jsonl", {"workspace": True})
    bench.rows.grant("ana", "saved_item")
    bench.rows.route("ana", "saved_item", "files")
    bench.rows.change(tables.ActivationRow, {"id": "a-ana"}, workspace=f"/{'x' * 300}")

    bench.record(bench.entry("saved_item"))

    assert states(bench) == [("held", 0, "workspace not served by this worker", 1)]
