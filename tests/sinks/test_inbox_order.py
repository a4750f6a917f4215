"""Readers and writers of the inbox at the same time: numbers are in the order of commits, and nobody deadlocks."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sense_worker.storage.engine import Database
from sense_worker.storage.rows import Rows
from sinks import inbox_moves as moves
from sinks.inbox_reading import Selection, View, read_items
from tests.sinks.deliveries import delivery
from tests.sinks.inboxes import SINK, counted, kept, recounted, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from sinks.protocol import Delivery

ANA = View("acme", "ana")
WRITERS = 4
BATCHES = 6
PRINCIPALS = ("ana", "ben", "eve")


def onward(database: Database, view: View, after: int) -> list[tuple[int, int]]:
    """Return event and number of what comes after a number, as a reader pages."""
    with database.read() as connection:
        found = read_items(connection, view, Selection(after=after, limit=7))
    return [(int.from_bytes(one.item.event_id), int(one.item.number or 0)) for one in found]


def test_a_transaction_that_commits_last_is_not_skipped(database: Database):
    """The one that took its number first commits last: a reader that pages meanwhile still meets both, in order.

    The second one waits for the first, so that nobody sees a higher number before a lower one.
    """
    written = threading.Event()

    def write_second() -> None:
        write(database, delivery(2))
        written.set()

    with ThreadPoolExecutor(1) as other:
        with database.write() as connection:
            SINK.write([delivery(1)], Rows(connection, database.kind, fresh=True))
            second = other.submit(write_second)
            wait_until_blocked(database, second.done)
            seen = onward(database, ANA, 0)
            assert (seen, written.is_set()) == ([], False)
        second.result(timeout=10)

    assert onward(database, ANA, 0) == [(1, 1), (2, 2)]


def test_another_principals_batch_does_not_wait(postgresql_url: str):
    """A transaction that is under way holds up those for the same principal alone (PostgreSQL)."""
    database = Database(postgresql_url)
    with database.write() as connection:
        SINK.write([delivery(1)], Rows(connection, database.kind))
        with ThreadPoolExecutor(1) as other:
            other.submit(write, database, delivery(2, principal="ben")).result(timeout=10)
        assert onward(database, View("acme", "ben"), 0) == [(2, 1)]
    database.dispose()


def test_what_many_write_and_move_at_once_is_read_once_and_counted(database: Database):
    """Writers of many principals in every order, two who move and prune, and readers that page: no deadlock, no drift.

    The reader meets every item once, in the order of its numbers, though transactions commit as they please.
    """
    batches = [[batch_of(writer, at) for at in range(BATCHES)] for writer in range(WRITERS)]
    done = threading.Event()
    with ThreadPoolExecutor(WRITERS + 4) as pool:
        readers = [pool.submit(read_all, database, View("acme", who), done) for who in ("ana", "ben")]
        movers = [pool.submit(move_some, database, move, done) for move in (moves.SEE, moves.READ)]
        writers = [pool.submit(write_all, database, mine) for mine in batches]
        try:
            for one in writers:
                one.result(timeout=60)
        finally:
            done.set()
        for one in movers:
            one.result(timeout=60)
        read = [reader.result(timeout=60) for reader in readers]

    for who, found in zip(("ana", "ben"), read, strict=True):
        expected = {
            int(one.event_id, 16) for mine in batches for batch in mine for one in batch if one.principal == who
        }
        assert sorted(found) == sorted(expected)
    assert counted(database) == recounted(database)
    numbers = kept(database, "principal", "number")
    assert len(set(numbers)) == len(numbers)


def batch_of(writer: int, at: int) -> list[Delivery]:
    """Return deliveries for every principal, in an order of its own."""
    chance = random.Random(1_000 * writer + at)
    base = 10_000 * writer + 100 * at
    batch = [
        delivery(base + n, principal=PRINCIPALS[n % 3], project=chance.choice(("apollo", "gemini"))) for n in range(12)
    ]
    chance.shuffle(batch)
    return batch


def write_all(database: Database, batches: list[list[Delivery]]) -> None:
    for batch in batches:
        write(database, *batch, fresh=True)
        write(database, *batch[:3])


def move_some(database: Database, move: moves.Move, done: threading.Event) -> None:
    """See or read what is there, of one principal at a time; archive and remove eve's."""
    while not done.is_set():
        for who in PRINCIPALS:
            with database.read() as connection:
                listed = read_items(connection, View("acme", who), Selection(limit=20))
            keys = [(bytes(one.item.event_id), one.item.route_id) for one in listed]
            with database.write() as connection:
                found = moves.find_items(connection, View("acme", who), keys)
                moves.move_items(connection, found, moves.ARCHIVE if who == "eve" else move)
        with database.write() as connection:
            moves.remove_items(connection, "acme", 2**62, ("archived",), 50)


def read_all(database: Database, view: View, done: threading.Event) -> list[int]:
    """Page onward until all is written and nothing more comes."""
    found: list[int] = []
    after = 0
    while True:
        last = done.is_set()
        page = onward(database, view, after)
        found += [event for event, _ in page]
        after = page[-1][1] if page else after
        if last and not page:
            return found


def wait_until_blocked(database: Database, done: Callable[[], bool]) -> None:
    """Return once a transaction waits for another's rows; on SQLite, where it waits for the file, at once."""
    ends = time.monotonic() + 10
    while database.kind == "postgresql" and not done():
        with database.read() as connection:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            if connection.exec_driver_sql(query).scalar_one():
                return
        assert time.monotonic() < ends
        time.sleep(0.005)  # a lock that is waited for offers no event
