"""The inbox tables as a transaction of the worker changes them; the statements are the sink's own (docs/inbox.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks import inbox_moves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sense_worker.storage.engine import Database


def take_in(database: Database, owners: Iterable[inbox_moves.Owner]) -> None:
    """Take in what is due for these principals, by the database's clock, in one transaction for each."""
    for owner in owners:
        with database.write() as connection:
            inbox_moves.take_in(connection, owner, database.now(connection))
