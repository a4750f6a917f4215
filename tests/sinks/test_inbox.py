from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import migrate
from sinks.inbox import COLUMNS, Inbox, InboxItem, item, metadata, read_items
from sinks.protocol import NoOptions, TransactionalSink
from tests.sinks.deliveries import ACCEPTED_AT, delivery

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Writer:
    """A RowWriter over one connection."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        statement = f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))}) ON CONFLICT DO NOTHING"
        for row in rows:
            self.connection.exec_driver_sql(statement, tuple(row))


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    engine = sa.create_engine("sqlite://")
    with engine.begin() as opened:
        metadata.create_all(opened)
        yield opened
    engine.dispose()


@pytest.fixture
def sink() -> Inbox:
    return Inbox("inbox", NoOptions())


def test_a_delivery_becomes_a_row(sink: Inbox, connection: sa.Connection):
    """The row holds the delivery field by field, the body byte for byte, and the owner as its principal."""
    given = delivery(7, subject="日本 😀\x7f", body=b'{"data": {"a":  1.0}}')
    sink.write([given], Writer(connection))
    assert read_items(connection, "acme", "ana", 10) == [
        InboxItem(
            event_id=bytes.fromhex(given.event_id),
            route_id="rte_1",
            tenant="acme",
            principal="ana",
            project="apollo",
            publisher="ben",
            pack_id="git",
            ref="commit.created",
            land="brain",
            subject="日本 😀\x7f",
            occurred_at="2026-06-01T13:59:59+02:00",
            accepted_at=ACCEPTED_AT,
            body=b'{"data": {"a":  1.0}}',
        )
    ]


def test_a_delivery_is_one_row_however_often_it_comes(sink: Inbox, connection: sa.Connection):
    """The same delivery again, as after a replay, leaves the row as it is; another route of the event has its own."""
    sink.write([delivery(1), delivery(1, subject="later", attempt=2)], Writer(connection))
    sink.write([delivery(1, subject="later still"), delivery(1, route_id="rte_2")], Writer(connection))
    found = read_items(connection, "acme", "ana", 10)
    assert [(found_item.route_id, found_item.subject) for found_item in found] == [("rte_1", "main"), ("rte_2", "main")]


def test_reading_is_newest_first_and_keeps_principals_apart(sink: Inbox, connection: sa.Connection):
    """A principal sees its own items of its own tenant, the newest first, at most as many as asked for."""
    batch = [delivery(n, accepted_at=ACCEPTED_AT + n) for n in range(4)]
    others = [delivery(8, principal="ben", accepted_at=ACCEPTED_AT + 8), delivery(9, tenant="other")]
    sink.write([*batch, *others], Writer(connection))

    def read(principal: str | None, limit: int) -> list[int]:
        return [int.from_bytes(found.event_id) for found in read_items(connection, "acme", principal, limit)]

    assert read("ana", 10) == [3, 2, 1, 0]
    assert read("ana", 2) == [3, 2]
    assert read("ben", 10) == [8]
    assert read(None, 10) == [8, 3, 2, 1, 0]
    assert read("eve", 10) == []


def test_the_fields_of_an_item_are_the_columns():
    """What is written, what is read and the table have the same names in the same order."""
    assert InboxItem._fields == COLUMNS
    assert [column.name for column in item.primary_key] == ["event_id", "route_id"]


def test_the_migrated_table_is_the_declared_one(tmp_path: Path):
    """The migrations make the table as the sink declares it."""
    database = Database(f"sqlite:///{tmp_path / 'sense.db'}")
    migrate(database)
    with database.read() as reading:
        found = sa.Table("inbox_item", sa.MetaData(), autoload_with=reading)
    database.dispose()

    def shape(table: sa.Table) -> tuple[object, ...]:
        columns = [(column.name, column.nullable, column.primary_key) for column in table.columns]
        return columns, sorted((index.name, *index.columns.keys()) for index in table.indexes)

    assert shape(found) == shape(item)


def test_the_inbox_has_no_way_around_the_transaction(sink: Inbox):
    """It is a transactional sink, and handing a batch over in any other way is an error that takes nothing."""
    assert isinstance(sink, TransactionalSink)
    sink.open()
    with pytest.raises(RuntimeError, match="2 deliveries were not taken"):
        sink.deliver([delivery(1), delivery(2)])
    sink.close()
