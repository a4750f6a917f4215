"""Database: one engine per process, made after the fork, with transactions that mean what they say.

SQLite: WAL, `BEGIN IMMEDIATE` for every writing transaction (SQLAlchemy's default lets two read-modify-write
transactions lose an update without an error), foreign keys, synchronous FULL: a batch pays one fsync, and what is
acknowledged on the stream must survive a power cut. PostgreSQL: psycopg 3, READ COMMITTED.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from runtime_core.errors import LedgerBusy, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")
_WAYS = "sqlite:////absolute/path.db or postgresql://user:password@host/name"

BUSY_TIMEOUT_S = 15.0
"""How long a SQLite writer waits for the lock; a batch holds it for milliseconds, so this is a stuck neighbour."""

NOW_SQL = {
    # julianday is a double: good to about 40 µs, and monotone enough for leases of seconds. SQLite before 3.42 has
    # no unixepoch('subsec').
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
}

RETRIED_STATES = frozenset({"40001", "40P01"})
"""Serialization failure and deadlock: PostgreSQL asks for the transaction to be run again."""

PASSING_SQLITE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_READONLY")
"""Result codes that name the moment or the disk, not the statement: the same call may succeed after a repair."""


class Database:
    """The engine of this process and the two kinds of transaction. `url` is an SQLAlchemy URL."""

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise SettingsError("SENSE_DATABASE_URL", "is not a database URL", _WAYS) from None
        backend = parsed.get_backend_name()
        if backend == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
            options: dict[str, Any] = {"pool_pre_ping": True, "pool_size": 5, "max_overflow": 15}
        elif backend == "sqlite":
            if not parsed.database or parsed.database == ":memory:":
                raise SettingsError("SENSE_DATABASE_URL", "a database in memory is lost with its process", _WAYS)
            options = {"connect_args": {"timeout": BUSY_TIMEOUT_S}}
        else:
            raise SettingsError("SENSE_DATABASE_URL", f"no support for {backend!r}", _WAYS)
        self.kind: Literal["sqlite", "postgresql"] = "sqlite" if backend == "sqlite" else "postgresql"
        self.url = parsed
        try:
            self.engine = sa.create_engine(parsed, **options)
        except (ModuleNotFoundError, NoSuchModuleError):
            raise SettingsError(
                "SENSE_DATABASE_URL", "the PostgreSQL driver is not installed", "pip install 'sense-worker[postgres]'"
            ) from None
        if self.kind == "sqlite":
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        self.now_sql = NOW_SQL[self.kind]
        self._pid = os.getpid()

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Run a writing transaction; commits at the end, rolls back on any exception.

        Raises LedgerBusy where the database is locked, away, or cuts the connection: the same call may succeed later.
        """
        with self._translated(), self._connection() as connection, connection.begin():
            yield connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Run a reading transaction. On SQLite it takes no write lock. Raises LedgerBusy like `write`."""
        with self._translated(), self._connection() as connection:
            reader = connection.execution_options(sense_read_only=True)
            with reader.begin():
                yield reader

    def retried(self, work: Callable[[sa.Connection], _T]) -> _T:
        """Run `work` in a writing transaction, again after a deadlock or serialization failure (5 tries in all)."""
        for tries_left in range(4, -1, -1):
            try:
                with self._connection() as connection, connection.begin():
                    return work(connection)
            except DBAPIError as error:
                if tries_left and getattr(error.orig, "sqlstate", None) in RETRIED_STATES:
                    time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - jitter, not a secret
                    continue
                raise _as_busy(error) from error
        raise AssertionError("the loop returns or raises")

    def now(self, connection: sa.Connection) -> int:
        """Return the database's clock in microseconds: leases and due times use no other (DESIGN §6)."""
        return int(connection.exec_driver_sql(f"SELECT {self.now_sql}").scalar_one())

    def dispose(self) -> None:
        """Close the pooled connections of this process."""
        self.engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            busy = _as_busy(error)
            if busy is error:
                raise
            raise busy from error

    def _connection(self) -> sa.Connection:
        if os.getpid() != self._pid:
            # A pooled socket shared over a fork corrupts both processes (C56): forget it without closing it.
            self.engine.dispose(close=False)
            self._pid = os.getpid()
        return self.engine.connect()


def _as_busy(error: DBAPIError) -> Exception:
    """Map what may pass later to LedgerBusy; anything else stays what it is."""
    sqlite_name = str(getattr(error.orig, "sqlite_errorname", ""))
    passing = sqlite_name.startswith(PASSING_SQLITE) if sqlite_name else isinstance(error, sa.exc.OperationalError)
    if error.connection_invalidated or passing:
        reason = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
        return LedgerBusy("database", reason, "it is tried again; see `sense-worker health`")
    if getattr(error.orig, "sqlstate", None) in RETRIED_STATES:
        return LedgerBusy("database", "deadlock or serialization failure", "it is tried again")
    return error


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver would begin by itself, deferred; `_begin_sqlite` says how
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "temp_store=MEMORY"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    read_only = connection.get_execution_options().get("sense_read_only", False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
