"""Database: one engine per process, made after the fork, with transactions that mean what they say.

SQLite: WAL, `BEGIN IMMEDIATE` for every writing transaction (SQLAlchemy's default lets two read-modify-write
transactions lose an update without an error), foreign keys, synchronous FULL: a batch pays one fsync, and what is
acknowledged on the stream must survive a power cut. PostgreSQL: psycopg 3, READ COMMITTED.

A SQLite file is opened where it is, never made in passing: only `create` makes one. And a process stays with the file
it opened: once another stands under that path, or none, its transactions fail (see `sqlite_file`).
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from runtime_core.errors import LedgerBusy, LedgerLost, SettingsError
from sense_worker.storage.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sense_worker.storage.rows import Kind

_WAYS = "sqlite:////absolute/path.db or postgresql://user:password@host/name"

BUSY_TIMEOUT_S = 15.0
"""How long a SQLite writer waits for the lock; a batch holds it for milliseconds, so this is a stuck neighbour."""

RESTED_S = 1.0
"""A pooled connection that was not used for this long is looked at first: a look at each use costs a round trip, and
what breaks between two uses is met by whoever tries again (see LedgerBusy)."""
_USED = "sense_used"

NOW_SQL = {
    # julianday is a double: good to about 40 µs, and monotone enough for leases of seconds. SQLite before 3.42 has
    # no unixepoch('subsec').
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
}


class Database:
    """The engine of this process and the two kinds of transaction. `url` is an SQLAlchemy URL.

    `on_lost` is called before LedgerLost is raised: a worker's process ends there, before it acknowledges anything.
    Without `durable` a commit survives the death of every process but not a power cut: it waits for no disk.
    """

    def __init__(
        self, url: str, *, on_lost: Callable[[LedgerLost], object] | None = None, durable: bool = True
    ) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise SettingsError("SENSE_DATABASE_URL", "is not a database URL", _WAYS) from None
        backend = parsed.get_backend_name()
        if backend == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
            options: dict[str, Any] = {"pool_size": 5, "max_overflow": 15}
            if not durable:
                parsed = parsed.update_query_dict({"options": "-c synchronous_commit=off"}, append=True)
        elif backend == "sqlite":
            if not parsed.database or parsed.database == ":memory:":
                raise SettingsError("SENSE_DATABASE_URL", "a database in memory is lost with its process", _WAYS)
            options = {"connect_args": {"timeout": BUSY_TIMEOUT_S}}
        else:
            raise SettingsError("SENSE_DATABASE_URL", f"no support for {backend!r}", _WAYS)
        self.kind: Kind = "sqlite" if backend == "sqlite" else "postgresql"
        self.url = parsed
        try:
            # An error that reaches a log names the statement, not its values (C53).
            self.engine = sa.create_engine(parsed, hide_parameters=True, **options)
        except (ModuleNotFoundError, NoSuchModuleError):
            raise SettingsError(
                "SENSE_DATABASE_URL", "the PostgreSQL driver is not installed", "pip install 'sense-worker[postgres]'"
            ) from None
        self._on_lost = on_lost
        self._file: SqliteFile | None = None
        if self.kind == "postgresql":
            # Under READ COMMITTED each statement sees its own moment anyway: one round trip, where a transaction
            # around it costs three. A pool of its own, because to switch a connection there and back costs 90 µs.
            options["isolation_level"] = "AUTOCOMMIT"
            self._reading = sa.create_engine(parsed, hide_parameters=True, **options)
            for engine in (self.engine, self._reading):
                event.listen(engine, "checkin", _note_use)
                event.listen(engine, "checkout", self._look_after_rest)
        else:
            self._reading = self.engine.execution_options(sense_read_only=True)
            self._file = SqliteFile(str(parsed.database))
            event.listen(self.engine, "do_connect", self._file.connect)
            event.listen(self.engine, "connect", _prepare_durable if durable else _prepare_relaxed)
            event.listen(self.engine, "begin", _begin_sqlite)
        self.now_sql = NOW_SQL[self.kind]
        self._driver: Any = self.engine.dialect.loaded_dbapi
        self._pid = os.getpid()

    def create(self) -> None:
        """Make an empty SQLite file where there is none: for who makes the tables. Raises SettingsError."""
        if self._file is not None:
            self._file.create()

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Run a writing transaction; commits at the end, rolls back on any exception.

        Raises LedgerBusy for everything that concerns the database and not the rows: locked, full, away, a deadlock,
        a table that is not there. The same call may succeed after a moment or a repair. What the rows did wrong (a
        constraint, a value the database does not take) stays the driver's error. Raises LedgerLost, also after the
        commit, where it went into a file that is no longer the one under the path.
        """
        with self._translated(), self._connection(self.engine) as connection, connection.begin():
            yield connection
        self._check_file()

    @contextmanager
    def read(self, *, paged: bool = False) -> Iterator[sa.Connection]:
        """Read. On SQLite, in one transaction without the write lock; on PostgreSQL each statement is its own.

        With `paged` it is one transaction there, too, as rows that come in pages (`yield_per`) need. Raises LedgerBusy
        and LedgerLost like `write`.
        """
        engine = self.engine if paged and self.kind == "postgresql" else self._reading
        with self._translated(), self._connection(engine) as connection, connection.begin():
            yield connection

    def now(self, connection: sa.Connection) -> int:
        """Return the database's clock in microseconds: leases and due times use no other (DESIGN §6)."""
        # By the driver's cursor: in every transaction, and SQLAlchemy's way to it costs 40 µs.
        cursor = connection.connection.cursor()
        cursor.execute(f"SELECT {self.now_sql}")
        (now,) = cursor.fetchone() or (0,)
        return int(now)

    def dispose(self) -> None:
        """Close the pooled connections of this process."""
        for engine in (self.engine, self._reading):
            engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Map the driver's errors, raised through SQLAlchemy or by a bare cursor (`Rows`)."""
        try:
            yield
        except PoolTimeout as error:
            way_out = "a worker waits for one; run a command again"
            raise LedgerBusy("database", "no connection is free", way_out) from error
        except (DBAPIError, self._driver.Error) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            content = isinstance(cause, self._driver.DataError | self._driver.IntegrityError)
            if content and not (isinstance(error, DBAPIError) and error.connection_invalidated):
                raise
            lines = str(cause).strip().splitlines() or [type(cause).__name__]
            way_out = "a worker goes on by itself; run a command again; see `sense-worker health`"
            raise LedgerBusy("database", lines[0], way_out) from error

    def _look_after_rest(self, connection: Any, record: Any, _proxy: object) -> None:
        """Look whether a pooled connection still leads somewhere, after it has rested; the pool opens another."""
        used = record.info.get(_USED)
        if used is None or time.monotonic() - used < RESTED_S:  # a new one answered just now
            return
        try:
            self.engine.dialect.do_ping(connection)
        except self._driver.Error as error:
            raise DisconnectionError from error

    def _connection(self, engine: sa.Engine) -> sa.Connection:
        if os.getpid() != self._pid:
            # A pooled socket shared over a fork corrupts both processes (C56): forget it without closing it.
            for pooled in (self.engine, self._reading):
                pooled.dispose(close=False)
            self._pid = os.getpid()
        self._check_file()
        return engine.connect()

    def _check_file(self) -> None:
        """Raise LedgerLost where the path no longer leads to the file that was opened; costs 5 µs, twice a write."""
        if self._file is None or self._file.stands():
            return
        what = "was removed or replaced while this process had it open: what it writes is lost"
        error = LedgerLost(str(self._file.path), what, "put it back or run `sense-worker init`, then start this again")
        if self._on_lost is not None:
            self._on_lost(error)
        raise error


def _prepare_durable(connection: Any, _record: object) -> None:
    _prepare_sqlite(connection, "FULL")


def _prepare_relaxed(connection: Any, _record: object) -> None:
    _prepare_sqlite(connection, "NORMAL")


def _prepare_sqlite(connection: Any, synchronous: str) -> None:
    connection.isolation_level = None  # the driver would begin by itself, deferred; `_begin_sqlite` says how
    cursor = connection.cursor()
    _write_ahead(cursor)
    for pragma in (f"synchronous={synchronous}", "foreign_keys=ON", "temp_store=MEMORY"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _write_ahead(cursor: Any) -> None:
    """Turn the write-ahead log on; of processes that meet on a new file one does, and the others wait for it.

    SQLite's own timeout does not cover this: whoever finds another at it is told at once that the file is locked.
    """
    ends = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.01)
        else:
            return


def _begin_sqlite(connection: sa.Connection) -> None:
    read_only = connection.get_execution_options().get("sense_read_only", False)
    connection.connection.cursor().execute("BEGIN" if read_only else "BEGIN IMMEDIATE")


def _note_use(_connection: object, record: Any) -> None:
    record.info[_USED] = time.monotonic()
