"""The loop keeps a batch in hand while this installation cannot record it, and loses none of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.errors import AuditUnavailable, LedgerBusy
from sense_worker.intake.loop import IntakeLoop
from sense_worker.intake.record import Recorder
from sense_worker.storage.authority import SqlAuthoritySource
from sense_worker.vault import Vault
from sinks.registry import Registry
from tests.intake_bench import IntakeBench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database


class Streams:
    """Hands nothing out; keeps what was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: list[Any] = []

    def micros(self) -> int:
        return 1

    def acknowledge(self, entries: Any) -> None:
        self.acknowledged += entries


class Pulse:
    """Keeps the states it was told, and stops the loop at the second."""

    def __init__(self, stop: threading.Event) -> None:
        self.states: list[str] = []
        self._stop = stop

    def write(self, _now: int, state: str) -> None:
        self.states.append(state)
        if len(self.states) > 1:
            self._stop.set()


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """Tenant t-red with ana granted and routed to the inbox."""
    bench = IntakeBench(tmp_path, database)
    bench.rows.grant("ana")
    bench.rows.route("ana")
    yield bench
    bench.close()


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        (None, "sealed secret: no key opens it"),
        (LedgerBusy("database", "is locked"), "ledger busy"),
        (AuditUnavailable("audit.jsonl", "disk full"), "audit unavailable"),
    ],
)
def test_a_fault_of_the_installation_keeps_entries_where_they_are(bench, monkeypatch, fault, state):
    """A lost key, a locked database, a full disk: no entry is refused or acknowledged for it, and health says why."""
    if fault is None:
        lost = SqlAuthoritySource(bench.database, Registry(), Vault([b"x" * 32]))
        monkeypatch.setattr(bench.ports.authorities, "_source", lost)
    else:

        def fail(*_: Any) -> None:
            raise fault

        monkeypatch.setattr(bench.ports.audit, "append", fail)
        monkeypatch.setattr(bench.ports.ledger, "insert_events", fail)
    stop, streams = threading.Event(), Streams()
    pulse = Pulse(stop)
    limits = {"reclaim_s": 1, "crash_limit": 3, "batch_bytes": 1_000_000}
    loop = IntakeLoop(streams, Recorder(bench.ports), None, None, pulse, list, stop, **limits)

    handled = loop._handle([bench.entry()], 1)

    assert handled is False
    assert (pulse.states, streams.acknowledged) == ([state, state], [])
    assert bench.dead() == []
