"""The inbox as a sink: what a delivery becomes, once, and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from sense_worker.storage.rows import Rows
from sinks.inbox import Inbox
from sinks.inbox_indexes import metadata
from sinks.inbox_items import COLUMNS, InboxItem
from sinks.inbox_reading import Selection, View, read_items
from sinks.inbox_tables import item
from sinks.protocol import NoOptions, TransactionalSink
from tests.sinks.deliveries import ACCEPTED_AT, delivery
from tests.sinks.inboxes import SINK, counted, kept, last_numbers, recounted, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sense_worker.storage.engine import Database


def test_a_delivery_becomes_a_row(database: Database):
    """The row holds the delivery field by field, the body byte for byte, and the owner as its principal; it is new."""
    given = delivery(7, subject="日本 😀\x7f", body=b'{"data": {"a":  1.0}}')

    write(database, given)

    with database.read() as connection:
        [(found, total)] = read_items(connection, View("acme", "ana"), Selection())
    assert total == 1
    assert found == InboxItem(
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
        number=1,
        state="unseen",
        snooze_ends_at=None,
    )


def test_a_delivery_is_one_row_however_often_it_comes(database: Database):
    """The same delivery again leaves row and counters as they are; another route of the event has its own."""
    write(database, delivery(1), delivery(1, subject="later", attempt=2))
    write(database, delivery(1, subject="later still"), delivery(1, route_id="rte_2"))
    write(database, delivery(1), delivery(1, route_id="rte_2"))

    assert kept(database, "route_id", "subject") == [("rte_1", "main"), ("rte_2", "main")]
    assert counted(database) == recounted(database) == {("acme", "ana", "apollo"): {"unseen": 2}}


def test_a_repeat_leaves_what_was_done_with_the_item(database: Database):
    """A replay neither makes an archived item unseen, nor gives it a new number, nor counts it again."""
    write(database, delivery(1))
    with database.write() as connection:
        connection.execute(sa.update(item).values(state="archived"))
        connection.exec_driver_sql("UPDATE inbox_counter SET unseen = 0, archived = 1 WHERE project = 'apollo'")

    write(database, delivery(1), delivery(2))

    assert kept(database, "state", "number")[0] == ("archived", 1)
    assert counted(database) == recounted(database) == {("acme", "ana", "apollo"): {"archived": 1, "unseen": 1}}


@pytest.mark.parametrize("fresh", [True, False], ids=["intake", "drain"])
def test_items_are_numbered_and_counted_by_principal(database: Database, fresh):
    """Each principal's items are numbered without a gap in the order of the batch; brain counts by its project."""
    batch = [
        delivery(1),
        delivery(2, principal="ben", land="personal"),
        delivery(3, project=None, land="personal"),
        delivery(4, project="gemini"),
        delivery(5, tenant="other", land="local"),
        delivery(6),
    ]
    write(database, *batch, fresh=fresh)
    write(database, delivery(7, land="personal"), fresh=fresh)

    numbers = [(tenant, who, int.from_bytes(event), n) for tenant, who, event, n in kept(database, *_NUMBERED)]
    assert numbers == [
        *(("acme", "ana", event, at) for at, event in enumerate((1, 3, 4, 6, 7), 1)),
        ("acme", "ben", 2, 1),
        ("other", "ana", 5, 1),
    ]
    assert last_numbers(database) == {("acme", "ana"): 5, ("acme", "ben"): 1, ("other", "ana"): 1}
    assert counted(database) == recounted(database)
    assert counted(database)["acme", "ana", ""] == counted(database)["acme", "ana", "apollo"] == {"unseen": 2}


def test_a_batch_costs_two_statements_whatever_the_number_of_principals(database: Database, monkeypatch):
    """One for the counters, one for the items; no read, no update of an item (DESIGN §6.3)."""
    if database.kind == "sqlite":
        monkeypatch.setattr("sense_worker.storage.rows._ADDED_AT_ONCE", 10_000)
    batch = [delivery(n, principal=f"p{n % 120}", land="personal") for n in range(500)]
    ran = []
    with database.write() as connection:
        rows = Rows(connection, database.kind, fresh=True)
        rows._cursor = Watched(rows._cursor, ran)
        SINK.write(batch, rows)

    assert [text.split()[:3] for text in ran] == [
        ["INSERT", "INTO", "inbox_counter"],
        ["COPY", "inbox_item", "(event_id,"] if database.kind == "postgresql" else ["INSERT", "INTO", "inbox_item"],
    ]


def test_a_batch_that_is_undone_is_not_counted(database: Database):
    """Items, numbers and counters go together: after a rollback nothing of the batch is there."""
    write(database, delivery(1))
    with database.engine.connect() as connection, connection.begin() as transaction:
        SINK.write([delivery(2)], Rows(connection, database.kind))
        transaction.rollback()

    write(database, delivery(3))

    assert kept(database, "number") == [(1,), (2,)]
    assert counted(database) == recounted(database) == {("acme", "ana", "apollo"): {"unseen": 2}}


def test_the_fields_of_an_item_are_the_columns():
    """What is read and the table have the same names in the same order."""
    assert InboxItem._fields == COLUMNS == tuple(column.name for column in item.columns)
    assert [column.name for column in item.primary_key] == ["event_id", "route_id"]


def test_the_migrated_tables_are_the_declared_ones(database: Database):
    """The migrations make what the sink declares: columns with type and default, indexes with their conditions."""
    with database.engine.connect() as connection, connection.begin() as transaction:
        migrated = shapes(connection)
        metadata.drop_all(connection)
        metadata.create_all(connection)
        declared = shapes(connection)
        transaction.rollback()
    assert migrated == declared
    assert {name: index["where"] is not None for name, index in migrated["inbox_item"]["indexes"].items()} == {
        "inbox_item_away": True,
        "inbox_item_open": True,
        "inbox_item_snoozed": True,
        "inbox_item_unnumbered": True,
    }


def test_the_inbox_has_no_way_around_the_transaction():
    """It is a transactional sink, and handing a batch over in any other way is an error that takes nothing."""
    sink = Inbox("inbox", NoOptions())
    assert isinstance(sink, TransactionalSink)
    sink.open()
    with pytest.raises(RuntimeError, match="2 deliveries were not taken"):
        sink.deliver([delivery(1), delivery(2)])
    sink.close()


_NUMBERED = ("tenant", "principal", "event_id", "number")


def shapes(connection: sa.Connection) -> dict[str, dict[str, Any]]:
    """Return the tables of the sink as the database describes them."""
    seen = sa.inspect(connection)
    return {
        table: {
            "key": seen.get_pk_constraint(table)["constrained_columns"],
            "columns": [
                (one["name"], str(one["type"]), one["nullable"], one["default"]) for one in seen.get_columns(table)
            ],
            "indexes": {
                one["name"]: {"columns": one["column_names"], "unique": one["unique"], "where": condition(one)}
                for one in seen.get_indexes(table)
            },
        }
        for table in metadata.tables
    }


def condition(index: Mapping[str, Any]) -> str | None:
    found = [str(value) for name, value in index.get("dialect_options", {}).items() if name.endswith("_where")]
    return found[0] if found else None


class Watched:
    """A cursor that notes what it runs."""

    def __init__(self, cursor, ran):
        self._cursor, self._ran = cursor, ran

    def __getattr__(self, name):
        found = getattr(self._cursor, name)
        if name not in ("execute", "executemany", "copy"):
            return found
        return lambda sql, *rest: (self._ran.append(sql), found(sql, *rest))[1]
