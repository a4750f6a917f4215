"""The inbox grows up: a state and a number for every item, and counters that change with the items.

What the release before writes meanwhile has no number and is in no counter; the inbox takes it in when it is next read.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_STATES = ("unseen", "seen", "read", "archived", "snoozed")
_INDEXES = {
    "inbox_item_open": (("tenant", "principal", "number"), "state <> 'archived' AND state <> 'snoozed'"),
    "inbox_item_away": (("tenant", "principal", "state", "number"), "(state = 'archived' OR state = 'snoozed')"),
    "inbox_item_snoozed": (("snooze_ends_at",), "state = 'snoozed'"),
    "inbox_item_unnumbered": (("tenant", "principal"), "number IS NULL"),
}
_NUMBER = """
    UPDATE inbox_item SET number = ranked.number
    FROM (
        SELECT event_id, route_id, row_number() OVER (
            PARTITION BY tenant, principal ORDER BY accepted_at, event_id, route_id
        ) AS number FROM inbox_item
    ) AS ranked
    WHERE inbox_item.event_id = ranked.event_id AND inbox_item.route_id = ranked.route_id
"""
_COUNT = """
    INSERT INTO inbox_counter (tenant, principal, project, unseen)
    SELECT tenant, principal, CASE WHEN land = 'brain' THEN coalesce(project, '') ELSE '' END AS shared, count(*)
    FROM inbox_item GROUP BY tenant, principal, shared
"""
_LAST = """
    INSERT INTO inbox_counter (tenant, principal, project, number)
    SELECT tenant, principal, '', max(number) FROM inbox_item GROUP BY tenant, principal
    ON CONFLICT (tenant, principal, project) DO UPDATE SET number = excluded.number
"""


def upgrade() -> None:
    """Add states, numbers and counters; what is there is unseen and numbered by arrival."""
    op.add_column("inbox_item", sa.Column("number", sa.BigInteger()))
    op.add_column("inbox_item", sa.Column("state", sa.String(), server_default=sa.text("'unseen'"), nullable=False))
    op.add_column("inbox_item", sa.Column("snooze_ends_at", sa.BigInteger()))
    op.create_table(
        "inbox_counter",
        *(sa.Column(name, sa.String(), primary_key=True) for name in ("tenant", "principal", "project")),
        *(
            sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False)
            for name in ("number", *_STATES)
        ),
    )
    for statement in (_NUMBER, _COUNT, _LAST):
        op.execute(statement)
    op.drop_index("inbox_item_recent", "inbox_item")
    for name, (columns, condition) in _INDEXES.items():
        where = sa.text(condition)
        op.create_index(name, "inbox_item", list(columns), sqlite_where=where, postgresql_where=where)
