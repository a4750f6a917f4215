"""Rows: bulk inserts in the ledger's transaction, at the speed of each driver.

SQLite takes `executemany`; PostgreSQL takes COPY for rows that cannot exist yet (children of an event this very
transaction inserted) and INSERT … ON CONFLICT DO NOTHING for all others. Measured at 500 rows a transaction on two
cores, COPY is about four times an executemany.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa

_MARKS = re.compile(r"""'[^']*'|"[^"]*"|\?|%""")
"""A quoted text (a doubled quote in it ends one and begins the next), a mark, or what psycopg would take for one."""


class Rows:
    """Implements `sinks.protocol.RowWriter` over one connection. `fresh`: no row of these can exist yet."""

    def __init__(
        self, connection: sa.Connection, kind: Literal["sqlite", "postgresql"], *, fresh: bool = False
    ) -> None:
        self._cursor = connection.connection.cursor()
        self._kind = kind
        self._fresh = fresh

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Insert rows; one whose primary key exists is left as it is."""
        if not rows:
            return
        names = ", ".join(columns)
        if self._kind == "sqlite":
            marks = ", ".join("?" * len(columns))
            self._cursor.executemany(
                f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING",  # noqa: S608 - our own names
                rows,
            )
        elif self._fresh:
            with self._cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        else:
            marks = ", ".join(["%s"] * len(columns))
            self._cursor.executemany(
                f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING",  # noqa: S608 - our own names
                rows,
            )

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        """Run one statement per row, `?` as the mark on both databases; returns how many rows it touched."""
        if not rows:
            return 0
        self._cursor.executemany(self._for_driver(sql), rows)
        return int(self._cursor.rowcount)

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one query, `?` as the mark on both databases."""
        self._cursor.execute(self._for_driver(sql), parameters)
        return list(self._cursor.fetchall())

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run one statement, `?` as the mark on both databases; returns how many rows it touched."""
        self._cursor.execute(self._for_driver(sql), parameters)
        return int(self._cursor.rowcount)

    def _for_driver(self, sql: str) -> str:
        return sql if self._kind == "sqlite" else psycopg_marks(sql)


@lru_cache(maxsize=256)  # the statements of the hot paths are some thirty texts, and one of them is built per batch
def psycopg_marks(sql: str) -> str:
    """Return a statement with `%s` for each `?` mark. In quotes a `?` stays what it is; each `%` is doubled."""
    return _MARKS.sub(lambda found: "%s" if found[0] == "?" else found[0].replace("%", "%%"), sql)
