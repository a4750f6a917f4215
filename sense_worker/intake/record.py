"""Record: a batch of entries becomes rows, in one transaction, under the authority versions it locks (DESIGN §6.3).

    admit every entry against the snapshots at hand
    begin; lock the tenants' versions; where one moved, admit again
    events insert-if-absent → deliveries of the new ones, born as their sink allows → refused entries → audit; commit

The happy path is three row writes per event and route (event, delivery, inbox item), one audit append and one commit.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, NamedTuple, cast

from runtime_core import pipeline
from runtime_core.audit import AuditRecord
from runtime_core.errors import SINK_MISSING, WORKSPACE_NOT_SERVED
from sense_worker.attempts import Judged, judged, not_served, sink_view
from sense_worker.drain import WORKSPACE_RECHECK_S
from sense_worker.intake.dead import dead_record
from sense_worker.intake.door import Admitted, Turned, admit
from sense_worker.storage.ledger import NEVER
from sense_worker.storage.records import Claimed, DeliveryRecord, EventRecord
from sense_worker.storage.states import SETTLED, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import sqlalchemy as sa

    from runtime_core.authority import Authority
    from runtime_core.identity import Route
    from sense_worker.intake.stream import StreamEntry
    from sense_worker.open_sinks import OpenSink
    from sense_worker.ports import Ports
    from sense_worker.storage.ledger import Known
    from sinks.protocol import Delivery, TransactionalSink

ROWS_A_TRANSACTION = 5_000
"""Rows one transaction may write, so that it holds SQLite's lock for well under a second."""
ROUTES_A_TRANSACTION = ROWS_A_TRANSACTION // 2
"""A delivery and an inbox item per route."""


class Recorded(NamedTuple):
    """What a committed batch leaves to do, and what became of it."""

    local: list[tuple[OpenSink, list[Judged]]]
    """Claimed batches of sinks that are local and fast, under this process's lease."""
    ring: set[str]
    """Lanes with a pending delivery."""
    counts: dict[str, int]
    """Entries by what became of them: `accepted`, `repeat`, `redelivered`, or the word of a refusal."""


class _Births:
    """The rows and hand-overs that the new events of one transaction give birth to."""

    def __init__(self) -> None:
        self.lease = secrets.token_hex(8)
        self.deliveries: list[DeliveryRecord] = []
        self.transactional: dict[str, tuple[TransactionalSink, list[Delivery]]] = {}
        self.local: dict[str, tuple[OpenSink, list[Judged]]] = {}
        self.ring: set[str] = set()
        self.decided: list[pipeline.Attempt] = []


class Recorder:
    """Admits and records batches in this process."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def record(self, entries: Sequence[StreamEntry], redis_now: int) -> list[Recorded]:
        """Record entries, in as many transactions as their fan-out needs.

        Raises LedgerBusy or AuditUnavailable with nothing of the failing transaction done: to be called again with
        the same entries, which finds the finished part done.
        """
        tenants = {entry.tenant for entry in entries}
        verdicts = self._admit(entries, self._ports.authorities.cached(tenants), redis_now)
        recorded = [self._transact(part, redis_now) for part in _cut(verdicts)]
        self._ports.anchor_rotated()
        return recorded

    def bury(self, entry: StreamEntry, word: str, detail: str) -> Recorded:
        """Record one entry as dead without looking at it: it ended its process, or failed for no reason of ours."""
        return self._transact([Turned(entry, word, detail)], entry.micros)

    def _admit(
        self, entries: Iterable[StreamEntry], authorities: dict[str, Authority], redis_now: int
    ) -> list[Admitted | Turned]:
        tolerance = self._ports.freshness_s
        return [admit(entry, authorities[entry.tenant], min(entry.micros, redis_now), tolerance) for entry in entries]

    def _transact(self, verdicts: Sequence[Admitted | Turned], redis_now: int) -> Recorded:
        ports = self._ports
        used = {one.authority.tenant: one.authority for one in verdicts if isinstance(one, Admitted)}
        tenants = {one.entry.tenant for one in verdicts}
        with ports.database.write() as connection:
            locked = ports.authorities.locked(connection, tenants)
            if any(locked[tenant] is not authority for tenant, authority in used.items()):
                # A revocation or grant came in between: what was admitted above may be wrong by now.
                verdicts = _same_slices(verdicts, self._admit([one.entry for one in verdicts], locked, redis_now))
            return self._write(connection, verdicts)

    def _write(self, connection: sa.Connection, verdicts: Sequence[Admitted | Turned]) -> Recorded:
        ports = self._ports
        now = ports.database.now(connection)
        counts: dict[str, int] = {}
        new, turned = self._insert_events(connection, verdicts, counts)
        births = _Births()
        for admitted in new:
            for route in admitted.routes:
                self._bear(connection, births, admitted, route, now)
        ports.ledger.insert_deliveries(connection, births.deliveries)
        rows = ports.ledger.rows(connection, fresh=True)
        for sink, batch in births.transactional.values():
            sink.write(batch, rows)
        ports.ledger.insert_dead(connection, [dead_record(one, now) for one in turned])
        for one in turned:
            counts[one.word] = counts.get(one.word, 0) + 1
        self._audit(births, new, turned)
        return Recorded(list(births.local.values()), births.ring, counts)

    def _insert_events(
        self, connection: sa.Connection, verdicts: Sequence[Admitted | Turned], counts: dict[str, int]
    ) -> tuple[list[Admitted], list[Turned]]:
        """Return the events that are new here, and the refused entries, conflicts among them."""
        first: dict[bytes, Admitted] = {}
        turned = [one for one in verdicts if isinstance(one, Turned)]
        admitted = [one for one in verdicts if isinstance(one, Admitted)]
        later = [one for one in admitted if first.setdefault(one.facts.event_id, one) is not one]
        # In key order: two readers that meet on the same keys wait for each other, and do not deadlock.
        ordered = [first[key] for key in sorted(first)]
        known = self._ports.ledger.insert_events(connection, [_event_record(one) for one in ordered])
        new = [one for one in ordered if one.facts.event_id not in known]
        for one in [*(one for key, one in first.items() if key in known), *later]:
            key = one.facts.event_id
            there = known.get(key)
            digest = first[key].body_digest if there is None else there.body_digest
            stream_id = first[key].entry.id if there is None else there.stream_id
            if digest != one.body_digest:
                detail = f"message id {one.wire.message_id} was used for event {key.hex()} with another body"
                turned.append(Turned(one.entry, "conflict", detail, one.activation, key))
            elif stream_id == one.entry.id:
                missing = self._missing_slice(connection, one, there)
                new += missing
                counts["redelivered"] = counts.get("redelivered", 0) + (not missing)
            elif self._ports.ledger.note_repeat(connection, key, one.entry.id):
                counts["repeat"] = counts.get("repeat", 0) + 1
        counts["accepted"] = len(new)
        return new, turned

    def _missing_slice(self, connection: sa.Connection, one: Admitted, there: Known | None) -> list[Admitted]:
        """Of an event whose fan-out takes several transactions, return what an earlier one did not write."""
        if not one.sliced or there is None:
            return []
        found = self._ports.ledger.rows(connection).query(
            "SELECT route_id FROM sense_delivery WHERE event_id = ?", (one.facts.event_id,)
        )
        done = {row[0] for row in found}
        rest = tuple(route for route in one.routes if route.id not in done)
        return [one._replace(routes=rest)] if rest else []

    def _bear(self, connection: sa.Connection, births: _Births, admitted: Admitted, route: Route, now: int) -> None:
        """Give one delivery the state it is born in, by its sink: held, pending, or judged here and now."""
        authority = admitted.authority
        lane = f"{authority.tenant}/{route.sink}"
        sink = authority.sink(route.sink)
        reason = SINK_MISSING if sink is None else sink.held
        opened = reason or self._ports.sinks.get(self._ports.ledger.rows(connection), authority, route.sink)
        if sink is None or isinstance(opened, str):
            births.deliveries.append(_born(admitted, route, lane, State.HELD, now, due_at=NEVER, reason=str(opened)))
            return
        if not_served(authority, sink, admitted.activation.id):
            due = now + int(WORKSPACE_RECHECK_S * 1e6)
            births.deliveries.append(
                _born(admitted, route, lane, State.HELD, now, due_at=due, reason=WORKSPACE_NOT_SERVED)
            )
            return
        if not (opened.traits.transactional or opened.traits.local):
            births.deliveries.append(_born(admitted, route, lane, State.PENDING, now))
            births.ring.add(lane)
            return
        one = judged(authority, _claimed(admitted, route, lane, births.lease), route, now)
        state = _judged_state(one, opened)
        due = (
            now + int((opened.traits.deadline_s + self._ports.lease_slack_s) * 1e6)
            if state == State.DELIVERING
            else now
        )
        births.deliveries.append(_born(admitted, route, lane, state, now, due_at=due, one=one))
        if state == State.DELIVERING:
            births.local.setdefault(lane, (opened, []))[1].append(one)
        else:
            births.decided.append(one.attempt)
        if state == State.DELIVERED:
            births.transactional.setdefault(lane, (cast("TransactionalSink", opened.sink), []))[1].append(
                sink_view(one)
            )

    def _audit(self, births: _Births, new: Sequence[Admitted], turned: Sequence[Turned]) -> None:
        """One append for the whole batch, before its commit: decisions, events without a route, refusals (§9.6)."""
        records = [pipeline.sense_record(attempt) for attempt in births.decided]
        records += [_accept_record(one) for one in new if not one.routes]
        records += [_refuse_record(one) for one in turned]
        if records:
            self._ports.audit.append(records)


def _judged_state(one: Judged, opened: OpenSink) -> State:
    if one.attempt.refused is not None:
        return State.DENIED
    return State.DELIVERED if opened.traits.transactional else State.DELIVERING


def _cut(verdicts: Sequence[Admitted | Turned]) -> Iterable[list[Admitted | Turned]]:
    """Cut a batch into transactions of at most ROWS_A_TRANSACTION rows: by events, a larger fan-out by route id."""
    part: list[Admitted | Turned] = []
    room = ROWS_A_TRANSACTION
    for verdict in verdicts:
        for one in _slices(verdict):
            cost = 1 + (2 * len(one.routes) if isinstance(one, Admitted) else 0)
            if part and cost > room:
                yield part
                part, room = [], ROWS_A_TRANSACTION
            part.append(one)
            room -= cost
            if isinstance(one, Admitted) and one.sliced:
                yield part
                part, room = [], ROWS_A_TRANSACTION
    if part:
        yield part


def _slices(verdict: Admitted | Turned) -> Iterable[Admitted | Turned]:
    if isinstance(verdict, Turned) or len(verdict.routes) <= ROUTES_A_TRANSACTION:
        yield verdict
        return
    for at in range(0, len(verdict.routes), ROUTES_A_TRANSACTION):
        yield verdict._replace(routes=verdict.routes[at : at + ROUTES_A_TRANSACTION], sliced=True)


def _same_slices(
    before: Sequence[Admitted | Turned], again: Sequence[Admitted | Turned]
) -> Sequence[Admitted | Turned]:
    """Keep to the slice of each event that this transaction is for."""
    kept: list[Admitted | Turned] = []
    for old, new in zip(before, again, strict=True):
        if isinstance(old, Admitted) and isinstance(new, Admitted) and old.sliced:
            mine = {route.id for route in old.routes}
            kept.append(new._replace(routes=tuple(route for route in new.routes if route.id in mine), sliced=True))
        else:
            kept.append(new)
    return kept


def _event_record(one: Admitted) -> EventRecord:
    facts, event = one.facts, one.event
    return EventRecord(
        *(facts.event_id, facts.tenant, facts.pack_id, facts.ref, facts.activation_id, facts.publisher),
        *(
            one.wire.message_id,
            one.activation.project_id,
            event.subject,
            event.occurred_at,
            one.wire.b,
            one.body_digest,
        ),
        *(one.entry.id, one.revision.generation, one.revision.pack.digest, one.traceparent),
        *(one.signed_at, one.arrival, json.dumps(one.without) if one.without else None),
    )


def _claimed(one: Admitted, route: Route, lane: str, lease: str) -> Claimed:
    facts, event = one.facts, one.event
    return Claimed(
        *(facts.event_id, route.id, lease, 1, False, 0, lane, route.owner),
        *(facts.tenant, facts.pack_id, facts.ref, facts.activation_id, facts.publisher),
        *(one.activation.project_id, event.subject, event.occurred_at, one.arrival, one.wire.b),
    )


def _born(
    admitted: Admitted,
    route: Route,
    lane: str,
    state: State,
    now: int,
    *,
    due_at: int | None = None,
    reason: str | None = None,
    one: Judged | None = None,
) -> DeliveryRecord:
    refused = None if one is None else one.attempt.refused
    grant = None if one is None else one.attempt.grant
    return DeliveryRecord(
        event_id=admitted.facts.event_id,
        route_id=route.id,
        tenant=admitted.facts.tenant,
        lane=lane,
        owner=route.owner,
        state=state.value,
        attempt=0 if one is None else 1,
        alone=False,
        due_at=now if due_at is None else due_at,
        lease=one.claimed.lease if one is not None and state == State.DELIVERING else None,
        reason=reason if refused is None else refused.text,
        step=refused.step if refused is not None else "sink" if reason else None,
        grant_id=None if grant is None else grant.id,
        digest=None if one is None else admitted.revision.pack.digest,
        created_at=now,
        settled_at=now if state in SETTLED else None,
    )


def _accept_record(one: Admitted) -> AuditRecord:
    return AuditRecord(
        action="sense.accept",
        ok=True,
        tenant=one.facts.tenant,
        principal=one.facts.publisher,
        publisher=one.facts.publisher,
        project=one.activation.project_id,
        pack_id=one.facts.pack_id,
        key=one.facts.ref,
        operation="read",
        subject=one.facts.event_id.hex(),
        reason="; ".join(f"{text} ({count})" for text, count in one.without.items()),
    )


def _refuse_record(one: Turned) -> AuditRecord:
    activation = one.activation
    return AuditRecord(
        action="sense.refuse",
        ok=False,
        tenant=one.entry.tenant,
        principal=None,
        project=None if activation is None else activation.project_id,
        pack_id=None if activation is None else activation.pack_id,
        operation="read",
        subject=f"{one.entry.stream} {one.entry.id}",
        reason=f"refused: {one.word}",
    )
