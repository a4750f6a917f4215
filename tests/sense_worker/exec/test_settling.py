"""When an end is written to its row: answered reads wait for each other, whoever is waited for does not wait."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from runtime_core.errors import LedgerBusy
from sense_worker.exec.record import ExecRecorder
from sense_worker.storage.exec_ledger import ExecLedger
from sense_worker.storage.rows import Rows as Statements

if TYPE_CHECKING:
    from collections.abc import Callable

    from sense_worker.exec.asking import Request
    from sense_worker.exec.engine import Engine
    from tests.exec_bench import ExecBench

LONG_S = 3_600.0


def reader(bench: ExecBench, settle_s: float) -> Engine:
    """Let the recorder start reads in this process; returns the engine that runs them."""
    engine = bench.engine(settle_s=settle_s)
    bench.recorder = ExecRecorder(bench.ports, bench.relaxed, bench.vault, bench.redis, 60.0, engine)
    return engine


def run(bench: ExecBench, engine: Engine, request: Request) -> None:
    """Send a request and do the owner's turns until it is answered."""
    bench.send(request)
    turn(engine, lambda: bench.answer(request) is not None)


def turn(engine: Engine, done: Callable[[], bool]) -> None:
    """Do the owner's turns until something is so."""
    ends = time.monotonic() + 10
    while not done():
        assert time.monotonic() < ends
        engine.settle(engine.hear(0.01), None)


@pytest.fixture
def sizes(monkeypatch) -> list[int]:
    """How many rows each settling writes."""
    sizes: list[int] = []
    settle = ExecLedger.settle

    def noted(self, connection, settlements, now):
        sizes.append(len(settlements))
        settle(self, connection, settlements, now)

    monkeypatch.setattr(ExecLedger, "settle", noted)
    return sizes


def test_reads_are_settled_together_after_they_were_answered(bench: ExecBench, sizes):
    """Each client has its answer at once; their rows are written in one transaction, when the first has waited."""
    engine = reader(bench, 0.2)
    for _ in range(3):
        run(bench, engine, bench.ask())
    assert sizes == []
    turn(engine, lambda: not engine.busy)

    assert sizes == [3]
    assert bench.rows_of() == ["done"] * 3


def test_room_is_free_while_an_end_waits_to_be_settled(bench: ExecBench):
    """What is answered holds no place of the engine."""
    engine = reader(bench, LONG_S)

    for _ in range(2 * engine.free):
        run(bench, engine, bench.ask())

    assert set(bench.rows_of()) == {"running"}
    assert bench.tool.ran == ["mail.read"] * 8


@pytest.mark.parametrize("options", [{"idempotency_key": "k-1"}, {"verb_key": "mail.write"}], ids=["keyed", "write"])
def test_an_end_that_somebody_waits_for_is_settled_at_once(bench: ExecBench, options):
    """A result under an idempotency key is there for the next who asks; a write is answered after its row."""
    engine = reader(bench, LONG_S)
    request = bench.ask(**options)
    if "verb_key" in options:
        bench.send(request)
        engine.settle([], "exec.interactive")

    run(bench, engine, request)

    turn(engine, lambda: not engine.busy)
    assert bench.rows_of() == ["done"]


def test_a_read_that_was_answered_and_not_settled_keeps_its_first_answer(bench: ExecBench):
    """Its process died in between: it runs again when its lease is over, and the client has the first result."""
    engine = reader(bench, LONG_S)
    request = bench.ask(args={"text": "first"})
    run(bench, engine, request)
    bench.lapse()

    bench.drain()

    assert bench.answer(request).result == {"text": "first"}
    assert bench.rows_of() == ["done"]


def test_one_who_comes_while_a_result_is_settled_is_told(bench: ExecBench, monkeypatch):
    """A second request under a key, that found the first running, is seen by whoever settles the first meanwhile."""
    first, second = (bench.ask("mail.write", {"text": "x"}, idempotency_key="k") for _ in range(2))
    bench.send(first)
    engine = bench.engine()
    engine.settle([], "exec.interactive")
    heard = engine.hear(10.0)
    settling = threading.Thread(target=engine.settle, args=(heard, None))
    insert = ExecLedger.insert

    def late(*arguments):
        settling.start()  # between the look at what is known and the row that will wait for it
        settling.join(0.3)
        insert(*arguments)

    monkeypatch.setattr(ExecLedger, "insert", late)
    bench.send(second)
    settling.join(10.0)

    assert bench.answer(first) == bench.answer(second)
    assert bench.rows_of() == ["done", "done"]


class Away:
    """A Redis that is away for some pushes: its pipelines fail, as when the connection drops."""

    def __init__(self, client, fails: int) -> None:
        self._client = client
        self.fails = fails

    def pipeline(self, **options):
        if self.fails:
            self.fails -= 1
            raise RedisConnectionError
        return self._client.pipeline(**options)

    def __getattr__(self, name):
        return getattr(self._client, name)


@pytest.mark.parametrize("verb_key", ["mail.read", "mail.write"])
def test_an_answer_that_could_not_be_said_is_said_when_redis_is_back(bench: ExecBench, monkeypatch, verb_key):
    """Redis drops as a command ends: it runs once, its place is free, and its client has the answer later."""
    engine = reader(bench, 0.0)
    away = Away(bench.redis, fails=3)
    monkeypatch.setattr(engine, "_redis", away)
    request = bench.ask(verb_key)
    bench.send(request)
    if verb_key == "mail.write":
        engine.settle([], "exec.interactive")

    lost = 0
    ends = time.monotonic() + 10
    while engine.busy:
        assert time.monotonic() < ends
        try:
            engine.settle(engine.hear(0.05), None)
        except RedisError:
            lost += 1

    assert lost
    assert away.fails == 0
    assert engine.free == 4
    assert bench.answer(request).ok
    assert bench.rows_of() == ["done"]
    assert bench.tool.ran == [verb_key]


def test_a_request_that_no_key_opens_costs_no_place(bench: ExecBench):
    """Its key was dropped while it waited: it ends, unanswered, and the drain goes on with the next."""
    first, second = bench.ask("mail.write"), bench.ask("mail.write")
    bench.send(first)
    with bench.ports.requests.write() as connection:
        Statements(connection, bench.database.kind).execute("UPDATE sense_exec SET sealed = ?", (b"of another key",))
    bench.send(second)

    bench.drain()

    assert bench.answer(first) is None
    assert bench.answer(second).ok
    assert bench.rows_of() == ["done", "done"]
    assert bench.rows_of("error")[0] == "failed: internal"


def test_a_ledger_that_is_away_after_a_claim_loses_nothing(bench: ExecBench, monkeypatch):
    """The authority cannot be read just after the claim has committed: it is asked again, and the claim runs."""
    first, second = (bench.ask("mail.write", {"text": "x"}, idempotency_key="k") for _ in range(2))
    bench.send(first)
    bench.send(second)
    newest, away = (
        bench.ports.authorities.newest,
        [LedgerBusy("database", "is away"), LedgerBusy("database", "is away")],
    )

    def asked(tenants):
        if away:
            raise away.pop()
        return newest(tenants)

    monkeypatch.setattr(bench.ports.authorities, "newest", asked)
    bench.drain()

    assert away == []
    assert bench.answer(first) == bench.answer(second)
    assert bench.answer(second).result == {"text": "x"}
    assert bench.tool.ran == ["mail.write"]


def test_a_key_is_free_where_the_ledger_was_away_before_the_run(bench: ExecBench):
    """The mark of a write could not be set: nothing ran, and the same request under the key runs later."""

    def away(_call):
        raise LedgerBusy("database", "is away")

    bench.tool.does["mail.read"] = away
    first, second = (bench.ask(idempotency_key="k") for _ in range(2))
    bench.send(first)
    bench.drain()
    bench.tool.does.clear()
    bench.send(second)
    bench.drain()

    assert bench.answer(first).error == "failed: internal"
    assert bench.answer(second).ok
