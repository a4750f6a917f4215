"""What a reader of the inbox pays for: an index finds what is asked for, however much was put away."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from sense_worker.storage.engine import Database
from sinks.inbox_moves import due_owners
from sinks.inbox_reading import SELECTIONS, Selection, View, read_items

MINE = View("acme", "ana", member_of=("apollo", "gemini"))


def listed(**fields):
    return lambda connection: read_items(connection, MINE, Selection(**fields))


@pytest.mark.parametrize(
    ("ask", "index"),
    [
        (listed(), "inbox_item_open (tenant=? AND principal=?)"),
        (listed(states=SELECTIONS["unseen"], after=3), "inbox_item_open (tenant=? AND principal=? AND number>?)"),
        (listed(before=9), "inbox_item_open (tenant=? AND principal=? AND number<?)"),
        (listed(states=("archived",)), "inbox_item_away (tenant=? AND principal=? AND state=?)"),
        (lambda connection: due_owners(connection, 5, 10), "inbox_item_snoozed (snooze_ends_at<?)"),
    ],
    ids=["open", "onward", "back", "archived", "due"],
)
def test_an_index_serves_the_query_and_its_order(sqlite_url: str, ask, index):
    """SQLite names the index, and sorts nothing itself."""
    database = Database(sqlite_url)
    asked = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *at: asked.append((at[2], at[3])))
    with database.read() as connection:
        ask(connection)
        statement, parameters = asked[-1]
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    database.dispose()

    assert plan == [f"SEARCH inbox_item USING INDEX {index}"]
