"""Rows: bulk inserts in the ledger's transaction, at the speed of each driver.

SQLite takes `executemany`; PostgreSQL takes COPY for rows that cannot exist yet (children of an event this very
transaction inserted) or hardly ever do, and INSERT … ON CONFLICT DO NOTHING for all others. Measured at 500 rows a
transaction on two cores, COPY is about four times an executemany.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa

Kind = Literal["sqlite", "postgresql"]

_MARKS = re.compile(r"""'[^']*'|"[^"]*"|\?|%""")
"""A quoted text (a doubled quote in it ends one and begins the next), a mark, or what psycopg would take for one."""

_ADDED_AT_ONCE = 100
"""Rows of one statement on SQLite: 5 µs a row, where one at a time costs 15 µs."""

_FEW = 8
"""Rows that psycopg takes as one statement, prepared for each count: half of what its executemany costs for them."""


class Rows:
    """Implements `sinks.protocol.RowWriter` over one connection.

    `fresh`: no row of these can exist yet. `mostly_new`: one of them may, though hardly ever (an inbox item outlives
    its event, whose message id may be used again after the retention).
    """

    def __init__(
        self,
        connection: sa.Connection,
        kind: Kind,
        *,
        fresh: bool = False,
        mostly_new: bool = False,
    ) -> None:
        self._cursor = connection.connection.cursor()
        self._kind = kind
        self._fresh = fresh
        self._mostly_new = mostly_new

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
        """Insert rows; one whose primary key exists is left as it is. Returns how many were inserted."""
        if not rows:
            return 0
        if self._kind == "postgresql" and self._copied(table, columns, rows):
            return len(rows)
        mark = "?" if self._kind == "sqlite" else "%s"
        names, marks = ", ".join(columns), f"({', '.join([mark] * len(columns))})"
        if self._kind == "postgresql" and len(rows) <= _FEW:
            marks = ", ".join([marks] * len(rows))
        sql = f"INSERT INTO {table} ({names}) VALUES {marks} ON CONFLICT DO NOTHING"  # noqa: S608 - our own names
        if self._kind == "postgresql" and len(rows) <= _FEW:
            self._cursor.execute(sql, [value for row in rows for value in row])
        else:
            self._cursor.executemany(sql, rows)
        return int(self._cursor.rowcount)

    def add(
        self, table: str, key: Sequence[str], amounts: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> dict[tuple[str, ...], tuple[int, ...]]:
        """Add integers to counting rows, making those that are missing; returns the new amounts by key.

        PostgreSQL takes them in one statement, in the order given; SQLite, which has one writer, some at a time.
        """
        if not rows:
            return {}
        if self._kind == "sqlite":
            marks = f"({', '.join('?' * (len(key) + len(amounts)))})"
            found = []
            for at in range(0, len(rows), _ADDED_AT_ONCE):
                some = rows[at : at + _ADDED_AT_ONCE]
                sql = _adding(table, key, amounts, "VALUES " + ", ".join([marks] * len(some)))
                found += self._cursor.execute(sql, [value for row in some for value in row]).fetchall()
        else:
            arrays = ", ".join(["%s::text[]"] * len(key) + ["%s::bigint[]"] * len(amounts))
            sql = _adding(table, key, amounts, f"SELECT * FROM unnest({arrays})")  # noqa: S608 - our own names
            columns = [list(column) for column in zip(*rows, strict=True)]
            found = self._cursor.execute(sql, columns).fetchall()
        return {tuple(row[: len(key)]): tuple(row[len(key) :]) for row in found}

    def _copied(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> bool:
        """Copy rows where that may be done; returns whether they are there now, all of them or none."""
        if self._fresh:
            self._copy(table, columns, rows)
            return True
        if not self._mostly_new:
            return False
        from psycopg.errors import UniqueViolation

        self._cursor.execute("SAVEPOINT copied")
        try:
            self._copy(table, columns, rows)
        except UniqueViolation:
            self._cursor.execute("ROLLBACK TO SAVEPOINT copied")
            return False
        self._cursor.execute("RELEASE SAVEPOINT copied")
        return True

    def _copy(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        with self._cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        """Run one statement per row, `?` as the mark on both databases; returns how many rows it touched."""
        if not rows:
            return 0
        if len(rows) == 1:  # psycopg makes a pipeline of any executemany
            return self.execute(sql, rows[0])
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


@lru_cache(maxsize=256)  # like those below: one text for each number of rows
def _adding(table: str, key: Sequence[str], amounts: Sequence[str], values: str) -> str:
    names = ", ".join((*key, *amounts))
    sums = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in amounts)
    conflict = f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sums}"
    return f"INSERT INTO {table} ({names}) {values} {conflict} RETURNING {names}"


@lru_cache(maxsize=256)  # the statements of the hot paths are some thirty texts, and one of them is built per batch
def psycopg_marks(sql: str) -> str:
    """Return a statement with `%s` for each `?` mark. In quotes a `?` stays what it is; each `%` is doubled."""
    return _MARKS.sub(lambda found: "%s" if found[0] == "?" else found[0].replace("%", "%%"), sql)
