"""Changing the inbox: items change their state, wake, or go; their counters change in the same transaction.

Everything here locks the principal's own counter row before it looks at its items, as `Inbox.write` does. Who changes
items of several principals in one transaction takes them in name order.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from sinks.inbox_items import OPEN, STATES, InboxItem, shared_in
from sinks.inbox_reading import View, in_view
from sinks.inbox_tables import IS_SNOOZED, IS_UNNUMBERED, counter, item

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

TAKEN_AT_ONCE = 1_000
"""Items one transaction takes in, wakes or removes, so that it holds SQLite's lock for milliseconds."""


class Owner(NamedTuple):
    """A principal of a tenant."""

    tenant: str
    principal: str


class Move(NamedTuple):
    """A change of state. An item in none of the states `of` stays as it is: it is further on, or elsewhere."""

    of: tuple[str, ...]
    to: str


SEE = Move(("unseen",), "seen")
READ = Move(("unseen", "seen"), "read")
UNREAD = Move(("read",), "seen")
ARCHIVE = Move((*OPEN, "snoozed"), "archived")
UNARCHIVE = Move(("archived",), "read")
SNOOZE = Move(STATES, "snoozed")
WAKE = Move(("snoozed",), "unseen")


class _Step(NamedTuple):
    """One item from a state (None: it was not counted yet) to another (None: it goes)."""

    one: InboxItem
    before: str | None
    after: str | None
    ends_at: int | None = None
    number: int | None = None
    """Its new number, or the one it keeps."""


def find_items(connection: sa.Connection, view: View, keys: Iterable[tuple[bytes, str | None]]) -> list[InboxItem]:
    """Return the items of one principal's view by event and route (None: each of the event), and lock the principal.

    One that has no number yet is not found: `take_in` comes first.
    """
    if view.principal is None:
        raise AssertionError("items are changed one principal at a time")
    _take_numbers(connection, Owner(view.tenant, view.principal), 0)
    i = item.c
    wanted = set(keys)
    events = {event for event, _ in wanted}
    query = sa.select(item).where(*in_view(view), i.number.is_not(None), i.event_id.in_(events))
    found = [InboxItem(*row) for row in connection.execute(query.order_by(i.number.desc()))]
    return [
        one
        for one in found
        if not wanted.isdisjoint(((bytes(one.event_id), None), (bytes(one.event_id), one.route_id)))
    ]


def move_items(
    connection: sa.Connection, items: Sequence[InboxItem], move: Move, ends_at: int | None = None
) -> list[InboxItem]:
    """Change the state of items that `find_items` returned in this transaction; returns all of them as they are now.

    `ends_at` is the moment at which a snooze ends, in microseconds. An item that wakes gets a new number.
    """
    moving = [one for one in items if one.state in move.of]
    if not moving:
        return list(items)
    owner = Owner(moving[0].tenant, moving[0].principal)
    steps = [_Step(one, one.state, move.to, ends_at, one.number) for one in moving]
    if move == WAKE:
        steps = _numbered(connection, owner, steps)
    moved = {(one.event_id, one.route_id): one for one in _apply(connection, owner, steps)}
    return [moved.get((one.event_id, one.route_id), one) for one in items]


def due_owners(
    connection: sa.Connection, now: int, limit: int, tenant: str | None = None, principal: str | None = None
) -> list[Owner]:
    """Return principals, in name order, of up to `limit` snoozes that are over and items that have no number yet.

    The release before this one writes without a number, and in a rolling upgrade both write.
    """
    i = item.c
    found: set[Owner] = set()
    for due in _due(now):
        query = sa.select(i.tenant, i.principal).where(*due)
        if tenant is not None:
            query = query.where(i.tenant == tenant)
        if principal is not None:
            query = query.where(i.principal == principal)
        # In the order of the index of what is due, so that no planner goes through all that was put away instead.
        found.update(Owner(*row) for row in connection.execute(query.order_by(i.snooze_ends_at).limit(limit)))
    return sorted(found)


def take_in(connection: sa.Connection, owner: Owner, now: int) -> int:
    """Number and count what has no number yet, and wake what was snoozed until now; returns how many items.

    At most TAKEN_AT_ONCE of each, the oldest first. All of them come after whatever was there: who reads onward by
    number meets them.
    """
    _take_numbers(connection, owner, 0)
    steps: list[_Step] = []
    for due in _due(now):
        query = sa.select(item).where(*due, *in_view(View(*owner)))
        query = query.order_by(item.c.snooze_ends_at, item.c.accepted_at, item.c.event_id, item.c.route_id)
        for row in connection.execute(query.limit(TAKEN_AT_ONCE)):
            one = InboxItem(*row)
            steps.append(_Step(one, None, one.state) if one.number is None else _Step(one, one.state, WAKE.to))
    _apply(connection, owner, _numbered(connection, owner, steps))
    return len(steps)


def remove_items(connection: sa.Connection, tenant: str, before: int, states: Collection[str], limit: int) -> int:
    """Remove up to `limit` items accepted before a moment, in any of the states, with their counts; returns how many.

    Principals are taken in name order, and only the last of them may have more.
    """
    i, c = item.c, counter.c
    removed = 0
    owners = sa.select(c.principal).where(c.tenant == tenant, c.project == "").order_by(c.principal)
    for principal in connection.scalars(owners).all():
        owner = Owner(tenant, principal)
        old = (*in_view(View(*owner)), i.accepted_at < before, i.state.in_(states), i.number.is_not(None))
        if connection.scalar(sa.select(sa.exists().where(*old))):
            _take_numbers(connection, owner, 0)
            query = sa.select(item).where(*old).order_by(i.accepted_at).limit(limit - removed)
            found = [InboxItem(*row) for row in connection.execute(query)]
            _apply(connection, owner, [_Step(one, one.state, None) for one in found])
            removed += len(found)
        if removed == limit:
            break
    return removed


def _due(now: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return (sa.text(IS_UNNUMBERED),), (sa.text(IS_SNOOZED), item.c.snooze_ends_at <= now, item.c.number.is_not(None))


_ADD = (
    "INSERT INTO inbox_counter (tenant, principal, project, {names}) VALUES (:tenant, :principal, :project, {marks}) "
)
_ADD += "ON CONFLICT (tenant, principal, project) DO UPDATE SET {sums} RETURNING number"


def _adding(names: Sequence[str]) -> sa.TextClause:
    marks = ", ".join(f":{name}" for name in names)
    sums = ", ".join(f"{name} = inbox_counter.{name} + excluded.{name}" for name in names)
    return sa.text(_ADD.format(names=", ".join(names), marks=marks, sums=sums))


_TAKE, _COUNT = _adding(("number",)), _adding(STATES)


def _take_numbers(connection: sa.Connection, owner: Owner, count: int) -> range:
    """Lock the principal's own row until the transaction ends, and take so many numbers from it."""
    key = {**owner._asdict(), "project": ""}
    last = int(connection.execute(_TAKE, {**key, "number": count}).scalar_one())
    return range(last - count + 1, last + 1)


def _numbered(connection: sa.Connection, owner: Owner, steps: Sequence[_Step]) -> list[_Step]:
    numbers = _take_numbers(connection, owner, len(steps))
    return [step._replace(number=number) for step, number in zip(steps, numbers, strict=True)]


def _apply(connection: sa.Connection, owner: Owner, steps: Sequence[_Step]) -> list[InboxItem]:
    """Change the rows and their counters, the only place that does both; returns the items that stay, as they are now.

    The principal's own row is locked.
    """
    i = item.c
    this = (i.event_id == sa.bindparam("event"), i.route_id == sa.bindparam("route"))
    gone = [{"event": bytes(one.event_id), "route": one.route_id} for one, _, after, *_ in steps if after is None]
    stay = [
        one._replace(state=after, snooze_ends_at=ends_at, number=number)
        for one, _, after, ends_at, number in steps
        if after is not None
    ]
    if gone:
        connection.execute(sa.delete(item).where(*this), gone)
    if stay:
        changed: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in ("state", "snooze_ends_at", "number")}
        rows = [
            {
                "event": bytes(one.event_id),
                "route": one.route_id,
                **{f"new_{name}": getattr(one, name) for name in changed},
            }
            for one in stay
        ]
        connection.execute(sa.update(item).where(*this).values(changed), rows)
    _count(connection, owner, steps)
    return stay


def _count(connection: sa.Connection, owner: Owner, steps: Sequence[_Step]) -> None:
    counts: dict[str, Counter[str]] = {}
    for one, before, after, *_ in steps:
        count = counts.setdefault(shared_in(one.land, one.project), Counter())
        for state, change in ((before, -1), (after, 1)):
            if state is not None:
                count[state] += change
    for project, count in sorted(counts.items()):
        connection.execute(_COUNT, {**owner._asdict(), "project": project, **{state: count[state] for state in STATES}})
