"""The tables of the inbox, a documented contract (docs/inbox.md): items with their state, and counters of them.

Both change in one transaction, under the lock of the principal's own counter row: the counters cannot drift. Their
indexes stand in `inbox_indexes`.
"""

from __future__ import annotations

import sqlalchemy as sa

from sinks.inbox_items import STATES

metadata = sa.MetaData()

IS_OPEN = "state <> 'archived' AND state <> 'snoozed'"
IS_AWAY = "(state = 'archived' OR state = 'snoozed')"
IS_SNOOZED = "state = 'snoozed'"
IS_UNNUMBERED = "number IS NULL"
"""Conditions of the indexes, to stand word for word in a query: SQLite takes a partial index only for its own.

Compared and not listed: for `IN (…)` SQLite builds the list anew for every row that is inserted, 5 µs each.
"""

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
)
"""The columns are those of `InboxItem`, in their order."""

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
