"""What became of which event: deliveries, dead entries, counts (DESIGN §1.2)."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runtime_core.errors import NotFound, UsageError, printable
from runtime_core.event import delivery_id, parse_delivery_id, parse_event_id
from sense_worker.explain import explain
from sense_worker.operator.desk import Desk, know_sink
from sense_worker.operator.names import need_texts, row_limit
from sense_worker.operator.views import DeadView, DeliveryView, LaneView, Status
from sense_worker.storage.lanes import lane_of, split_lane
from sense_worker.storage.ledger import NEVER
from sense_worker.storage.schema import ACTIVATION, DEAD_ENTRY, DELIVERY, EVENT, ROUTE, SESSION
from sense_worker.storage.states import SETTLED, State
from sense_worker.up_file import discover_redis_url
from sense_worker.waiting import stream_counts

if TYPE_CHECKING:
    from sense_worker.explain import Explanation
    from sense_worker.operator.acting import Acting

TEXT_LIMIT = 2_000
"""Characters of a refused entry's field that are shown as text; all of it is in `raw`."""


class Reading(Desk):
    """An operator reads the tenant's rows, anyone else their own."""

    def list_deliveries(
        self,
        *,
        state: str | None = None,
        event: str | None = None,
        route: str | None = None,
        sink: str | None = None,
        limit: int = 50,
    ) -> list[DeliveryView]:
        """Return deliveries, the newest first.

        Raises UsageError for a state that is none or an id that is none, NotFound for a route or sink that is not there
        and has none.
        """
        d = DELIVERY.c
        need_texts(state=state, event=event, route=route, sink=sink)
        if state is not None and state not in set(State):
            raise UsageError("state", f"{state!r} is none", f"one of {', '.join(State)}")
        with self._reading() as (connection, acting):
            query = _DELIVERY.where(d.tenant == acting.tenant)
            if not acting.operator:
                query = query.where(d.owner == acting.principal)
            if state is not None:
                query = query.where(d.state == state)
            if event is not None:
                query = query.where(d.event_id == _event_key(event))
            if route is not None:
                query = query.where(d.route_id == route)
            if sink is not None:
                query = query.where(d.lane == lane_of(acting.tenant, sink))
            query = query.order_by(d.created_at.desc(), d.event_id, d.route_id).limit(row_limit(limit))
            found = [_delivery(row) for row in connection.execute(query)]
            if not found and route is not None:
                _know_route(connection, acting, route)
            if not found and sink is not None:
                know_sink(connection, acting.tenant, sink)
            return found

    def show_delivery(self, about: str) -> DeliveryView:
        """Return one delivery by its id. Raises NotFound."""
        named = parse_delivery_id(about)
        with suppress(NotFound):
            if named is not None:
                for found in self.list_deliveries(event=named[0].hex(), route=named[1], limit=1):
                    return found
        raise NotFound("delivery", f"there is no {about!r}", "see `sense-worker deliveries list`")

    def list_dead(self, *, limit: int = 50) -> list[DeadView]:
        """Return refused entries, the newest first: the tenant's to an operator, else those of one's activations."""
        e = DEAD_ENTRY.c
        with self._reading() as (connection, acting):
            query = _dead_entries(acting).order_by(e.at.desc(), e.stream_id.desc()).limit(row_limit(limit))
            return [_dead(row, raw=False) for row in connection.execute(query)]

    def show_dead(self, stream_id: str) -> DeadView:
        """Return one refused entry with its raw fields. Raises NotFound."""
        with self._reading() as (connection, acting):
            row = connection.execute(_dead_entries(acting).where(DEAD_ENTRY.c.stream_id == stream_id)).first()
        if row is None:
            raise NotFound("dead entry", f"there is no {stream_id!r}", "see `sense-worker dead list`")
        return _dead(row, raw=True)

    def explain(self, about: str) -> Explanation:
        """Tell why an event arrived or did not (see `sense_worker.explain`); one's own routes, an operator all."""
        acting = self.acting
        return explain(self._database, acting.tenant, about, None if acting.operator else acting.principal)

    def status(self) -> Status:
        """Count deliveries by state and lane, an operator's tenant's with what was refused and what waits."""
        d, e = DELIVERY.c, DEAD_ENTRY.c
        dead: dict[str, int] = {}
        waiting = pending = None
        with self._reading() as (connection, acting):
            tenant = acting.tenant
            events = sa.select(sa.func.count()).select_from(EVENT).where(EVENT.c.tenant == tenant)
            kinds = (d.lane, d.state, sa.case((d.state == State.HELD.value, d.reason)))
            by_lane = sa.select(*kinds, sa.func.count()).where(d.tenant == tenant).group_by(*kinds)
            if acting.operator:
                words = sa.select(e.word, sa.func.count()).where(e.tenant == tenant).group_by(e.word).order_by(e.word)
                dead = {word: int(count) for word, count in connection.execute(words)}
            else:
                events = events.where(EVENT.c.publisher == acting.principal)
                by_lane = by_lane.where(d.owner == acting.principal)
            counted = int(connection.scalar(events) or 0)
            states = _by_state(connection.execute(by_lane).all())
        if acting.operator:
            waiting, pending = stream_counts(discover_redis_url(self.settings), tenant)
        return Status(tenant, counted, *states, dead, waiting, pending)


def _dead_entries(acting: Acting) -> sa.Select[*tuple[Any, ...]]:
    query = sa.select(DEAD_ENTRY).where(DEAD_ENTRY.c.tenant == acting.tenant)
    if acting.operator:
        return query
    own = sa.select(ACTIVATION.c.id).join(SESSION, SESSION.c.id == ACTIVATION.c.session_id)
    own = own.where(SESSION.c.tenant == acting.tenant, SESSION.c.principal == acting.principal)
    return query.where(DEAD_ENTRY.c.activation_id.in_(own))


def _know_route(connection: sa.Connection, acting: Acting, route_id: str) -> None:
    """Raise NotFound where there never was such a route, or only another principal's."""
    query = sa.select(ROUTE.c.owner).where(ROUTE.c.tenant == acting.tenant, ROUTE.c.id == route_id)
    owner = connection.scalar(query)
    if owner is None or not (acting.operator or owner == acting.principal):
        raise NotFound("route", f"there is no {route_id!r}", "see `sense-worker route list`")


def _by_state(rows: Any) -> tuple[dict[str, int], tuple[LaneView, ...]]:
    total: dict[str, int] = {}
    lanes: dict[str, LaneView] = {}
    for lane, state, reason, count in rows:
        name = split_lane(lane)[1]
        view = lanes.setdefault(name, LaneView(name, {}))
        counts = [(total, state), (view.states, state), *([(view.held_for, reason)] if reason else [])]
        for counted, under in counts:
            counted[under] = counted.get(under, 0) + int(count)
    return total, tuple(lanes[name] for name in sorted(lanes))


_DELIVERY = sa.select(DELIVERY, EVENT.c.pack_id, EVENT.c.ref, EVENT.c.subject).join(
    EVENT, EVENT.c.id == DELIVERY.c.event_id
)


def _event_key(text: str) -> bytes:
    key = parse_event_id(text)
    if key is None:
        raise UsageError("event", f"{text!r} is no event id", "32 hex digits")
    return key


def _delivery(row: Any) -> DeliveryView:
    settled = row.state in {state.value for state in SETTLED}
    return DeliveryView(
        id=delivery_id(bytes(row.event_id), row.route_id),
        event_id=bytes(row.event_id).hex(),
        route_id=row.route_id,
        owner=row.owner,
        sink=split_lane(row.lane)[1],
        pack_id=row.pack_id,
        ref=row.ref,
        subject=row.subject,
        state=row.state,
        step=row.step,
        reason=row.reason,
        attempt=row.attempt,
        created_at=row.created_at,
        due_at=None if settled or row.due_at == NEVER else row.due_at,
        settled_at=row.settled_at,
    )


def _dead(row: Any, *, raw: bool) -> DeadView:
    event = None if row.event_id is None else bytes(row.event_id).hex()
    facts = (row.stream_id, row.stream, row.word, row.detail, row.at, row.raw_length, row.raw_digest)
    if not raw:
        return DeadView(*facts, row.activation_id, event)
    return DeadView(*facts, row.activation_id, event, row.raw, _readable(base64.b64decode(row.raw)))


def _readable(raw: bytes) -> tuple[str, ...]:
    """Return the fields of a refused entry as `name: value`; none where its raw form is no list of netstrings."""
    parts, rest = [], raw
    while rest:
        length, colon, rest = rest.partition(b":")
        if not colon or not length.isdigit() or len(length) > 6:  # noqa: PLR2004 - a quarter of a MiB has six digits
            return ()
        parts.append(_text(rest[: int(length)]))
        rest = rest[int(length) + 1 :]
    return tuple(f"{name}: {value}" for name, value in zip(parts[::2], parts[1::2], strict=False))


def _text(value: bytes) -> str:
    """Return bytes as text with control characters escaped; their number where they are no UTF-8."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"{len(value)} bytes that are no UTF-8"
    more = len(text) - TEXT_LIMIT
    return printable(text[:TEXT_LIMIT]) + (f"… and {more} characters more" if more > 0 else "")
