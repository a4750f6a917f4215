"""A call to a sink that takes long is left to its thread: it holds no slot of the pool (C44)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, ClassVar

import pytest

from sense_worker.drain import Drain, Nothing, Work
from sinks.protocol import Delivered, SinkBase
from sinks.registry import Registry
from tests.intake_bench import IntakeBench
from tests.live.worlds import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database

LANE = "t-red/remote"


class Slow(SinkBase):
    """Answers when it is let; two calls at once."""

    kind: ClassVar[str] = "slow"
    concurrency: ClassVar[int] = 2
    deadline_s: ClassVar[float] = 30.0
    let: ClassVar[threading.Event]
    called: ClassVar[list[str]]

    def deliver(self, batch):
        self.called.extend(one.id for one in batch)
        assert self.let.wait(20)
        return [Delivered()] * len(batch)


class Bell:
    """A doorbell that remembers what was done to it."""

    def __init__(self) -> None:
        self.rung: list[str] = []
        self.rests = 0

    def start(self, lane: str) -> None: ...

    def at_work(self, lane: str) -> None: ...

    def rest(self, lane: str) -> None:
        self.rests += 1

    def wait(self, lane: str, seconds: float) -> bool:
        return False

    def stop(self, lane: str) -> bool:
        return False

    def ring(self, lanes: list[str]) -> None:
        self.rung += lanes


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """A recorder, with ana granted and routed to the slow sink."""
    Slow.let, Slow.called = threading.Event(), []
    registry = Registry()
    registry.register(Slow)
    bench = IntakeBench(tmp_path, database, registry)
    bench.rows.sink("remote", "slow", audience="principal:ana")
    bench.rows.grant("ana")
    bench.rows.route("ana", sink="remote")
    yield bench
    Slow.let.set()
    # What was left settles by itself: the database is closed after it, not under it.
    until(lambda: not any(one.name.startswith("deliver") for one in threading.enumerate()), 20, "all calls have ended")
    bench.close()


def states(bench: IntakeBench) -> dict[str, int]:
    return dict(bench.query("SELECT state, count(*) FROM sense_delivery GROUP BY state"))


@pytest.mark.case("C44")
def test_a_drain_leaves_calls_that_hang_and_each_rings_at_its_end(bench):
    """Two of five hang: the drain ends; let go, both settle and ring, and the next drain has the rest."""
    bench.record(*(bench.entry(data={"n": number}) for number in range(5)))
    bell = Bell()
    drain = Drain(bench.ports)

    drain.run(LANE, bell, 0.0)

    assert (states(bench), bell.rung, bell.rests) == ({"delivering": 2, "pending": 3}, [], 0)
    drain.run(LANE, bell, 0.0)
    assert (len(Slow.called), bell.rests) == (2, 1), "a lane whose calls are all out is left alone"
    Slow.let.set()
    until(lambda: bell.rung == [LANE, LANE], 10, "both rang")
    assert states(bench) == {"delivered": 2, "pending": 3}
    drain.run(LANE, bell, 0.0)
    drain.finish()
    assert states(bench) == {"delivered": 5}
    assert len(set(Slow.called)) == len(Slow.called) == 5


def test_no_transaction_asks_what_the_drain_knows(bench, monkeypatch):
    """With both calls out nothing can be claimed: the drain waits for one to end without a transaction."""
    claimed: list[object] = []
    claim = Drain.claim
    monkeypatch.setattr(Drain, "claim", lambda drain, lane: claimed.append(claim(drain, lane)) or claimed[-1])
    bench.record(*(bench.entry(data={"n": number}) for number in range(5)))

    Drain(bench.ports).run(LANE, Bell(), 0.0)

    assert [type(one) for one in claimed] == [Work]
    assert (states(bench), len(Slow.called)) == ({"delivering": 2, "pending": 3}, 2)


def test_an_orderly_stop_waits_for_the_calls_that_were_left(bench):
    """`finish` returns when they have ended and settled."""
    bench.record(bench.entry())
    drain = Drain(bench.ports)
    drain.run(LANE, Bell(), 0.0)
    threading.Timer(0.2, Slow.let.set).start()

    drain.finish()

    assert states(bench) == {"delivered": 1}


def test_a_row_that_may_end_its_process_is_not_blamed_for_a_death_in_company(bench):
    """Alone in its batch, but beside a call of the same process that hangs, it is not marked as being alone."""
    bench.record(bench.entry(data={"n": 1}))
    drain = Drain(bench.ports)
    drain.run(LANE, Bell(), 0.0)
    bench.record(bench.entry(data={"n": 2}))
    with bench.database.write() as connection:
        connection.exec_driver_sql("UPDATE sense_delivery SET state = 'delivering', due_at = 1 WHERE state = 'pending'")

    beside = drain.claim(LANE)
    elsewhere = Drain(bench.ports).claim(LANE)

    assert isinstance(beside, Work)
    assert (beside.alone, elsewhere) == (False, Nothing.FREE)
