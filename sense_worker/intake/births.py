"""Births: the deliveries of accepted events, in the state in which each begins, by its sink (DESIGN §6.3).

A *transactional* sink is authorized and written in the same transaction: its rows are born delivered or denied. Rows of
a sink that is local and fast are born under this process's lease, all others pending; held where the sink cannot take
them now.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, cast

from sense_worker.attempts import Judged, held_for_workspace, judged, sink_view
from sense_worker.open_sinks import OpenSink
from sense_worker.storage.lanes import lane_of
from sense_worker.storage.ledger import NEVER
from sense_worker.storage.records import AcceptedEvent, Claimed, DeliveryRecord
from sense_worker.storage.states import SETTLED, State
from sinks.registry import Traits

if TYPE_CHECKING:
    import sqlalchemy as sa

    from runtime_core.authority import Authority
    from runtime_core.identity import Micros, Route
    from runtime_core.pipeline import Attempt
    from sense_worker.ports import Ports
    from sinks.protocol import Delivery, TransactionalSink


class Births:
    """The rows and hand-overs to which the events of one transaction give birth."""

    def __init__(self, ports: Ports, connection: sa.Connection, now: Micros) -> None:
        self._ports = ports
        self._connection = connection
        self._now = now
        self._lease = secrets.token_hex(8)
        self._deliveries: list[DeliveryRecord] = []
        self._transactional: dict[type, tuple[TransactionalSink, list[Delivery]]] = {}
        """By class: sinks of one kind share their tables, and are written in one call (see TransactionalSink)."""
        self.local: dict[str, tuple[OpenSink, list[Judged]]] = {}
        """By lane: what this process is to hand over after the commit."""
        self.ring: set[str] = set()
        """Lanes with a pending delivery."""
        self.decided: list[Attempt] = []
        """Decisions that are to be audited before the commit."""

    def bear(self, authority: Authority, event: AcceptedEvent, route: Route) -> None:
        """Give one event its delivery for one route, in the state in which it begins."""
        lane = lane_of(authority.tenant, route.sink)
        sink = authority.sink(route.sink)
        rows = self._ports.ledger.rows(self._connection)
        found: Traits | OpenSink | str | None = self._ports.sinks.traits(rows, authority, route.sink)
        if isinstance(found, Traits) and (found.transactional or found.local):
            found = self._ports.sinks.get(rows, authority, route.sink)
        if sink is None or isinstance(found, str):
            self._add(event, route, lane, State.HELD, due_at=NEVER, reason=str(found))
        elif (held := held_for_workspace(authority, sink, event.activation_id, self._now)) is not None:
            self._add(event, route, lane, State.HELD, due_at=held.due_at, reason=held.reason)
        elif isinstance(found, OpenSink):
            self._judge(authority, event, route, lane, found)
        else:
            self._add(event, route, lane, State.PENDING)
            self.ring.add(lane)

    def write(self) -> None:
        """Insert the deliveries, and what transactional sinks make of theirs."""
        self._ports.ledger.insert_deliveries(self._connection, self._deliveries)
        rows = self._ports.ledger.rows(self._connection, mostly_new=True)
        for sink, batch in self._transactional.values():
            sink.write(batch, rows)

    def _judge(self, authority: Authority, event: AcceptedEvent, route: Route, lane: str, opened: OpenSink) -> None:
        claimed = Claimed(event.id, route.id, self._lease, 1, False, 0, lane, route.owner, *event[1:])
        one = judged(authority, claimed, route, self._now)
        due = self._now
        if one.attempt.refused is not None:
            state = State.DENIED
        elif opened.traits.transactional:
            state = State.DELIVERED
            sink = cast("TransactionalSink", opened.sink)
            self._transactional.setdefault(type(sink), (sink, []))[1].append(sink_view(one))
        else:
            state = State.DELIVERING
            due += int((opened.traits.deadline_s + self._ports.lease_slack_s) * 1e6)
            self.local.setdefault(lane, (opened, []))[1].append(one)
        if state != State.DELIVERING:
            self.decided.append(one.attempt)
        self._add(event, route, lane, state, due_at=due, attempt=one.attempt)

    def _add(
        self,
        event: AcceptedEvent,
        route: Route,
        lane: str,
        state: State,
        *,
        due_at: Micros | None = None,
        reason: str | None = None,
        attempt: Attempt | None = None,
    ) -> None:
        refused = None if attempt is None else attempt.refused
        grant = None if attempt is None else attempt.grant
        revision = None if attempt is None else attempt.revision
        self._deliveries.append(
            DeliveryRecord(
                event_id=event.id,
                route_id=route.id,
                tenant=event.tenant,
                lane=lane,
                owner=route.owner,
                state=state.value,
                attempt=0 if attempt is None else 1,
                alone=False,
                due_at=self._now if due_at is None else due_at,
                lease=self._lease if state == State.DELIVERING else None,
                reason=reason if refused is None else refused.text,
                step=refused.step if refused is not None else "sink" if reason else None,
                grant_id=None if grant is None else grant.id,
                digest=None if revision is None else revision.pack.digest,
                created_at=self._now,
                settled_at=self._now if state in SETTLED else None,
            )
        )
