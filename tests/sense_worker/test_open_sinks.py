"""Sinks are opened once in a process, and one that could not be opened is tried again."""

from __future__ import annotations

import os
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
    closed: ClassVar[int] = 0
    calls: ClassVar[list[str]] = []

    def close(self):
        type(self).closed += 1
        self.calls.append("close")

    def open(self):
        type(self).opened += 1
        self.calls.append("open")
        if self.fault is not None:
            raise self.fault

    def deliver(self, batch):
        raise NotImplementedError(batch)


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """Tenant t-red with the sink `door`."""
    Door.fault, Door.opened, Door.closed = None, 0, 0
    Door.calls.clear()
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
    assert str(look(bench)).startswith(said)
    assert "secret" not in str(look(bench))
    assert Door.opened == 1
    Door.fault = None
    assert isinstance(look(bench), str)

    monkeypatch.setattr(open_sinks, "REOPEN_S", 0.0)

    assert isinstance(look(bench), OpenSink)


def change_the_row(bench: IntakeBench) -> None:
    """Write the sink's row anew: sealed again, it is another one."""
    with bench.database.write() as connection:
        statements = Statements(connection, bench.database.kind)
        statements.execute("UPDATE sense_sink SET options = ?", (bench.vault.seal(b"{}"),))
        statements.execute("UPDATE sense_tenant SET authority_version = authority_version + 1")


def test_a_replaced_sink_is_closed_when_its_last_user_is_done(bench):
    """Two hand-overs hold it while its row changes: it stays open until both are done, then it is closed, once."""
    first, second = look(bench), look(bench)
    change_the_row(bench)

    assert look(bench) is not first
    assert (Door.opened, Door.closed) == (2, 0)
    del first
    assert Door.closed == 0
    del second
    assert Door.closed == 1


def test_a_sink_that_nobody_uses_is_closed_as_soon_as_it_is_replaced_or_let_go(bench):
    """Replaced, removed, or at the end of the process."""
    look(bench)
    change_the_row(bench)
    look(bench)
    order = list(Door.calls)
    bench.ports.sinks.close()

    assert (order, Door.calls[3:]) == (["open", "close", "open"], ["close"])


def test_a_child_does_not_close_what_its_parent_opened(bench):
    """After a fork the child forgets the parent's sinks: to close them would end what both share (C56)."""
    look(bench)
    pid = os.fork()
    if pid == 0:
        bench.ports.sinks.close()
        os._exit(Door.closed)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
