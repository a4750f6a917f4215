"""The tables of the inbox, a documented contract (docs/inbox.md): items with their state, and counters of them.

Both change in one transaction, under the lock of the principal's own counter row: the counters cannot drift.
"""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

metadata = sa.MetaData()
"""The tables of this sink, for the migrations."""

OPEN = ("unseen", "seen", "read")
"""States of what lies in the inbox."""
AWAY = ("archived", "snoozed")
"""States of what was put away; a snoozed item comes back by time."""
STATES = (*OPEN, *AWAY)

IS_OPEN = "state <> 'archived' AND state <> 'snoozed'"
IS_AWAY = "(state = 'archived' OR state = 'snoozed')"
IS_SNOOZED = "state = 'snoozed'"
IS_UNNUMBERED = "number IS NULL"
"""Conditions of the indexes, to stand word for word in a query: SQLite takes a partial index only for its own.

Compared and not listed: for `IN (…)` SQLite builds the list anew for every row that is inserted, 5 µs each.
"""


def _index(name: str, columns: tuple[str, ...], condition: str) -> sa.Index:
    where = sa.text(condition)
    return sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


item = sa.Table(
    "inbox_item",
    metadata,
    sa.Column("event_id", sa.LargeBinary(16), primary_key=True),
    sa.Column("route_id", sa.String, primary_key=True),
    sa.Column("tenant", sa.String, nullable=False),
    sa.Column("principal", sa.String, nullable=False),
    sa.Column("project", sa.String, nullable=True),
    sa.Column("publisher", sa.String, nullable=False),
    sa.Column("pack_id", sa.String, nullable=False),
    sa.Column("ref", sa.String, nullable=False),
    sa.Column("land", sa.String, nullable=False),
    sa.Column("subject", sa.Text, nullable=True),
    sa.Column("occurred_at", sa.Text, nullable=False),
    sa.Column("accepted_at", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=True),
    sa.Column("state", sa.String, nullable=False, server_default=sa.text("'unseen'")),
    sa.Column("snooze_ends_at", sa.BigInteger, nullable=True),
    # An item is in one of the first two, never in both: a new one pays for one.
    _index("inbox_item_open", ("tenant", "principal", "number"), IS_OPEN),
    _index("inbox_item_away", ("tenant", "principal", "state", "number"), IS_AWAY),
    _index("inbox_item_snoozed", ("snooze_ends_at",), IS_SNOOZED),
    _index("inbox_item_unnumbered", ("tenant", "principal"), IS_UNNUMBERED),
)

counter = sa.Table(
    "inbox_counter",
    metadata,
    *(sa.Column(name, sa.String, primary_key=True) for name in ("tenant", "principal", "project")),
    *(sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0")) for name in ("number", *STATES)),
)
"""A principal's items by state, apart for each project whose members alone may see them (see `shared_in`).

The row with an empty project counts all others and is the principal's own: `number` is the last one given out. Who
changes the principal's items locks this row first, so that numbers are in the order of commits.
"""


def shared_in(land: str, project: str | None) -> str:
    """Return the project on whose membership the access to an item depends, empty where it depends on none.

    Data of land brain belongs to its project; whatever else names a project is its principal's own (§4.3).
    """
    return project or "" if land == "brain" else ""


COLUMNS = tuple(column.name for column in item.columns)


class InboxItem(NamedTuple):
    """One row of the inbox; the fields are COLUMNS in their order."""

    event_id: bytes
    route_id: str
    tenant: str
    principal: str
    project: str | None
    publisher: str
    pack_id: str
    ref: str
    land: str
    subject: str | None
    occurred_at: str
    accepted_at: int
    """Microseconds since the epoch, UTC."""
    body: bytes
    number: int | None
    """Ascending in the order in which the principal's items were committed or woke; None until it is taken in."""
    state: str
    snooze_ends_at: int | None
    """Microseconds since the epoch, UTC; None unless it is snoozed."""
