"""Replay: deliveries that are dead or denied get another chance, each under the full check (§9.5, C16).

A replay decides nothing by itself. What its owner may not have now is refused with the reason and stays as it is; the
rest is pending again, and a drain judges it once more when it claims it. The delivery's id stays, so a sink that keeps
ids takes it once. How old an event is does not matter: freshness is a question of the door, which it has passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa

from runtime_core import pipeline
from runtime_core.authority import Authority
from runtime_core.errors import ROUTE_GONE, SINK_MISSING, NotFound, UsageError
from runtime_core.event import delivery_id, parse_delivery_id
from sense_worker.attempts import judged, standing_route
from sense_worker.home import chain_name
from sense_worker.operator.desk import Desk, need_sink
from sense_worker.storage.anchors import keep_anchor
from sense_worker.storage.authority import versions
from sense_worker.storage.lanes import lane_of, split_lane
from sense_worker.storage.ledger import Ledger
from sense_worker.storage.records import AttemptRecord, Claimed
from sense_worker.storage.rows import Rows
from sense_worker.storage.schema import DELIVERY, EVENT, ROUTE
from sense_worker.storage.states import REPLAYABLE, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from runtime_core.audit import AuditRecord
    from sense_worker.operator.desk import Change

PAGE = 200
"""Deliveries of one transaction."""
_ACTION = "delivery.replay"
_Key = tuple[bytes, str]


@dataclass(frozen=True, slots=True)
class ReplayView:
    """What a replay did with one delivery."""

    id: str
    outcome: Literal["replayed", "refused", "unchanged", "not found"]
    owner: str | None
    sink: str | None
    reason: str | None
    """Why it is refused or unchanged; of a replayed one, why it waits."""


class Replays(Desk):
    """Needs an operator; reaches its own tenant alone."""

    def replay(
        self,
        ids: Iterable[str] = (),
        *,
        route: str | None = None,
        sink: str | None = None,
        state: str = State.DEAD,
        told: Callable[[Sequence[ReplayView]], object] | None = None,
    ) -> list[ReplayView]:
        """Replay deliveries by their ids, or all of a route, a sink or both that are in `state`, `dead` or `denied`.

        One transaction a page; `told` is called with each page when it has committed. An id of no delivery of the
        tenant is `not found`, one that is not dead or denied `unchanged`. Raises Denied, UsageError where both or
        neither are given, NotFound for a route or sink that is not there, AuditUnavailable, LedgerBusy.
        """
        wanted = list(dict.fromkeys(ids))
        if bool(wanted) == (route is not None or sink is not None):
            raise UsageError("replay", "nothing, or two things, to replay", "give delivery ids, or a route or sink")
        if state not in REPLAYABLE:
            raise UsageError("state", f"{state!r} is not replayed", f"one of {', '.join(REPLAYABLE)}")
        done: list[ReplayView] = []
        after: _Key | None = None
        while True:
            page = wanted[len(done) : len(done) + PAGE]
            with self._change(_ACTION) as change:
                change.nothing = True  # no authority moves, and each delivery has its own line
                keys = [parse_delivery_id(one) for one in page] if wanted else _next(change, route, sink, state, after)
                views = self._replay(change, keys, page)
            self._wake(
                {lane_of(change.acting.tenant, one.sink) for one in views if one.outcome == "replayed" and one.sink}
            )
            if views and told is not None:
                told(views)
            done += views
            after = keys[-1] if keys else None
            if len(keys) < PAGE or (wanted and len(done) == len(wanted)):
                return done

    def _replay(self, change: Change, keys: Sequence[_Key | None], names: Sequence[str]) -> list[ReplayView]:
        """Replay one page within its transaction; the lines of the audit come before its commit (§9.6)."""
        tenant = change.acting.tenant
        version = versions(change.connection, [tenant], lock=False)[tenant]
        authority = Authority(tenant, version, self._source(change.connection))
        found = _rows(change, [key for key in keys if key is not None])
        ledger = Ledger(self._database)
        views: list[ReplayView] = []
        lines: list[AuditRecord] = []
        for at, key in enumerate(keys):
            row = None if key is None else found.get(key)
            if key is None or row is None:
                views.append(ReplayView(names[at], "not found", None, None, "no delivery of this tenant"))
                continue
            view, decided = _replay_one(change, ledger, authority, row)
            views.append(view)
            if view.outcome in ("replayed", "refused"):
                lines += [*decided, _line(change, row, view)]
        if lines:
            self._audit.append(lines)
            rows = Rows(change.connection, self._database.kind)
            keep_anchor(rows, chain_name(self.settings), self._audit.head(), change.now)
        return views


def _replay_one(change: Change, ledger: Ledger, authority: Authority, row: Any) -> tuple[ReplayView, list[AuditRecord]]:
    """Judge one delivery as its own owner; make it pending, or leave it with a note of the refusal."""
    name = delivery_id(bytes(row.event_id), row.route_id)
    _, sink_name = split_lane(row.lane)
    if row.state not in REPLAYABLE:
        why = "is delivered already" if row.state == State.DELIVERED else f"is {row.state}"
        return ReplayView(name, "unchanged", row.owner, sink_name, why), []
    claimed = Claimed(
        *(bytes(row.event_id), row.route_id, "", row.attempt, False, 0, row.lane, row.owner, row.tenant, row.pack_id),
        *(row.ref, row.activation_id, row.publisher, row.project, row.subject, row.occurred_at, row.accepted_at, b""),
    )
    route = standing_route(authority, claimed, change.now)
    sink = authority.sink(sink_name)
    decided: list[AuditRecord] = []
    refused: tuple[str, str | None] | None = None
    if route is None:
        refused = (ROUTE_GONE, None)
    elif sink is None or not sink.lands:  # without them no step can judge it
        refused = (SINK_MISSING if sink is None or sink.held is None else sink.held, "sink")
    else:
        attempt = judged(authority, claimed, route, change.now).attempt
        if attempt.refused is not None:
            refused = (attempt.refused.text, attempt.refused.step)
            decided = [pipeline.sense_record(attempt)]
    if refused is not None:
        ledger.note_attempts(change.connection, [_note(change, row, row.state, *refused)])
        return ReplayView(name, "refused", row.owner, sink_name, refused[0]), decided
    was = f"replayed by {change.acting.principal}; was {row.state}: {row.reason}"
    ledger.note_attempts(change.connection, [_note(change, row, State.PENDING, was, None)])
    ledger.replay(change.connection, claimed.event_id, claimed.route_id, change.now)
    return ReplayView(name, "replayed", row.owner, sink_name, None if sink is None else sink.held), decided


def _note(change: Change, row: Any, state: str, reason: str, step: str | None) -> AttemptRecord:
    """Return a line for the delivery's attempts: what it was, or why it stays."""
    key = (bytes(row.event_id), row.route_id)
    return AttemptRecord(*key, row.attempt, str(state), step, reason, "replay", change.now)


def _line(change: Change, row: Any, view: ReplayView) -> AuditRecord:
    """Return the line of one replay: who replayed is `principal`, whose event it is `publisher`."""
    return change.record(view.reason if view.outcome == "refused" else None)._replace(
        pack_id=row.pack_id, key=row.ref, project=row.project, publisher=row.publisher, subject=view.id
    )


def _next(change: Change, route: str | None, sink: str | None, state: str, after: _Key | None) -> list[_Key | None]:
    """Return the next page of what is to be replayed, in the order of its keys: what stays is not met again."""
    d = DELIVERY.c
    tenant = change.acting.tenant
    query = sa.select(d.event_id, d.route_id).where(d.tenant == tenant, d.state == state)
    if route is not None:
        r = ROUTE.c
        if change.one(sa.select(r.id).where(r.tenant == tenant, r.id == route)) is None:
            raise NotFound("route", f"there is no {route!r}", "see `sense-worker route list`")
        query = query.where(d.route_id == route)
    if sink is not None:
        need_sink(change, sink)
        query = query.where(d.lane == lane_of(tenant, sink))
    if after is not None:
        query = query.where(sa.tuple_(d.event_id, d.route_id) > sa.tuple_(*after))
    found = change.connection.execute(query.order_by(d.event_id, d.route_id).limit(PAGE))
    return [(bytes(row.event_id), row.route_id) for row in found]


def _rows(change: Change, keys: Sequence[_Key]) -> dict[_Key, Any]:
    """Return the deliveries of the tenant under these keys, with what an attempt needs of their events."""
    d, e = DELIVERY.c, EVENT.c
    facts = (e.pack_id, e.ref, e.activation_id, e.publisher, e.project, e.subject, e.occurred_at, e.accepted_at)
    own = (d.event_id, d.route_id, d.tenant, d.lane, d.owner, d.state, d.attempt, d.reason)
    columns: sa.Select[*tuple[Any, ...]] = sa.select(*own, *facts)
    query = columns.join(EVENT, e.id == d.event_id).where(d.tenant == change.acting.tenant)
    found = change.connection.execute(query.where(sa.tuple_(d.event_id, d.route_id).in_(keys)))
    return {(bytes(row.event_id), row.route_id): row for row in found}
