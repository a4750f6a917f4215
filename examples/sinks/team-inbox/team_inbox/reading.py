"""What the product's own pages do with the inbox."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from team_inbox.tables import connect

WAIT_S = 5.0


class Item(NamedTuple):
    """One thing that happened, for one principal."""

    id: str
    title: str
    occurred_at: str


def unseen(path: str, principal: str) -> list[Item]:
    """Return what a principal has not seen yet, the oldest first."""
    query = "SELECT id, title, occurred_at FROM item WHERE principal = ? AND NOT seen ORDER BY rowid"
    with closing(connect(path, WAIT_S)) as connection:
        return [Item(*row) for row in connection.execute(query, (principal,))]


def mark_seen(path: str, principal: str, item: str) -> bool:
    """Mark an item of a principal's as seen; returns whether it was there and unseen."""
    change = "UPDATE item SET seen = 1 WHERE id = ? AND principal = ? AND NOT seen"
    with closing(connect(path, WAIT_S)) as connection:
        return connection.execute(change, (item, principal)).rowcount == 1
