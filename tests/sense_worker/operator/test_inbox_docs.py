"""docs/inbox.md: its states are those of the code, its example and its query run."""

from __future__ import annotations

import re
from pathlib import Path

from sense_worker.settings import Settings
from sinks import inbox_moves as moves
from sinks.inbox_items import STATES
from sinks.inbox_tables import counter, item
from tests.sinks.deliveries import delivery
from tests.sinks.inboxes import write

PAGE = (Path(__file__).resolve().parents[3] / "docs/inbox.md").read_text()
[EXAMPLE] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
[QUERY] = re.findall(r"```sql\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_table_of_states_says_what_each_change_does():
    """A row a change: where it leads, and from where."""
    told = {}
    state = ""
    for named, how, of in re.findall(
        r"^\| (?:`(\w+)`)? ?\|[^|]*\| ([^|]*`\w+`[^|]*) \| ([^|]*) \|$", PAGE, re.MULTILINE
    ):
        state = named or state
        told[re.findall(r"`(\w+)`", how)[0]] = (state, set(STATES) if "any" in of else set(of.split(", ")))
    changes = {name.lower(): move for name, move in vars(moves).items() if isinstance(move, moves.Move)}

    assert told == {name: (move.to, set(move.of)) for name, move in changes.items()}


def test_the_tables_have_the_columns_that_are_promised():
    """Every column of both tables is named on the page."""
    for table in (item, counter):
        described = PAGE.partition(f"`{table.name}`, primary key")[2].partition("\n\n`")[0]
        assert {column.name for column in table.columns} <= set(re.findall(r"(?<=[`( ])\w+(?=[`,)])", described))


def test_the_example_runs(world, monkeypatch, capsys):
    """As it stands there: a login reads its unread items and sees them."""
    world.operator.add_principal("ana")
    body = b'{"ref":"commit.created"}'
    write(world.database, delivery(1, tenant="t-red", land="personal", subject="main", body=body))
    there = world.settings.model_copy(update={"session_file": world.home / "t-red.session"})
    monkeypatch.setattr(Settings, "load", lambda: there)

    exec(compile(EXAMPLE, "docs/inbox.md", "exec"), {})  # noqa: S102 - our own page

    assert capsys.readouterr().out.splitlines() == ["1", f"1 main 1 {body.decode()}"]
    assert world.rows(item)[0].state == "seen"


def test_the_query_finds_a_counter_that_has_drifted(world):
    """No row while all is well; the place of the drift after somebody wrote a state by hand."""
    write(world.database, delivery(1), delivery(2, land="personal"))

    def drifted():
        with world.database.read() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(QUERY)]

    assert drifted() == []
    with world.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM inbox_item WHERE land = 'brain'")
    assert drifted() == [("acme", "ana", "apollo")]
