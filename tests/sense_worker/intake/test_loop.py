"""The intake loop: what fails for its content is found and buried, what killed a reader is buried unread (C05)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from runtime_core.errors import HcpError, LedgerBusy
from sense_worker.intake import loop as loop_module
from sense_worker.intake.loop import IntakeLoop
from sense_worker.intake.record import Recorder
from tests.intake_bench import IntakeBench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database


class Streams:
    """A reader that holds what a test gives it; `died` is how often a process ended with an entry alone."""

    def __init__(self, died: int = 0) -> None:
        self.died = died
        self.acknowledged: list[str] = []

    def micros(self) -> int:
        return 2**60

    def mark_alone(self, _entry) -> int:
        return self.died

    def unmark_alone(self, entry) -> None:
        raise AssertionError(entry)

    def acknowledge(self, entries) -> None:
        self.acknowledged += [entry.id for entry in entries]


class Nothing:
    """A bell, a pulse and a drain that have nothing to do."""

    def ring(self, _lanes) -> None: ...

    def write(self, _now, _state) -> None: ...

    def leave(self) -> None: ...


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """A recorder on each of the two databases, with ana granted and routed to the inbox."""
    bench = IntakeBench(tmp_path, database)
    bench.rows.grant("ana")
    bench.rows.route("ana")
    yield bench
    bench.close()


def loop(bench: IntakeBench, streams: Streams, recorder: Recorder) -> IntakeLoop:
    """Return a loop over these parts."""
    nothing = Nothing()
    limits = {"reclaim_s": 1.0, "crash_limit": 3, "batch_bytes": 1_000_000}
    return IntakeLoop(streams, recorder, nothing, nothing, nothing, lambda: ["t-red"], threading.Event(), **limits)


@pytest.mark.case("C05")
def test_an_entry_that_ended_three_processes_is_buried_without_being_looked_at(bench, monkeypatch):
    """After three deaths alone the entry is `crashed`, acknowledged, and never admitted again."""
    entry, streams = bench.entry(deliveries=4), Streams(died=3)
    recorder = Recorder(bench.ports)
    monkeypatch.setattr(recorder, "record", lambda *_: pytest.fail("it was looked at"))

    loop(bench, streams, recorder)._handle_alone(entry)

    assert [word for word, _ in bench.dead()] == ["crashed"]
    assert streams.acknowledged == [entry.id]
    assert bench.query("SELECT count(*) FROM sense_event") == [(0,)]


@pytest.mark.case("C05")
def test_an_entry_that_died_less_often_is_handled(bench):
    """Two deaths are not three: the entry is recorded like any other."""
    entry, streams = bench.entry(deliveries=3), Streams(died=2)

    loop(bench, streams, Recorder(bench.ports))._handle_alone(entry)

    assert bench.query("SELECT count(*) FROM inbox_item") == [(1,)]
    assert streams.acknowledged == [entry.id]


@pytest.mark.case("C05")
def test_the_one_entry_that_fails_is_found_and_its_neighbours_are_recorded(bench, monkeypatch):
    """A batch that fails for one entry is halved; that one is tried three times and buried, the rest are delivered."""
    entries, streams = [bench.entry() for _ in range(7)], Streams()
    recorder = Recorder(bench.ports)
    record, tries = recorder.record, []

    def failing(batch, now):
        if entries[4] in batch:
            tries.append(len(batch))
            raise RuntimeError("of this entry alone")
        return record(batch, now)

    monkeypatch.setattr(recorder, "record", failing)
    reading = loop(bench, streams, recorder)
    reading._handle(entries, 2**60)
    reading.leave()

    assert bench.query("SELECT count(*) FROM inbox_item") == [(6,)]
    assert bench.query("SELECT stream_id, word FROM sense_dead_entry") == [(entries[4].id, "crashed")]
    assert sorted(streams.acknowledged) == sorted(entry.id for entry in entries)
    assert tries.count(1) == 3


class Marks(Streams):
    """A reader that counts the marks taken back."""

    unmarked = 0

    def unmark_alone(self, entry) -> None:
        self.unmarked += 1


@pytest.mark.parametrize(
    ("fault", "ends"),
    [(HcpError("sealed secret", "no key opens it"), True), (LedgerBusy("database", "locked"), False)],
)
def test_a_fault_that_no_further_try_mends_ends_the_loop_in_order(bench, monkeypatch, fault, ends):
    """A key was read at the start: the entry stays pending, and that counts as no death; a lock is waited for."""
    entry, streams, recorder = bench.entry(deliveries=2), Marks(), Recorder(bench.ports)
    record, tries = recorder.record, []

    def failing(entries, now):
        tries.append(entries)
        if len(tries) < 4:
            raise fault
        return record(entries, now)

    monkeypatch.setattr(loop_module, "FRESH_START_S", 0.0)
    monkeypatch.setattr(recorder, "record", failing)
    reading = loop(bench, streams, recorder)
    reading._handle_alone(entry)

    assert (reading.ended_by is fault, reading._stop.is_set()) == (ends, ends)
    assert (len(tries), streams.unmarked) == ((1, 1) if ends else (4, 0))
    assert streams.acknowledged == ([] if ends else [entry.id])
