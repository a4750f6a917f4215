"""Alembic's environment: runs the steps on the connection that `migrate` hands over, inside its transaction."""

from __future__ import annotations

from alembic import context

from sense_worker.storage.migrate import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    # Alembic takes SQLite's DDL for non-transactional, which is the driver's doing and not ours: `Database` begins
    # every transaction itself, so a step that fails half way leaves nothing behind.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
