"""Lanes are drained: claimed, judged anew, handed over, settled where the lease is still ours (DESIGN §6.4-6)."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from runtime_core.errors import LedgerBusy
from sense_worker.drain import Drain, Nothing
from sense_worker.storage import tables
from sense_worker.storage.states import MAY_FOLLOW, SETTLED, State
from sinks.memory import Memory
from sinks.protocol import Delivered, Rejected, Retry, SinkBase
from sinks.registry import Registry
from tests.intake_bench import IntakeBench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database

LANE = "t-red/remote"


class Remote(SinkBase):
    """A sink that is not local, one delivery a call, two calls at once; scripted like the memory sink."""

    kind: ClassVar[str] = "remote"
    concurrency: ClassVar[int] = 2
    deadline_s: ClassVar[float] = 5.0

    def deliver(self, batch):
        return Memory.of("remote").take(batch)


class Together(Remote):
    """The same in batches of ten."""

    kind: ClassVar[str] = "together"
    concurrency: ClassVar[int] = 1
    batch_size: ClassVar[int] = 10


class Bell:
    """A doorbell that nobody rings."""

    def __init__(self) -> None:
        self.rung: list[str] = []

    def start(self, lane: str) -> None: ...

    def at_work(self, lane: str) -> None: ...

    def rest(self, lane: str) -> None: ...

    def wait(self, lane: str, seconds: float) -> bool:
        return False

    def stop(self, lane: str) -> bool:
        return False

    def ring(self, lanes: list[str]) -> None:
        self.rung += lanes


@pytest.fixture(params=["remote", "together"])
def kind(request) -> str:
    """The kind of the sink named `remote`."""
    return str(request.param)


@pytest.fixture
def bench(tmp_path: Path, database: Database, kind: str) -> Iterator[IntakeBench]:
    """A recorder and a drain, with ana granted and routed to the sink `remote`."""
    Memory.forget()
    registry = Registry()
    registry.register(Remote)
    registry.register(Together)
    bench = IntakeBench(tmp_path, database, registry, SENSE_RETRY_SCHEDULE_S="5,300", SENSE_RETRY_JITTER="0")
    with bench.rows.together():
        bench.rows.sink("remote", kind, audience="principal:ana")
        bench.rows.grant("ana")
        bench.rows.route("ana", sink="remote")
    yield bench
    bench.close()


def drain(bench: IntakeBench) -> None:
    """Drain the lane once."""
    Drain(bench.ports).run(LANE, Bell(), 0.0)


def due_now(bench: IntakeBench) -> None:
    """Move every due time into the past, as time would."""
    with bench.database.write() as connection:
        connection.exec_driver_sql("UPDATE sense_delivery SET due_at = 1 WHERE due_at < 4000000000000000000")


def row(bench: IntakeBench, columns: str = "state, attempt, reason") -> tuple[Any, ...]:
    """Return columns of the only delivery."""
    return bench.query(f"SELECT {columns} FROM sense_delivery")[0]


def test_pending_deliveries_reach_the_sink_once(bench):
    """Thirty events ring their lane and are handed over once each, settled as delivered, without an attempt row."""
    parts = bench.recorded(*(bench.entry(data={"n": number}) for number in range(30)))
    assert {lane for part in parts for lane in part.ring} == {LANE}

    drain(bench)

    assert len({one.id for one in Memory.of("remote").attempts}) == 30
    assert bench.query("SELECT state, attempt, count(*) FROM sense_delivery GROUP BY state, attempt") == [
        ("delivered", 1, 30)
    ]
    assert bench.query("SELECT count(*) FROM sense_attempt") == [(0,)]
    assert max(Memory.of("remote").batches) <= 10


@pytest.mark.case("C14")
def test_a_grant_withdrawn_before_the_retry_is_a_denial(bench):
    """After a failed first try the grant goes: no further attempt reaches the sink; replayed with it, it arrives."""
    Memory.of("remote").outcomes = [Retry("answered 503")]
    bench.record(bench.entry())
    drain(bench)
    assert row(bench) == ("retrying", 1, "answered 503")
    bench.rows.revoke("grt-ana-new_item-")
    due_now(bench)

    drain(bench)

    assert row(bench) == ("denied", 2, "denied: missing sense.enable")
    assert len(Memory.of("remote").attempts) == 1
    assert bench.audited()[-1]["reason"] == "denied: missing sense.enable"


@pytest.mark.case("C14")
def test_a_sink_switched_off_before_the_retry_holds_it(bench):
    """After a failed first try the sink is paused: the delivery is held, and goes on when it is resumed."""
    Memory.of("remote").outcomes = [Retry("answered 503")]
    bench.record(bench.entry())
    drain(bench)
    bench.rows.change(tables.SinkRow, {"name": "remote"}, paused_at=5)
    due_now(bench)

    drain(bench)
    assert row(bench) == ("held", 1, "sink paused")
    bench.rows.change(tables.SinkRow, {"name": "remote"}, paused_at=None)
    drain(bench)

    assert row(bench, "state, attempt") == ("delivered", 2)


@pytest.mark.spec("9.5.no-skip")
@pytest.mark.parametrize("moment", ["claimed", "queued"])
def test_a_revocation_after_the_claim_is_seen_by_a_late_hand_over(bench, moment):
    """A hand-over that starts late reads the versions again, so a revocation in between denies."""
    bench.record(bench.entry())
    runner = Drain(bench.ports)
    work = runner.claim(LANE)
    bench.rows.revoke("grt-ana-new_item-")

    runner.hand_over(work.opened, work.batches[0], time.monotonic() - (1.0 if moment == "queued" else 0.0))

    expected = ("denied", 1) if moment == "queued" else ("delivered", 1)
    assert row(bench, "state, attempt") == expected


def test_retries_follow_the_schedule_and_end_dead(bench):
    """Each failure is due after its delay by the database's clock; after the last the delivery is dead."""
    Memory.of("remote").outcomes = [Retry("no 1"), Retry("no 2", after=60), Retry("no 3")]
    bench.record(bench.entry())
    delays = []
    for _ in range(2):
        drain(bench)
        with bench.database.read() as connection:
            now = bench.database.now(connection)
        delays.append(round((row(bench, "due_at")[0] - now) / 1e6))
        due_now(bench)
    drain(bench)

    assert delays == [5, 60]
    assert row(bench) == ("dead", 3, "attempts used up: no 3")
    attempts = bench.query("SELECT attempt, state, reason, by FROM sense_attempt ORDER BY seq")
    assert attempts == [
        (1, "retrying", "no 1", "drain"),
        (2, "retrying", "no 2", "drain"),
        (3, "dead", "attempts used up: no 3", "drain"),
    ]


def test_a_rejected_delivery_is_dead_at_once_and_stop_disables_the_sink(bench):
    """Rejected is never tried again; with stop the sink row says why, and what waits is held."""
    Memory.of("remote").outcomes = [Rejected("gone", stop=True)]
    bench.record(bench.entry())
    drain(bench)
    bench.record(bench.entry())
    drain(bench)

    states = bench.query("SELECT state, reason FROM sense_delivery ORDER BY created_at")
    assert states == [("dead", "rejected: gone"), ("held", "sink disabled: gone")]
    assert len(Memory.of("remote").attempts) == 1


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (ValueError("a secret"), "sink raised ValueError, at "),
        (SystemExit(3), "sink raised SystemExit, at "),
        (KeyboardInterrupt(), "sink raised KeyboardInterrupt, at "),
        ("yes", "sink answered str"),
        (Delivered(5), "sink answered Delivered with a value of another type"),
        (Retry("busy", "soon"), "sink answered Retry with a value of another type"),
        (Rejected(b"no"), "sink answered Rejected with a value of another type"),
    ],
)
def test_whatever_a_sink_does_wrong_is_a_retry(bench, outcome, reason):
    """An exception or an answer outside the contract is tried again with a bounded reason, never taken for success."""
    Memory.of("remote").outcomes = [outcome]
    bench.record(bench.entry())

    drain(bench)

    state, attempt, text = row(bench)
    assert (state, attempt) == ("retrying", 1)
    assert text.startswith(reason)
    assert "secret" not in text


@pytest.mark.case("C62")
def test_a_sinks_reason_cannot_break_a_line(bench):
    """Control characters in a reason are escaped in row and audit, and it is cut."""
    Memory.of("remote").outcomes = [Retry("a\nb\x1b[2J" + "x" * 1_000)]
    bench.record(bench.entry())

    drain(bench)

    reason = row(bench)[2]
    assert reason.startswith("a\\nb\\x1b[2J")
    assert len(reason) == 500
    assert bench.audited()[-1]["ok"] is False


@pytest.mark.case("C40")
@pytest.mark.case("C36")
def test_three_deaths_alone_end_a_delivery_without_a_sink_call(bench):
    """The first death, in company, gives the attempt back; after three more, alone, the delivery is dead."""
    bench.record(bench.entry())
    seen = []
    for _ in range(5):
        work = Drain(bench.ports).claim(LANE)
        seen += [
            (one.claimed.attempt, one.claimed.alone, one.claimed.crashes) for batch in work.batches for one in batch
        ]
        due_now(bench)

    assert seen == [(1, False, 0), (1, True, 0), (1, True, 1), (1, True, 2)]
    assert row(bench, "state, reason") == ("dead", "crashed: its process died 3 times")
    assert Memory.of("remote").attempts == []


@pytest.mark.case("C36")
def test_rows_of_a_lapsed_lease_yield_to_fresh_ones_and_run_alone(bench):
    """What may kill its process again is claimed by itself, after what is fresh."""
    bench.record(bench.entry(), bench.entry())
    first = Drain(bench.ports).claim(LANE)
    with bench.database.write() as connection:
        connection.exec_driver_sql(
            f"UPDATE sense_delivery SET due_at = {bench.database.now(connection) - 1} WHERE state = 'delivering'"
        )
    bench.record(bench.entry())

    fresh = [one for batch in Drain(bench.ports).claim(LANE).batches for one in batch]
    assert [one.claimed.alone for one in fresh] == [False]
    assert {one.claimed.event_id for one in fresh}.isdisjoint(
        one.claimed.event_id for batch in first.batches for one in batch
    )


@pytest.mark.case("C40")
def test_a_late_settlement_after_the_lease_lapsed_changes_nothing(bench):
    """A process that wakes after another took its delivery over settles nothing (fencing)."""
    bench.record(bench.entry())
    late = Drain(bench.ports)
    work = late.claim(LANE)
    due_now(bench)
    other = Drain(bench.ports)
    taken = other.claim(LANE)
    Memory.of("remote").outcomes = [Rejected("late"), Delivered("in time")]

    late.hand_over(work.opened, work.batches[0], work.claimed_at)
    assert row(bench, "state, lease") == ("delivering", taken.batches[0][0].claimed.lease)
    other.hand_over(taken.opened, taken.batches[0], taken.claimed_at)

    assert row(bench, "state, receipt") == ("delivered", "in time")


def test_the_lanes_concurrency_holds_over_all_drains(bench, kind):
    """What is under a live lease anywhere counts: two drains together start no more calls than the sink allows."""
    for _ in range(25):
        bench.record(bench.entry())
    one, two = Drain(bench.ports).claim(LANE), Drain(bench.ports).claim(LANE)

    sizes = [len(batch) for batch in one.batches]
    assert sizes == ([1, 1] if kind == "remote" else [10])
    assert two is Nothing.FREE


def test_a_route_that_was_removed_cancels_what_waits(bench):
    """A delivery whose route is gone is cancelled, with the reason, and never handed over."""
    bench.record(bench.entry())
    bench.rows.change(tables.RouteRow, {"owner": "ana"}, removed_at=5)

    drain(bench)

    assert row(bench, "state, reason") == ("cancelled", "route removed or expired")
    assert Memory.of("remote").attempts == []


def test_a_workspace_that_is_not_here_holds_the_delivery(bench, tmp_path):
    """Land local waits for a worker that has the folder, and goes on when it is there."""
    folder = tmp_path / "work"
    bench.rows.sink("files", "jsonl", {"workspace": True})
    bench.rows.grant("ana", "saved_item")
    bench.rows.route("ana", "saved_item", "files")
    bench.rows.change(tables.ActivationRow, {"id": "a-ana"}, workspace=str(folder))
    bench.record(bench.entry("saved_item"))
    assert row(bench, "state, reason") == ("held", "workspace not served by this worker")
    folder.mkdir()
    due_now(bench)

    Drain(bench.ports).run("t-red/files", Bell(), 0.0)

    assert row(bench, "state") == ("delivered",)
    assert len((folder / ".sense" / "events.jsonl").read_text().splitlines()) == 1


def test_the_inbox_is_written_by_a_drain_in_the_settling_transaction(bench):
    """An inbox that was paused at arrival gets its item from the drain, exactly once."""
    bench.rows.route("ana", sink="inbox")
    bench.rows.change(tables.SinkRow, {"name": "inbox"}, paused_at=5)
    bench.record(bench.entry())
    bench.rows.change(tables.SinkRow, {"name": "inbox"}, paused_at=None)

    for _ in range(2):
        Drain(bench.ports).run("t-red/inbox", Bell(), 0.0)

    assert bench.query("SELECT state FROM sense_delivery WHERE lane = 't-red/inbox'") == [("delivered",)]
    assert bench.query("SELECT count(*) FROM inbox_item") == [(1,)]


def test_two_drains_at_once_hand_each_delivery_over_once(bench):
    """Four drains in threads, two hundred deliveries: each reaches the sink once."""
    bench.record(*(bench.entry() for _ in range(200)))

    threads = [threading.Thread(target=drain, args=(bench,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drain(bench)

    assert len(Memory.of("remote").attempts) == 200
    assert bench.query("SELECT state, count(*) FROM sense_delivery GROUP BY state") == [("delivered", 200)]


def test_settled_states_follow_nothing_but_a_replay():
    """The table of states: a settled delivery moves only back to pending, by a replay, and delivered never."""
    after = {state: MAY_FOLLOW[state] for state in SETTLED}

    assert after == {
        State.DELIVERED: frozenset(),
        State.CANCELLED: frozenset(),
        State.DENIED: frozenset({State.PENDING}),
        State.DEAD: frozenset({State.PENDING}),
    }
    assert set(MAY_FOLLOW) == set(State)


def test_a_turn_to_write_is_waited_for_no_longer_than_the_database(bench, monkeypatch):
    """A thread of the process that holds SQLite's turn for ever costs a claim its bound, not its slot."""
    monkeypatch.setattr("sense_worker.drain.BUSY_TIMEOUT_S", 0.05)
    drain = Drain(bench.ports)
    one_writer = bench.database.kind == "sqlite"
    told = pytest.raises(LedgerBusy, match="another thread of this process writes") if one_writer else nullcontext()

    with drain._writing, told:
        assert drain.claim(LANE) is Nothing.DUE
    assert drain.claim(LANE) is Nothing.DUE
