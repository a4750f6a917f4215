"""The inbox's tables with their indexes, whole, for the migrations.

Apart from the tables: to name the condition of an index SQLAlchemy loads the dialect of PostgreSQL, 40 ms of CPU.
"""

from __future__ import annotations

import sqlalchemy as sa

from sinks.inbox_tables import IS_AWAY, IS_OPEN, IS_SNOOZED, IS_UNNUMBERED, item, metadata

__all__ = ["metadata"]


def _index(name: str, columns: tuple[str, ...], condition: str) -> None:
    where = sa.text(condition)
    sa.Index(name, *(item.c[column] for column in columns), sqlite_where=where, postgresql_where=where)


# An item is in one of the first two, never in both: a new one pays for one.
_index("inbox_item_open", ("tenant", "principal", "number"), IS_OPEN)
_index("inbox_item_away", ("tenant", "principal", "state", "number"), IS_AWAY)
_index("inbox_item_snoozed", ("snooze_ends_at",), IS_SNOOZED)
_index("inbox_item_unnumbered", ("tenant", "principal"), IS_UNNUMBERED)
