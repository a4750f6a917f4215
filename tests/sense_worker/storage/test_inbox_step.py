"""The step that gives the inbox states: what a database of the release before holds is taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import migrate, upgrade
from sinks.inbox_reading import Selection, View, read_counts, read_items
from sinks.inbox_tables import item
from tests.sinks.deliveries import delivery
from tests.sinks.inboxes import counted, kept, last_numbers, recounted, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OLD: tuple[str, ...] = (
    "event_id",
    "route_id",
    "tenant",
    "principal",
    "project",
    "publisher",
    "pack_id",
    "ref",
    "land",
    "subject",
)
OLD += ("occurred_at", "accepted_at", "body")


@pytest.fixture
def database(empty_database_urls: Callable[[], str]) -> Iterator[Database]:
    """A database of the release before, on both kinds."""
    database = Database(empty_database_urls())
    database.create()
    with database.write() as connection:
        upgrade(connection, "0002")
    yield database
    database.dispose()


def put(database: Database, number: int, **fields: object) -> None:
    """Insert an item as the release before does."""
    given = delivery(number, **fields)
    row = {name: getattr(given, name) for name in OLD} | {"event_id": bytes.fromhex(given.event_id)}
    with database.write() as connection:
        connection.execute(sa.insert(sa.table("inbox_item", *(sa.column(name) for name in OLD))).values(row))


def test_rows_are_unseen_and_numbered_by_arrival(database: Database):
    """Each principal's rows get numbers in the order in which they were accepted, and all of them are counted."""
    put(database, 1, accepted_at=30)
    put(database, 2, accepted_at=10, land="personal")
    put(database, 3, accepted_at=20, project="gemini")
    put(database, 4, accepted_at=5, principal="ben", land="personal", project=None)
    put(database, 5, accepted_at=5, tenant="other")

    migrate(database)

    found = [(*row[:2], int.from_bytes(row[2]), *row[3:]) for row in kept(database, "tenant", "principal", *_COLUMNS)]
    assert found == [
        ("acme", "ana", 2, 1, "unseen"),
        ("acme", "ana", 3, 2, "unseen"),
        ("acme", "ana", 1, 3, "unseen"),
        ("acme", "ben", 4, 1, "unseen"),
        ("other", "ana", 5, 1, "unseen"),
    ]
    assert last_numbers(database) == {("acme", "ana"): 3, ("acme", "ben"): 1, ("other", "ana"): 1}
    assert counted(database) == recounted(database)
    assert counted(database)["acme", "ana", "gemini"] == {"unseen": 1}


def test_what_arrives_afterwards_goes_on(database: Database):
    """New items come after the old ones, and both are listed and counted together."""
    put(database, 1)
    migrate(database)

    write(database, delivery(2))

    view = View("acme", "ana")
    with database.read() as connection:
        listed = [
            (one.item.number, int.from_bytes(one.item.event_id)) for one in read_items(connection, view, Selection())
        ]
        assert read_counts(connection, view).unseen == 2
    assert listed == [(2, 2), (1, 1)]


def test_an_empty_inbox_stays_empty(database: Database):
    """No row, no counter."""
    migrate(database)

    with database.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(item)) == 0
    assert (counted(database), last_numbers(database)) == ({}, {})


_COLUMNS = ("event_id", "number", "state")
