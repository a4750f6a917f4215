"""The sink: a batch becomes rows in one transaction, each delivery once."""

from __future__ import annotations

import json
import sqlite3
import threading
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from sinks import Delivered, Rejected, Retry, SinkBase
from team_inbox.tables import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks import Delivery, Outcome

TITLE_LIMIT = 200
"""Characters of a title: the product shows one line."""


class TeamInboxOptions(BaseModel):
    """`path` is the file; its folder has to be there on every worker's machine."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    path: str = Field(pattern="^/")
    wait_s: float = Field(default=5.0, gt=0, le=20)
    """Seconds to wait for another program that writes."""


class TeamInbox(SinkBase):
    """Keeps principals apart by itself: every row names its own, and the product reads by it."""

    kind = "team_inbox"
    Options = TeamInboxOptions
    options: TeamInboxOptions
    lands = ("personal", "brain")
    partitioned = True
    deadline_s = 30.0
    batch_size = 100

    def __init__(self, name: str, options: TeamInboxOptions) -> None:
        super().__init__(name, options)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Connect, once in each process; the table is made where it is missing."""
        self._connection = connect(self.options.path, self.options.wait_s)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Write all rows or none; a delivery that comes again leaves its row as it is."""
        rows = [_row(delivery) for delivery in batch]
        try:
            with self._lock:
                self._write([row for row in rows if row is not None])
        except sqlite3.Error as error:
            return [Retry(f"the inbox's file cannot be written: {error}")] * len(batch)
        return [Rejected("the body is no event") if row is None else Delivered() for row in rows]

    def _write(self, rows: list[tuple[str | None, ...]]) -> None:
        if self._connection is None:
            raise sqlite3.ProgrammingError("it is closed")
        insert = (
            "INSERT INTO item (id, principal, project, title, data, occurred_at) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO NOTHING"
        )
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(insert, rows)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            self._connection.execute("ROLLBACK")
            raise


def _row(delivery: Delivery) -> tuple[str | None, ...] | None:
    """Return the row of a delivery; None where its body is no event."""
    try:
        data = json.dumps(json.loads(delivery.body)["data"])
    except (ValueError, KeyError, TypeError):
        return None
    title = f"{delivery.ref}: {delivery.subject or 'something'}"[:TITLE_LIMIT]
    return (delivery.id, delivery.principal, delivery.project, title, data, delivery.occurred_at)
