"""Many processes on one database: writers that read first, and connections opened before the fork."""

from __future__ import annotations

import multiprocessing
import os
import threading
from typing import TYPE_CHECKING

import pytest

from runtime_core.errors import LedgerBusy
from sense_worker.storage import engine
from sense_worker.storage.engine import Database
from sense_worker.storage.rows import Rows

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

WRITERS = 8
SPAWN = multiprocessing.get_context("spawn")
FORK = multiprocessing.get_context("fork")


def write(url: str, writer: int, rows: int, told: Queue[str]) -> None:
    """Write rows, each in a transaction that reads first."""
    database = Database(url)
    for number in range(rows):
        with database.write() as connection:
            statements = Rows(connection, database.kind)
            total = statements.query("SELECT n FROM counter")[0][0]
            statements.execute("UPDATE counter SET n = ?", (total + 1,))
            statements.execute("INSERT INTO written (writer, number) VALUES (?, ?)", (writer, number))
    database.dispose()
    told.put("done")


def read_always(url: str, told: Queue[str], stop: multiprocessing.synchronize.Event) -> None:
    """Read until told to stop; what is seen never goes back."""
    database = Database(url)
    seen = 0
    while not stop.is_set():
        with database.read() as connection:
            now = Rows(connection, database.kind).query("SELECT n FROM counter")[0][0]
        if now < seen:
            told.put(f"went back from {seen} to {now}")
        seen = now
    database.dispose()
    told.put("read")


@pytest.mark.case("C55")
@pytest.mark.parametrize("rows", [60, pytest.param(500, marks=pytest.mark.long)])
def test_eight_writers_and_a_reader_on_one_file_lose_nothing(tmp_path, rows):
    """Every row and every increment of eight processes is there, with no error shown and a reader all the while."""
    url = f"sqlite:///{tmp_path / 'many.db'}"
    database = Database(url)
    database.create()
    with database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE counter (n INTEGER)")
        connection.exec_driver_sql("CREATE TABLE written (writer INTEGER, number INTEGER)")
        connection.exec_driver_sql("INSERT INTO counter VALUES (0)")
    told, stop = SPAWN.Queue(), SPAWN.Event()
    reader = SPAWN.Process(target=read_always, args=(url, told, stop))
    writers = [SPAWN.Process(target=write, args=(url, number, rows, told)) for number in range(WRITERS)]
    for process in (reader, *writers):
        process.start()
    for process in writers:
        process.join(110)
    stop.set()
    reader.join(20)

    assert sorted(told.get(timeout=5) for _ in range(WRITERS + 1)) == ["done"] * WRITERS + ["read"]
    with database.read() as connection:
        assert Rows(connection, "sqlite").query("SELECT n FROM counter") == [(WRITERS * rows,)]
        assert Rows(connection, "sqlite").query("SELECT count(*) FROM written") == [(WRITERS * rows,)]
    database.dispose()


@pytest.mark.case("C55")
def test_a_lock_that_outlasts_the_wait_is_a_failure_that_may_be_tried_again(tmp_path, monkeypatch):
    """A writer that waits in vain gets LedgerBusy, and succeeds once the lock is free."""
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 0.1)
    url = f"sqlite:///{tmp_path / 'locked.db'}"
    holder, waiter = Database(url), Database(url)
    holder.create()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with holder.write() as connection:
            connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")
            held.set()
            release.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    with pytest.raises(LedgerBusy, match="locked"), waiter.write():
        pass
    release.set()
    thread.join()

    with waiter.write() as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
    holder.dispose()
    waiter.dispose()


def work_after_fork(database: Database, child: int, tasks: int, told: Queue[str]) -> None:
    """Write and read back one's own rows, over the engine that the parent used before the fork."""
    try:
        for number in range(tasks):
            with database.write() as connection:
                Rows(connection, database.kind).execute("INSERT INTO forked (child, n) VALUES (?, ?)", (child, number))
            with database.read() as connection:
                found = Rows(connection, database.kind).query(
                    "SELECT max(n), count(*) FROM forked WHERE child = ?", (child,)
                )
            if found != [(number, number + 1)]:
                told.put(f"child {child} read {found} after {number}")
        told.put("done")
    except Exception as error:  # noqa: BLE001 - told to the parent
        told.put(f"child {child}: {error!r}")
    finally:
        told.close()
        told.join_thread()
        os._exit(0)  # as a pool child ends: without closing what it shares with its parent


@pytest.mark.case("C56")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_connections_opened_before_the_fork_are_not_shared(database):
    """Children forked after the parent used the engine read their own rows; so do the parent and a later child."""
    with database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE forked (child INTEGER, n INTEGER)")
    told = FORK.Queue()
    children = [FORK.Process(target=work_after_fork, args=(database, child, 25, told)) for child in range(4)]
    for process in children:
        process.start()
    answers = [told.get(timeout=60) for _ in children]
    for process in children:
        process.join(20)
    later = FORK.Process(target=work_after_fork, args=(database, 9, 5, told))
    later.start()
    answers.append(told.get(timeout=60))
    later.join(20)

    assert answers == ["done"] * 5
    with database.read() as connection:
        assert Rows(connection, database.kind).query("SELECT count(*) FROM forked") == [(105,)]
