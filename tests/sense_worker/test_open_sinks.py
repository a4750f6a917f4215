"""Sinks are opened once in a process, and one that could not be opened is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from runtime_core.errors import UsageError
from sense_worker import open_sinks
from sense_worker.open_sinks import OpenSink
from sense_worker.storage.rows import Rows as Statements
from sinks.protocol import SinkBase
from sinks.registry import Registry
from tests.intake_bench import IntakeBench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database


class Door(SinkBase):
    """Opens when it is told to."""

    kind: ClassVar[str] = "door"
    fault: ClassVar[Exception | None] = None
    opened: ClassVar[int] = 0

    def open(self):
        type(self).opened += 1
        if self.fault is not None:
            raise self.fault

    def deliver(self, batch):
        raise NotImplementedError(batch)


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """Tenant t-red with the sink `door`."""
    Door.fault, Door.opened = None, 0
    registry = Registry()
    registry.register(Door)
    bench = IntakeBench(tmp_path, database, registry)
    bench.rows.sink("door", "door")
    yield bench
    bench.close()


def look(bench: IntakeBench) -> OpenSink | str:
    """Ask for the sink once."""
    with bench.database.read() as connection:
        authority = bench.ports.authorities.current(connection, ["t-red"])["t-red"]
        return bench.ports.sinks.get(Statements(connection, bench.database.kind), authority, "door")


def test_a_sink_is_opened_once_whatever_else_changes(bench):
    """Another version of the authority with the same row keeps the sink."""
    first = look(bench)
    bench.rows.principal("ben")

    assert look(bench) is first
    assert Door.opened == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ConnectionError("https://secret@host"), "sink cannot be opened: ConnectionError, at "),
        (UsageError("options.path", "is not there"), "sink cannot be opened: options.path: is not there"),
    ],
)
def test_a_sink_that_could_not_be_opened_is_tried_again_later(bench, monkeypatch, fault, said):
    """It says why, without what a plugin's own error may hold; it is not tried at every event, and opens in the end."""
    Door.fault = fault
    assert look(bench).startswith(said)
    assert "secret" not in look(bench)
    assert Door.opened == 1
    Door.fault = None
    assert isinstance(look(bench), str)

    monkeypatch.setattr(open_sinks, "REOPEN_S", 0.0)

    assert isinstance(look(bench), OpenSink)
