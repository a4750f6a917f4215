"""Inbox tables for the tests: writing as the ledger does, and what the tables hold, counted once more by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from sense_worker.storage.rows import Rows
from sinks.inbox import Inbox
from sinks.inbox_items import STATES
from sinks.inbox_tables import counter, item
from sinks.protocol import NoOptions

if TYPE_CHECKING:
    from sense_worker.storage.engine import Database
    from sinks.protocol import Delivery

SINK = Inbox("inbox", NoOptions())


def write(database: Database, *batch: Delivery, fresh: bool = False) -> None:
    """Write a batch in a transaction of its own, as a drain does, or with `fresh` as intake does."""
    with database.write() as connection:
        SINK.write(batch, Rows(connection, database.kind, fresh=fresh))


def kept(database: Database, *columns: str) -> list[tuple[object, ...]]:
    """Return columns of every item, in the order of tenant, principal and number."""
    i = item.c
    query = sa.select(*(i[name] for name in columns)).order_by(i.tenant, i.principal, i.number)
    with database.read() as connection:
        return [tuple(row) for row in connection.execute(query)]


def counted(database: Database) -> dict[tuple[str, str, str], dict[str, int]]:
    """Return what the counters say by tenant, principal and project; states without an item left out."""
    with database.read() as connection:
        rows = connection.execute(sa.select(counter)).mappings().all()
    states = {(row["tenant"], row["principal"], row["project"]): {s: row[s] for s in STATES if row[s]} for row in rows}
    return {key: found for key, found in states.items() if found}


def recounted(database: Database) -> dict[tuple[str, str, str], dict[str, int]]:
    """Return the same, counted from the items."""
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    for tenant, principal, project, land, state in kept(database, "tenant", "principal", "project", "land", "state"):
        states = found.setdefault((str(tenant), str(principal), str(project) if land == "brain" else ""), {})
        states[str(state)] = states.get(str(state), 0) + 1
    return found


def last_numbers(database: Database) -> dict[tuple[str, str], int]:
    """Return the last number given out for each principal."""
    c = counter.c
    with database.read() as connection:
        rows = connection.execute(sa.select(c.tenant, c.principal, c.number).where(c.project == "")).all()
    return {(str(tenant), str(principal)): int(number) for tenant, principal, number in rows}
