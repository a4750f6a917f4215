"""The inbox, as a session reads and keeps it: access is looked at anew for every call (docs/inbox.md).

with Operator.open(settings) as operator, web_login(request) as issued:
    mine = operator.acting_as(issued)
    for one in mine.list_inbox(state="unread", collapse=True):
        ...
    mine.read_items([one.id])
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import sqlalchemy as sa

from runtime_core.errors import NOT_A_MEMBER, REQUIRES_OPERATOR, Denied, NotFound, UsageError
from runtime_core.event import delivery_id, parse_delivery_id, parse_event_id
from sense_worker.operator.desk import Desk, know_principal, know_project
from sense_worker.operator.names import is_whole, lasting, need_texts, row_limit, span_of
from sense_worker.storage.inbox import take_in
from sense_worker.storage.schema import MEMBERSHIP
from sinks import inbox_moves as moves
from sinks.inbox_reading import SELECTIONS, Selection, View, read_counts, read_items

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sense_worker.operator.acting import Acting
    from sinks.inbox_items import InboxItem

IDS = 1_000
"""Items of one change at most."""
PRUNED = 5_000
"""Items one call removes at most."""
DUE_A_TURN = 100
LAST_NUMBER = 2**63 - 1
_EPOCH = datetime.fromtimestamp(0, UTC)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class InboxView:
    """One item of a principal's inbox."""

    event_id: str
    route_id: str
    principal: str
    project: str | None
    pack_id: str
    ref: str
    subject: str | None
    occurred_at: str
    accepted_at: int
    body: str
    """The signed JSON, as text."""
    id: str
    """The delivery's: what `explain` and every change of an item take."""
    number: int | None
    """The cursor for `after` and `before`: ascending in the order of commits, for each principal on its own."""
    state: str
    """unseen, seen, read, archived or snoozed."""
    snooze_ends_at: int | None
    """When it comes back as unseen; None unless it is snoozed."""
    total: int = 1
    """In a collapsed list, how many items of this subject the list holds; this one is the newest."""


@dataclass(frozen=True, slots=True)
class InboxCounts:
    """Items of a view by state."""

    unseen: int
    seen: int
    read: int
    archived: int
    snoozed: int
    unread: int
    """Unseen and seen."""


class Inboxes(Desk):
    """A principal reads and keeps its own items; an operator reads those of the tenant, and keeps its own.

    Items of land brain are shown while their principal is a member of their project, and again when it is one again.
    """

    def list_inbox(  # noqa: PLR0913 - filters, all by name
        self,
        *,
        principal: str | None = None,
        project: str | None = None,
        state: str = "open",
        pack: str | None = None,
        subject: str | None = None,
        collapse: bool = False,
        after: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[InboxView]:
        """Return one's own items, an operator's choice of whose (None: the tenant's), the newest first.

        `project`: only what is shared in it. `state`: a state, `unread` (unseen and seen) or `open` (and read).
        `collapse`: the newest of each subject of a pack and project; items without a subject stand for themselves.
        `after` is the number of an item: those that came after it follow, the oldest first, and none that was committed
        late is skipped. `before` pages back. Raises Denied, UsageError, and NotFound for a principal or project that
        is not there.
        """
        need_texts(principal=principal, project=project, state=state, pack=pack, subject=subject)
        selection = Selection(_states(state), pack, subject, collapse, after, before, row_limit(limit))
        _check_cursor(after, before)

        def read(connection: sa.Connection, view: View) -> list[InboxView]:
            if view.principal is None and (after, before) != (None, None):
                raise UsageError("after" if before is None else "before", "numbers are a principal's own", "name whose")
            return [_item(*listed) for listed in read_items(connection, view, selection)]

        return self._read_inbox(principal, project, read)

    def inbox_counts(self, *, principal: str | None = None, project: str | None = None) -> InboxCounts:
        """Count by state what `list_inbox` lists for the same principal and project. Raises like it."""
        need_texts(principal=principal, project=project)

        def read(connection: sa.Connection, view: View) -> InboxCounts:
            counts = read_counts(connection, view)
            return InboxCounts(*counts, unread=counts.unseen + counts.seen)

        return self._read_inbox(principal, project, read)

    def see_items(self, ids: Sequence[str]) -> list[InboxView]:
        """Make unseen items seen.

        Like all changes of items: of one's own alone, by their `id` (an event's id means all of one's items of it).
        Those that are in no state from which the change leads stay as they are. Returns them as they are now, the
        newest first; raises NotFound, with nothing changed, where one is not there or not one's own to see.
        """
        return self._move(ids, moves.SEE)

    def read_items(self, ids: Sequence[str]) -> list[InboxView]:
        """Make unseen and seen items read."""
        return self._move(ids, moves.READ)

    def unread_items(self, ids: Sequence[str]) -> list[InboxView]:
        """Make read items seen."""
        return self._move(ids, moves.UNREAD)

    def archive_items(self, ids: Sequence[str]) -> list[InboxView]:
        """Put items away, snoozed ones too."""
        return self._move(ids, moves.ARCHIVE)

    def unarchive_items(self, ids: Sequence[str]) -> list[InboxView]:
        """Take archived items back as read."""
        return self._move(ids, moves.UNARCHIVE)

    def snooze_items(
        self, ids: Sequence[str], *, for_s: float | None = None, until: datetime | None = None
    ) -> list[InboxView]:
        """Put items away for so many seconds or until a moment, by the database's clock; one of both is given.

        Then they come back as unseen, with a new number: the newest of all. A snoozed item is snoozed anew.
        """
        if (for_s is None) == (until is None) or (until is not None and until.tzinfo is None):
            raise UsageError("snooze", "has no end", "give seconds, or a moment with its zone")
        return self._move(ids, moves.SNOOZE, lambda now: _end(now, for_s, until))

    def wake_items(self, ids: Sequence[str]) -> list[InboxView]:
        """End the snooze of items now."""
        return self._move(ids, moves.WAKE)

    def prune_inbox(self, *, older_than_s: float, state: str = "archived") -> int:
        """Remove items of all principals accepted longer ago than this, 5,000 at most; returns how many. Operators.

        Call it again while it removes something. Nothing else ever removes an item.
        """
        need_texts(state=state)
        states = _states(state)
        with self._change("inbox.prune", state) as change:
            before = change.now - span_of(older_than_s, "older-than")
            removed = moves.remove_items(change.connection, change.acting.tenant, before, states, PRUNED)
            change.subject = f"{removed} {state}"
            change.nothing = not removed
        return removed

    def _move(self, ids: Sequence[str], move: moves.Move, ends: Callable[[int], int] | None = None) -> list[InboxView]:
        keys = {text: _item_key(text) for text in ids}
        if len(keys) > IDS:
            raise UsageError("item", f"{len(keys)} are too many at once", f"up to {IDS}")
        self._take_in_own()
        with self._writing() as (connection, acting):
            now = self._database.now(connection)
            ends_at = None if ends is None else ends(now)
            shared = None if acting.operator else _projects(connection, acting)
            view = View(acting.tenant, acting.principal, member_of=shared)
            found = moves.find_items(connection, view, keys.values())
            there = {key for one in found for key in ((bytes(one.event_id), None), (bytes(one.event_id), one.route_id))}
            for text, key in keys.items():
                if key not in there:
                    raise NotFound("inbox item", f"there is no {text!r}", "see `sense-worker inbox list`")
            return [_item(one) for one in moves.move_items(connection, found, move, ends_at)]

    def _read_inbox(self, principal: str | None, project: str | None, read: Callable[[sa.Connection, View], _T]) -> _T:
        """Read a view in which no snooze is over and every item is numbered: what is due is taken in before."""
        while True:
            with self._reading() as (connection, acting):
                view = _view(connection, acting, principal, project)
                now = self._database.now(connection)
                due = moves.due_owners(connection, now, DUE_A_TURN, view.tenant, view.principal)
                if not due:
                    return read(connection, view)
            take_in(self._database, due)

    def _take_in_own(self) -> None:
        due = True
        while due:
            with self._reading() as (connection, acting):
                now = self._database.now(connection)
                owners = moves.due_owners(connection, now, 1, acting.tenant, acting.principal)
            take_in(self._database, owners)
            due = bool(owners)


def _view(connection: sa.Connection, acting: Acting, principal: str | None, project: str | None) -> View:
    """Return what the acting session may see of this, by the rows of now (§9.2.3)."""
    if acting.operator:
        if principal is not None:
            know_principal(connection, acting.tenant, principal)
        if project is not None:
            know_project(connection, acting.tenant, project)
        return View(acting.tenant, principal, project)
    if principal not in (None, acting.principal):
        raise Denied(REQUIRES_OPERATOR.text())
    mine = _projects(connection, acting)
    if project is not None and project not in mine:
        raise Denied(NOT_A_MEMBER.text())
    return View(acting.tenant, acting.principal, project, mine)


def _projects(connection: sa.Connection, acting: Acting) -> tuple[str, ...]:
    m = MEMBERSHIP.c
    query = sa.select(m.project).where(m.tenant == acting.tenant, m.principal == acting.principal)
    return tuple(connection.scalars(query))


def _states(word: str) -> tuple[str, ...]:
    if word not in SELECTIONS:
        raise UsageError("state", f"{word!r} is none", f"one of {', '.join(SELECTIONS)}")
    return SELECTIONS[word]


def _end(now: int, for_s: float | None, until: datetime | None) -> int:
    """Return the moment a snooze ends, in microseconds. Raises UsageError where it is not to come."""
    if until is not None:
        for_s = ((until - _EPOCH) // timedelta(microseconds=1) - now) / 1e6
    return lasting(for_s or 0, now, "snooze")


def _check_cursor(after: int | None, before: int | None) -> None:
    for name, number in (("after", after), ("before", before)):
        if number is not None and not (is_whole(number) and 0 <= number <= LAST_NUMBER):
            raise UsageError(name, f"{number!r} is no number of an item", "take one of `inbox list --json`")
    if after is not None and before is not None:
        raise UsageError("before", "is another direction than after", "give one of them")


def _item_key(text: str) -> tuple[bytes, str | None]:
    need_texts(item=text)
    event = parse_event_id(text)
    if event is not None:
        return event, None
    item = parse_delivery_id(text)
    if item is None:
        raise UsageError("item", f"{text!r} is no id of an item", "see `sense-worker inbox list`")
    return item


def _item(one: InboxItem, total: int = 1) -> InboxView:
    event = bytes(one.event_id)
    return InboxView(
        event_id=event.hex(),
        route_id=one.route_id,
        principal=one.principal,
        project=one.project,
        pack_id=one.pack_id,
        ref=one.ref,
        subject=one.subject,
        occurred_at=one.occurred_at,
        accepted_at=one.accepted_at,
        body=bytes(one.body).decode(),
        id=delivery_id(event, one.route_id),
        number=one.number,
        state=one.state,
        snooze_ends_at=one.snooze_ends_at,
        total=total,
    )
