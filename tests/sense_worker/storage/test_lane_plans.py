"""What a lane's statements cost does not grow with the backlog, nor with what was delivered long ago."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sense_worker.storage.engine import Database
from sense_worker.storage.ledger import Ledger
from sense_worker.storage.migrate import migrate

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

LANE = "t-red/remote"


def claim(ledger: Ledger, connection: sa.Connection) -> None:
    """Claim one batch."""
    ledger.claim(connection, LANE, calls=4, batch=1, lease_micros=10, now=9, company=False)


def hold(ledger: Ledger, connection: sa.Connection) -> None:
    """Hold the lane."""
    ledger.hold_lane(connection, LANE, "sink paused")


def release(ledger: Ledger, connection: sa.Connection) -> None:
    """Release the lane."""
    ledger.release_lane(connection, LANE, 9)


@pytest.mark.parametrize("work", [claim, hold, release])
def test_a_lane_is_read_by_its_index_in_its_order(tmp_path: Path, work):
    """SQLite walks the partial index for every statement over a lane: it scans no table and sorts no backlog."""
    database = Database(f"sqlite:///{tmp_path / 'sense.db'}")
    migrate(database)
    said: list[str] = []
    with database.write() as connection:
        driver = connection.connection.driver_connection
        driver.set_trace_callback(said.append)
        work(Ledger(database), connection)
        driver.set_trace_callback(None)
        over_the_lane = [sql for sql in said if "lane = " in sql]
        plans = [row[3] for sql in over_the_lane for row in driver.execute(f"EXPLAIN QUERY PLAN {sql}")]
    database.dispose()

    lines = [line for line in plans if "TEMP B-TREE FOR count" not in line]
    walks = [line for line in lines if "sense_delivery_due (lane=? AND due_at" in line]
    assert len(walks) == len(over_the_lane) > 0
    assert [line for line in lines if line not in walks and "autoindex_sense_event" not in line] == []
