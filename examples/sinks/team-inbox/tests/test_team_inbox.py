"""The inbox of a product: the contract of sinks, and what the product reads."""

# ruff: noqa: S101 - assertions

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from team_inbox import TeamInbox, TeamInboxOptions, mark_seen, unseen

from sinks.conformance import Given, SinkConformance, delivery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Write to the file without end, as another program may."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


def ids(path: str) -> list[str]:
    """Return the ids of all rows."""
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM item")]


class TestTeamInbox(SinkConformance):
    """Everything the contract asks of a sink."""

    def make(self, tmp_path: Path) -> Given:
        """Deliver into a file of its own."""
        path = str(tmp_path / "inbox.db")
        return Given(
            TeamInbox,
            {"path": path, "wait_s": 0.1},
            seen=lambda: ids(path),
            away=lambda: locked(path),
            rejected=lambda one: one._replace(body=b"no event"),
        )


def test_a_principal_reads_what_is_theirs(tmp_path: Path) -> None:
    """What is unseen is listed for its principal alone, until it is marked; a repeat does not bring it back."""
    path = str(tmp_path / "inbox.db")
    sink = TeamInbox("team", TeamInboxOptions(path=path))
    sink.open()
    mine, theirs = delivery(principal="ana", subject="main"), delivery(principal="ben")
    sink.deliver([mine, theirs])
    assert [(item.id, item.title) for item in unseen(path, "ana")] == [(mine.id, "commit.created: main")]
    assert not mark_seen(path, "ben", mine.id)
    assert mark_seen(path, "ana", mine.id)
    sink.deliver([mine])
    sink.close()
    assert unseen(path, "ana") == []
