"""A store of dead entries that cannot be reached for a while: the entry waits, and is recorded once (C43)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from sense_worker.intake import loop as loop_module
from sense_worker.intake.loop import IntakeLoop
from sense_worker.intake.record import Recorder
from tests.intake_bench import IntakeBench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sense_worker.intake.stream import StreamEntry
    from sense_worker.storage.engine import Database

AWAY_S = 30.0


class Stop:
    """The clock of a loop: its pauses pass at once, and after `AWAY_S` of them somebody repairs."""

    def __init__(self, repair: Callable[[], object]) -> None:
        self._repair = repair
        self.pauses: list[float] = []

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        before = sum(self.pauses)
        self.pauses.append(seconds)
        if before < AWAY_S <= sum(self.pauses):
            self._repair()
        return False


class Streams:
    """A reader's stream: says when what was acknowledged, and may lose the acknowledgement with its process."""

    def __init__(self, recorded: Callable[[], int]) -> None:
        self._recorded = recorded
        self.acknowledged: list[tuple[str, int]] = []

    def micros(self) -> int:
        return 2**60

    def acknowledge(self, entries: list[StreamEntry]) -> None:
        self.acknowledged += [(entry.id, self._recorded()) for entry in entries]


class Nothing:
    """A bell, a pulse and a drain; the pulse keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def ring(self, _lanes: object) -> None: ...

    def leave(self) -> None: ...

    def write(self, _now: int, state: str) -> None:
        self.said.append(state)


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """A recorder on each of the two databases, with ana granted and routed to the inbox."""
    bench = IntakeBench(tmp_path, database)
    bench.rows.grant("ana")
    bench.rows.route("ana")
    yield bench
    bench.close()


@contextmanager
def moved(bench: IntakeBench, **_: object) -> Iterator[Callable[[], object]]:
    """The table is not there."""
    execute(bench, "ALTER TABLE sense_dead_entry RENAME TO moved_away")
    yield lambda: execute(bench, "ALTER TABLE moved_away RENAME TO sense_dead_entry")


@contextmanager
def another_kind(bench: IntakeBench, **_: object) -> Iterator[Callable[[], object]]:
    """Something of another kind stands under its name."""
    execute(bench, "ALTER TABLE sense_dead_entry RENAME TO moved_away", "CREATE VIEW sense_dead_entry AS SELECT 1 AS n")
    yield lambda: execute(bench, "DROP VIEW sense_dead_entry", "ALTER TABLE moved_away RENAME TO sense_dead_entry")


@contextmanager
def down(bench: IntakeBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], object]]:
    """The database does not answer."""
    database = bench.ports.database

    def refused(_engine: sa.Engine) -> sa.Connection:
        raise sa.exc.OperationalError("", None, database._driver.OperationalError("connection refused"))

    with monkeypatch.context() as patch:
        patch.setattr(database, "_connection", refused)
        yield patch.undo


def execute(bench: IntakeBench, *statements: str) -> None:
    """Run statements as somebody else."""
    with bench.database.write() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


@pytest.mark.case("C43")
@pytest.mark.parametrize("fault", [moved, another_kind, down], ids=lambda fault: fault.__name__)
def test_an_entry_waits_thirty_seconds_for_its_record_and_has_one(bench, monkeypatch, fault):
    """Nothing is acknowledged without its record; after the repair there is one, also where the process then died."""
    bad, good = bench.entry(body=b"[1]"), bench.entry()
    nothing = Nothing()
    bench.recorder.record([], 2**60)  # what the process knows before the fault
    with fault(bench, monkeypatch=monkeypatch) as repair:
        stop = Stop(repair)
        streams = Streams(lambda: len(bench.dead()))
        limits = {"reclaim_s": 1.0, "crash_limit": 3, "batch_bytes": 1_000_000}
        recorder = Recorder(bench.ports)
        parts = (streams, recorder, nothing, nothing, nothing, lambda: ["t-red"], stop)
        loop = IntakeLoop(*parts, **limits)  # type: ignore[arg-type]
        assert loop._handle([bad, good], 2**60)
        assert streams.acknowledged == []
        loop.leave()

    assert streams.acknowledged == [(bad.id, 1), (good.id, 1)]
    assert set(nothing.said) == {"ledger busy"}
    assert sum(stop.pauses) < AWAY_S + loop_module.PAUSE_CEILING_S
    assert [word for word, _ in bench.dead()] == ["malformed"]
    assert [line["reason"] for line in bench.audited() if not line["ok"]] == ["refused: malformed"]
    assert loop._handle([bad, good], 2**60)  # as the next reader would, had this one died before its acknowledgement
    assert len(bench.dead()) == 1
    assert bench.query("SELECT count(*) FROM inbox_item") == [(1,)]
