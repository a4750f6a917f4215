"""Bring the schema up to date, and tell whether this release can work with the one that is there.

Every step only adds, or takes away what the release before no longer touches. So a worker may go on while the database
is one step newer than it knows, and a rolling upgrade needs no stop (DESIGN §9). Steps are numbered in four digits
without a gap: the distance is a subtraction, and an older release knows it without having the newer step's file.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runtime_core.errors import SettingsError
from sense_worker.storage.engine import Database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sense_worker.settings import Settings

HEAD = "0004"
"""The newest step of this release."""
VERSION_TABLE = "sense_schema"
"""Alembic's own row, under a name of ours: the database may be shared with a host that uses Alembic too."""
MIGRATIONS = Path(__file__).parent / "migrations"

_LOCK = 0x5E45E0001
"""The key of the PostgreSQL advisory lock under which the schema is changed; any constant no neighbour uses."""


def migrate(database: Database) -> None:
    """Create the tables or bring them to `HEAD`, under one lock; does nothing where they are there already.

    The one place where a SQLite file is made.

    Safe from many processes at once: the first one works, the others wait and find it done (C58). One transaction: a
    step that fails leaves the schema as it was. Raises SettingsError where the schema is more than one step newer
    than this release, and LedgerBusy where the database is locked or away.
    """
    database.create()
    with database.read() as connection:
        if _distance(schema_step(connection)) >= 0:
            return
    with database.write() as connection:
        # SQLite needs no more than this: `write` began with BEGIN IMMEDIATE.
        if database.kind == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        if _distance(schema_step(connection)) < 0:
            upgrade(connection, HEAD)


def each_database(settings: Settings) -> Iterator[Database]:
    """Yield the ledger's database, and that of requests where it is another; each is let go of after its turn."""
    for url in dict.fromkeys((settings.database_url, settings.requests_url)):
        database = Database(url)
        try:
            yield database
        finally:
            database.dispose()


def check_schema(database: Database) -> None:
    """Raise SettingsError, with the way out, where the schema is older than this release or over one step newer."""
    with database.read() as connection:
        step = schema_step(connection)
    if step is None:
        raise SettingsError("SENSE_DATABASE_URL", "the database has no tables yet", "run `sense-worker init`")
    if _distance(step) < 0:
        raise SettingsError(
            "SENSE_DATABASE_URL",
            f"the schema is at step {step}, this release needs {HEAD}",
            "run `sense-worker init`, which upgrades it",
        )


def schema_step(connection: sa.Connection) -> str | None:
    """Return the step the schema is at, or None where there is no schema."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    version = sa.table(VERSION_TABLE, sa.column("version_num", sa.String))
    step = connection.scalar(sa.select(version.c.version_num))
    return None if step is None else str(step)


def upgrade(connection: sa.Connection, step: str) -> None:
    """Run the steps up to `step` in the transaction of `connection`; the caller holds the lock."""
    # Alembic costs 0.2 s to import, and a schema is up to date at almost every start.
    from alembic import command
    from alembic.config import Config

    # Its own lines name every step, also where a command promised to say nothing.
    logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, step)


def _distance(step: str | None) -> int:
    """Return how many steps the schema is ahead of this release: 0 or 1 is fine, negative wants an upgrade."""
    if step is None:
        return -int(HEAD)
    ahead = int(step) - int(HEAD) if step.isdecimal() else None
    if ahead is None or ahead > 1:
        raise SettingsError(
            "SENSE_DATABASE_URL",
            f"the schema is at step {step!r}, this release knows {HEAD} and works with one step newer",
            "upgrade sense-worker",
        )
    return ahead
