"""What a lane's statements cost does not grow with the backlog, nor with what was delivered long ago."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sense_worker.storage.engine import Database
from sense_worker.storage.ledger import Ledger
from sense_worker.storage.migrate import migrate
from sense_worker.storage.records import Settlement
from sense_worker.storage.rows import Rows
from sense_worker.storage.states import State

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


def test_a_batch_is_claimed_and_settled_by_its_keys(tmp_path: Path):
    """One statement each for the whole batch, which looks every row of it up and no other."""
    database = Database(f"sqlite:///{tmp_path / 'sense.db'}")
    migrate(database)
    ledger = Ledger(database)
    said: list[str] = []
    with database.write() as connection:
        _waiting(Rows(connection, "sqlite"), 7)
        driver = connection.connection.driver_connection
        driver.set_trace_callback(said.append)
        ((*claimed,),) = ledger.claim(connection, LANE, calls=1, batch=5, lease_micros=10, now=9, company=False) or []
        settled = ledger.settle(
            connection, [Settlement(one, State.DELIVERED, receipt="200") for one in claimed], 9, "a"
        )
        driver.set_trace_callback(None)
        updates = [sql for sql in said if sql.startswith("UPDATE sense_delivery")]
        plans = [[row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {sql}")] for sql in updates]
        states = driver.execute(
            "SELECT state, attempt, receipt, count(*) FROM sense_delivery GROUP BY state"
        ).fetchall()
    database.dispose()

    assert settled == len(claimed) == 5
    assert states == [("delivered", 1, "200", 5), ("pending", 0, None, 2)]
    assert len(plans) == 2
    for plan in plans:
        assert "SEARCH sense_delivery USING INDEX sqlite_autoindex_sense_delivery_1 (event_id=? AND route_id=?)" in plan
        assert not [line for line in plan if line.startswith("SCAN sense_delivery")]


def _waiting(rows: Rows, count: int) -> None:
    """Let deliveries wait in the lane."""
    ids = [(number.to_bytes(16, "big"),) for number in range(count)]
    rows.execute_many(
        "INSERT INTO sense_event (id, tenant, pack_id, ref, activation_id, publisher, message_id, occurred_at, body, "
        "body_digest, stream_id, generation, digest, signed_at, accepted_at, repeats) "
        "VALUES (?, 't-red', 'mail', 'new_item', 'a-1', 'ana', 'm', '', x'7b7d', x'', '', 1, '', 1, 1, 0)",
        ids,
    )
    rows.execute_many(
        "INSERT INTO sense_delivery (event_id, route_id, tenant, lane, owner, state, alone, due_at, created_at) "
        f"VALUES (?, 'r', 't-red', '{LANE}', 'ana', 'pending', false, 1, 1)",
        ids,
    )
