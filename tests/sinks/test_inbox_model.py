"""The inbox against a naive model of it: whatever is done in whatever order, lists and counters say the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sense_worker.storage.engine import Database
from sense_worker.storage.rows import Rows
from sinks import inbox_moves as moves
from sinks.inbox_items import COLUMNS, STATES
from sinks.inbox_reading import SELECTIONS, Selection, View, read_counts, read_items
from sinks.inbox_tables import counter, item
from tests.sinks.deliveries import delivery
from tests.sinks.inboxes import SINK

if TYPE_CHECKING:
    from sinks.protocol import Delivery

WHO = ("ana", "ben")
PROJECTS = ("apollo", "gemini")
MOVES = ("SEE", "READ", "UNREAD", "ARCHIVE", "UNARCHIVE", "SNOOZE", "WAKE")
NEXT = {
    ("SEE", "unseen"): "seen",
    **{("READ", state): "read" for state in ("unseen", "seen")},
    ("UNREAD", "read"): "seen",
    **{("ARCHIVE", state): "archived" for state in ("unseen", "seen", "read", "snoozed")},
    ("UNARCHIVE", "archived"): "read",
    **{("SNOOZE", state): "snoozed" for state in STATES},
    ("WAKE", "snoozed"): "unseen",
}
"""Written down once more, from docs/inbox.md and not from the code."""


@dataclass
class Item:
    """What the model knows of an item; `place` orders the items of a principal."""

    given: Delivery
    place: int
    state: str = "unseen"
    ends: int | None = None

    @property
    def shared(self) -> str | None:
        return self.given.project if self.given.land == "brain" else None

    @property
    def subject(self) -> object:
        given = self.given
        return (given.project, given.pack_id, given.subject) if given.subject is not None else self.place


def arrival(number: int) -> Delivery:
    """Return the delivery of this number: what comes again under a key is the same."""
    return delivery(
        number,
        principal=WHO[number % 2],
        project=PROJECTS[number // 2 % 2],
        land=("brain", "personal")[number // 4 % 2],
        pack_id=("git", "mail")[number // 8 % 2],
        subject=("a", "b", None)[number % 3],
        accepted_at=1 + number * 7 % 50,
    )


ARRIVALS = st.integers(0, 40).map(arrival)
LISTED = ("open", "unread", "archived", "snoozed")


class Inboxes(RuleBasedStateMachine):
    """Rules change both; the invariants compare what a reader sees with what the model would show."""

    database: Database

    def __init__(self) -> None:
        super().__init__()
        with self.database.write() as connection:
            for table in (item, counter):
                connection.execute(sa.delete(table))
        self.items: dict[tuple[str, str], Item] = {}
        self.now = 100
        self.place = 0

    def mine(self, who: str, projects: Any = PROJECTS) -> list[Item]:
        seen = [one for one in self.items.values() if one.given.principal == who and one.shared in (None, *projects)]
        return sorted(seen, key=lambda one: -one.place)

    def placed(self) -> int:
        self.place += 1
        return self.place

    def key(self, given: Delivery) -> tuple[str, str]:
        return given.event_id, given.route_id

    @initialize()
    def begin(self):
        """Each principal has some items, so that the first rules have something to be about."""
        self.arrive([arrival(number) for number in range(12)], commit=True)

    @rule(batch=st.lists(ARRIVALS, min_size=1, max_size=6), commit=st.booleans())
    def arrive(self, batch, commit):
        """A batch of a drain, repeats of earlier items and within it included; one that is undone leaves nothing."""
        with self.database.engine.connect() as connection, connection.begin() as transaction:
            SINK.write(batch, Rows(connection, self.database.kind))
            if not commit:
                transaction.rollback()
        for given in batch if commit else ():
            if self.key(given) not in self.items:
                self.items[self.key(given)] = Item(given, self.placed())

    @rule(given=ARRIVALS)
    def arrive_from_the_release_before(self, given):
        """It writes no number and no counter; reading takes the item in."""
        if self.key(given) in self.items:
            return
        row = {name: getattr(given, name) for name in COLUMNS if hasattr(given, name)}
        with self.database.write() as connection:
            connection.execute(sa.insert(item), {**row, "event_id": bytes.fromhex(given.event_id)})
        self.items[self.key(given)] = Item(given, self.placed())
        self.read()

    @precondition(lambda self: self.items)
    @rule(
        data=st.data(),
        who=st.sampled_from(WHO),
        move=st.sampled_from((*MOVES, "SNOOZE", "WAKE")),
        lasts=st.integers(1, 20),
        projects=st.sampled_from((PROJECTS, PROJECTS, ("apollo",), ())),
    )
    def move(self, data, who, move, lasts, projects):
        """A principal changes some items that it may see now; others are not found."""
        some = data.draw(st.lists(st.sampled_from(sorted(self.items)), min_size=1, max_size=12, unique=True))
        ends = self.now + lasts if move == "SNOOZE" else None
        with self.database.write() as connection:
            keys = [(bytes.fromhex(event), route) for event, route in some]
            found = moves.find_items(connection, View("acme", who, member_of=projects), keys)
            moved = moves.move_items(connection, found, getattr(moves, move), ends)
        mine = [one for one in self.mine(who, projects) if self.key(one.given) in some]
        assert [bytes(one.event_id).hex() for one in found] == [one.given.event_id for one in mine]
        for one in mine:
            after = NEXT.get((move, one.state))
            if after is not None:
                one.state, one.ends = after, ends
                one.place = self.placed() if move == "WAKE" else one.place
        assert [one.state for one in moved] == [one.state for one in mine]

    @rule(later=st.integers(1, 25))
    def time_passes(self, later):
        """Snoozes end, with no writer."""
        self.now += later
        self.read()

    @rule(before=st.integers(1, 50), word=st.sampled_from(sorted(SELECTIONS)), limit=st.integers(1, 8))
    def prune(self, before, word, limit):
        """An operator removes old items, all of them in as many calls as it takes."""
        removed = limit
        while removed == limit:
            with self.database.write() as connection:
                removed = moves.remove_items(connection, "acme", before, SELECTIONS[word], limit)
        self.items = {
            key: one
            for key, one in self.items.items()
            if one.given.accepted_at >= before or one.state not in SELECTIONS[word]
        }

    def read(self) -> None:
        """Take in what is due, as every reader does first; woken items come after all others, by the end of theirs."""
        while True:
            with self.database.write() as connection:
                due = moves.due_owners(connection, self.now, 1)
                if not due:
                    break
                moves.take_in(connection, due[0], self.now)
        woken = [one for one in self.items.values() if one.state == "snoozed" and (one.ends or 0) <= self.now]
        for one in sorted(woken, key=lambda one: (one.ends or 0, one.given.accepted_at, self.key(one.given))):
            one.state, one.ends, one.place = "unseen", None, self.placed()

    @rule(who=st.sampled_from(WHO), projects=st.sets(st.sampled_from(PROJECTS)), word=st.sampled_from(LISTED))
    def look(self, who, projects, word):
        """A principal reads: what it may see now, whole and collapsed, page by page, and the counts of the same."""
        view, states = View("acme", who, member_of=projects), SELECTIONS[word]
        mine = [one for one in self.mine(who, projects) if one.state in states]
        newest: dict[object, list[Item]] = {}
        for one in mine:
            newest.setdefault(one.subject, []).append(one)
        with self.database.read() as connection:
            counts = read_counts(connection, view)
            pages = self.pages(connection, view, states)
            collapsed = read_items(connection, view, Selection(states, collapse=True))
        assert sum(counts._asdict()[state] for state in states) == len(mine)
        assert pages == [one.given.event_id for one in reversed(mine)]
        expected = [(held[0].given.event_id, len(held)) for held in newest.values()]
        assert [(bytes(one.item.event_id).hex(), one.total) for one in collapsed] == expected

    def pages(self, connection, view, states):
        """Read onward from the beginning, three items at a time."""
        found, after = [], 0
        while page := read_items(connection, view, Selection(states, after=after, limit=3)):
            found += [bytes(one.item.event_id).hex() for one in page]
            after = int(page[-1].item.number or 0)
        return found

    @invariant()
    def nothing_has_drifted(self):
        """Every counter is what the model counts; numbers are in the order in which items were committed or woke."""
        with self.database.read() as connection:
            rows = connection.execute(sa.select(counter)).mappings().all()
            query = sa.select(item.c.principal, item.c.event_id).order_by(item.c.number.desc())
            found = [(who, bytes(event).hex()) for who, event in connection.execute(query)]
        counts: dict[tuple[str, str], dict[str, int]] = {}
        for one in self.items.values():
            counts.setdefault((one.given.principal, one.shared or ""), dict.fromkeys(STATES, 0))[one.state] += 1
        empty = dict.fromkeys(STATES, 0)
        for row in rows:
            key = row["principal"], row["project"]
            assert {state: row[state] for state in STATES} == counts.pop(key, empty), key
        assert not counts
        for who in WHO:
            assert [event for owner, event in found if owner == who] == [one.given.event_id for one in self.mine(who)]


def run(database: Database, examples: int, steps: int) -> None:
    class Machine(Inboxes):
        pass

    Machine.database = Database(database.url.render_as_string(hide_password=False), durable=False)
    # Not shrunk: on a database that takes minutes.
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=slow,
    )
    try:
        run_state_machine_as_test(Machine, settings=chosen)
    finally:
        Machine.database.dispose()


def test_lists_and_counters_are_those_of_the_model(database: Database):
    """Arrivals, repeats, undone batches, changes, snoozes that end, pruning: counters never drift."""
    run(database, examples=8, steps=18)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_lists_and_counters_are_those_of_the_model_for_long(database: Database):
    """The same with many more steps."""
    run(database, examples=150, steps=50)
