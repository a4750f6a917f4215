"""Reading the inbox: items of a view, newest first or onward from a number, and the counts of the same view.

Who may see what is decided by who calls, for each call anew: a `View` says what was allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from sinks.inbox_items import COLUMNS, OPEN, STATES, InboxItem
from sinks.inbox_tables import IS_AWAY, IS_OPEN, counter, item

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

SELECTIONS: dict[str, tuple[str, ...]] = {
    "open": OPEN,
    "unread": ("unseen", "seen"),
    **{state: (state,) for state in STATES},
}
"""What may be asked for, and the states it selects."""


@dataclass(frozen=True, slots=True)
class View:
    """Whose items, and which of them may be seen."""

    tenant: str
    principal: str | None
    """None: everybody's."""
    project: str | None = None
    """Only what is shared in this project; None: all."""
    member_of: Collection[str] | None = None
    """The projects in whose items the reader has a part now; None: all."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which items of a view, in which order, how many."""

    states: tuple[str, ...] = OPEN
    """Of OPEN, or one of AWAY."""
    pack_id: str | None = None
    subject: str | None = None
    collapse: bool = False
    """Only the newest of each subject of a pack and project, with the number of those that the selection holds."""
    after: int | None = None
    """Onward from this number, ascending. A principal's numbers are in the order of commits: none is skipped."""
    before: int | None = None
    """Back from this number, descending."""
    limit: int = 50


class Listed(NamedTuple):
    """An item, and how many it stands for: one, or with `collapse` all of its subject in the selection."""

    item: InboxItem
    total: int


class Counts(NamedTuple):
    """Items of a view by state; the fields are STATES in their order."""

    unseen: int
    seen: int
    read: int
    archived: int
    snoozed: int


def read_items(connection: sa.Connection, view: View, selection: Selection) -> list[Listed]:
    """Return items of a view: the newest first, with `after` the next ones.

    The newest is the one with the highest number; in everybody's view, where numbers mean nothing, the last accepted.
    """
    if selection.collapse:
        query = _collapsed(view, selection)
    else:
        query = sa.select(item, sa.literal(1)).where(*_conditions(view, selection), *_numbers(selection, item.c.number))
    order = _order(view, selection)
    return [
        Listed(InboxItem(*row[: len(COLUMNS)]), int(row[-1]))
        for row in connection.execute(query.order_by(*order).limit(selection.limit))
    ]


def read_counts(connection: sa.Connection, view: View) -> Counts:
    """Return how many items of a view are in each state: those that `read_items` would list."""
    c = counter.c
    within = [c.tenant == view.tenant]
    if view.principal is not None:
        within.append(c.principal == view.principal)
    if view.project is not None:
        within.append(c.project == view.project)
    if view.member_of is not None:
        within.append(c.project.in_(("", *view.member_of)))
    sums = (sa.func.coalesce(sa.func.sum(c[state]), 0) for state in STATES)
    return Counts(*(int(value) for value in connection.execute(sa.select(*sums).where(*within)).one()))


def in_view(view: View) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the conditions under which an item belongs to a view."""
    i = item.c
    yield i.tenant == view.tenant
    if view.principal is not None:
        yield i.principal == view.principal
    if view.project is not None:
        yield sa.and_(i.land == "brain", i.project == view.project)
    if view.member_of is not None:
        yield sa.or_(i.land != "brain", i.project.in_(view.member_of))


def _conditions(view: View, selection: Selection) -> Iterator[sa.ColumnElement[bool]]:
    i = item.c
    yield from in_view(view)
    is_open = set(selection.states) <= set(OPEN)
    yield _condition(IS_OPEN if is_open else IS_AWAY)
    if selection.states != OPEN:
        yield i.state.in_(selection.states)
    if selection.pack_id is not None:
        yield i.pack_id == selection.pack_id
    if selection.subject is not None:
        yield i.subject == selection.subject


def _condition(text: str) -> Any:
    return sa.text(text)


def _numbers(selection: Selection, number: Any) -> Iterator[sa.ColumnElement[bool]]:
    if selection.after is not None:
        yield number > selection.after
    if selection.before is not None:
        yield number < selection.before


def _order(view: View, selection: Selection) -> tuple[sa.ColumnElement[Any], ...]:
    i = item.c
    if view.principal is None:
        return (i.accepted_at.desc(), i.event_id, i.route_id)
    return (i.number,) if selection.after is not None else (i.number.desc(),)


def _collapsed(view: View, selection: Selection) -> sa.Select[*tuple[Any, ...]]:
    """Return the newest item of each subject; an item without a subject stands for itself."""
    i = item.c
    itself = sa.case((i.subject.is_(None), i.number))
    newest = sa.func.max(i.number)
    groups = (
        sa.select(i.principal.label("whose"), newest.label("newest"), sa.func.count().label("held"))
        .where(*_conditions(view, selection))
        .group_by(i.principal, i.project, i.pack_id, i.subject, itself)
        .having(*_numbers(selection, newest))
        .subquery()
    )
    found = sa.and_(i.principal == groups.c.whose, i.number == groups.c.newest)
    return sa.select(item, groups.c.held).join(groups, found).where(*_conditions(view, selection))
