"""Record: a batch of entries becomes rows, in one transaction, under the authority versions it locks (DESIGN §6.3).

    admit every entry against the snapshots at hand
    begin; lock the tenants' versions; where one moved, admit again
    events insert-if-absent → deliveries of the new ones, born as their sink allows → refused entries → audit; commit

The happy path is three row writes per event and route (event, delivery, inbox item), one audit append and one commit.
An event with more routes than a transaction may write is accepted with its first slice and marked unfinished; further
transactions write the rest from its row, and the last one takes the mark off. Its entry leaves the stream after that.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core import pipeline
from runtime_core.audit import AuditRecord
from runtime_core.event import parse_body
from runtime_core.pipeline import Facts
from sense_worker.filters import Filtering
from sense_worker.intake.births import Births
from sense_worker.intake.candidates import NO_ROUTE, Announced, Reason, candidates
from sense_worker.intake.dead import dead_record
from sense_worker.intake.door import Admitted, Turned, admit
from sense_worker.storage.ledger import Known
from sense_worker.storage.records import AcceptedEvent, EventRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import sqlalchemy as sa

    from runtime_core.authority import Authority
    from runtime_core.identity import Micros, Route
    from sense_worker.attempts import Judged
    from sense_worker.intake.stream import StreamEntry
    from sense_worker.open_sinks import OpenSink
    from sense_worker.ports import Ports

ROWS_A_TRANSACTION = 5_000
"""Rows one transaction may write, so that it holds SQLite's lock for well under a second."""
ROUTES_A_TRANSACTION = ROWS_A_TRANSACTION // 2
"""A delivery and an inbox item per route."""
CRASHED = "crashed"
TEXTS_A_LINE = 20
"""Reasons of one audit line."""
LEFT_A_TURN = 10
"""Events whose fan-out one turn of the sweep finishes."""


class Recorded(NamedTuple):
    """What a committed transaction leaves to do, and what became of its entries."""

    local: list[tuple[OpenSink, list[Judged]]]
    """Claimed batches of sinks that are local and fast, under this process's lease."""
    ring: set[str]
    """Lanes with a pending delivery."""
    counts: dict[str, int]
    """Entries by what became of them: `accepted`, `repeat`, `redelivered`, or the word of a refusal."""
    unfinished: Sequence[tuple[str, bytes]] = ()
    """Tenant and id of the events that still have routes without a row."""


class _Sorted(NamedTuple):
    """The verdicts of one transaction, sorted by what the ledger already holds."""

    new: list[Admitted]
    turned: list[Turned]
    counts: dict[str, int]
    unfinished: list[tuple[str, bytes]]
    again: list[tuple[bytes, str]]
    """Event and entry of what may be a repeat."""


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
        recorded: list[Recorded] = []
        for part in _cut(verdicts):
            recorded.append(self._transact(part, redis_now))
            for tenant, event in recorded[-1].unfinished:
                recorded += self._finish(tenant, event)
        self._ports.anchor_rotated()
        return recorded

    def finish_left(self, accepted_before: int) -> set[str]:
        """Finish events of before a moment whose entry is gone with their fan-out unfinished; returns lanes to ring.

        What a local sink is to take runs under a lease that nobody holds: a drain takes it over when that has run out.
        """
        with self._ports.database.read() as connection:
            left = self._ports.ledger.left_unfinished(connection, accepted_before, LEFT_A_TURN)
        return {lane for at in left for one in self._finish(*at) for lane in one.ring}

    def bury(self, entry: StreamEntry, word: str, detail: str) -> Recorded:
        """Record one entry as dead without looking at it: it ended its process, or failed for no reason of ours.

        One whose event is accepted and complete is no loss, and only leaves the stream.
        """
        return self._transact([Turned(entry, word, detail)], entry.micros)

    def close(self) -> None:
        """Nothing runs here."""

    def _admit(
        self, entries: Iterable[StreamEntry], authorities: dict[str, Authority], redis_now: int
    ) -> list[Admitted | Turned]:
        tolerance = self._ports.freshness_s
        return [admit(entry, authorities[entry.tenant], entry.arrival(redis_now), tolerance) for entry in entries]

    def _transact(self, verdicts: Sequence[Admitted | Turned], redis_now: int) -> Recorded:
        ports = self._ports
        with ports.database.write() as connection:
            locked = ports.authorities.locked(connection, {one.entry.tenant for one in verdicts})
            if any(one.authority is not None and one.authority is not locked[one.entry.tenant] for one in verdicts):
                # Who may do what has changed since: what was admitted above may be wrong by now, and what was
                # refused may be right.
                verdicts = self._admit([one.entry for one in verdicts], locked, redis_now)
            return self._write(connection, verdicts)

    def _write(self, connection: sa.Connection, verdicts: Sequence[Admitted | Turned]) -> Recorded:
        ports = self._ports
        now = ports.database.now(connection)
        new, turned, counts, unfinished, _ = self._sort(connection, verdicts)
        births = Births(ports, connection, now)
        for one in new:
            event = _accepted_event(one)
            for route in one.routes[:ROUTES_A_TRANSACTION]:
                births.bear(one.authority, event, route)
        births.write()
        dead = sorted((dead_record(one, now) for one in turned), key=itemgetter(0, 1))  # the key of its row
        ports.ledger.insert_dead(connection, dead)
        self._audit(births, new, turned)
        return Recorded(list(births.local.values()), births.ring, counts, unfinished)

    def _finish(self, tenant: str, event: bytes) -> Iterator[Recorded]:
        """Write the rest of an event's fan-out, slice by slice, until the ledger says that it is complete."""
        unfinished = True
        while unfinished:
            one = self._write_slice(tenant, event)
            unfinished = bool(one.unfinished)
            yield one

    def _write_slice(self, tenant: str, key: bytes) -> Recorded:
        """Write one slice of an unfinished event: routes that are its candidates now and have no row yet.

        No door is passed again: the event is accepted, and every attempt is authorized by what stands now.
        """
        ports = self._ports
        with ports.database.write() as connection:
            authority = ports.authorities.locked(connection, [tenant])[tenant]
            found = ports.ledger.unfinished(connection, key)
            if found is None:  # another reader finished it
                return Recorded([], set(), {})
            event, land = found
            now = ports.database.now(connection)
            births = Births(ports, connection, now)
            done = ports.ledger.routes_with_row(connection, key)
            wanted, without = _candidates(authority, event, land, now)
            rest = [route for route in wanted if route.id not in done]
            for route in rest[:ROUTES_A_TRANSACTION]:
                births.bear(authority, event, route)
            births.write()
            more = len(rest) > ROUTES_A_TRANSACTION
            if not more:
                if done:
                    del without[Reason(NO_ROUTE)]
                ports.ledger.finish(connection, key, _receipt(without))
            self._audit(births, (), ())
        return Recorded(list(births.local.values()), births.ring, {}, [(tenant, key)] if more else [])

    def _sort(self, connection: sa.Connection, verdicts: Sequence[Admitted | Turned]) -> _Sorted:
        """Insert the events that are new here; find repeats, redelivered entries and conflicts among the rest."""
        first: dict[bytes, Admitted] = {}
        admitted = [one for one in verdicts if isinstance(one, Admitted)]
        later = [one for one in admitted if first.setdefault(one.facts.event_id, one) is not one]
        # In key order: two readers that meet on the same keys wait for each other, and do not deadlock.
        ordered = [first[key] for key in sorted(first)]
        known = self._ports.ledger.insert_events(connection, [_event_record(one) for one in ordered])
        new = [one for one in ordered if one.facts.event_id not in known]
        found = _Sorted(new, [], {"accepted": len(new)}, [], [])
        found.unfinished.extend((one.entry.tenant, one.facts.event_id) for one in new if _unfinished(one))
        for one in [*(one for key, one in first.items() if key in known), *later]:
            there = known.get(one.facts.event_id) or _known(first[one.facts.event_id])
            if one.body_digest == there.body_digest:
                _see_again(found, one.entry, there)
            else:
                detail = f"message id {one.wire.message_id} was used for event {there.id.hex()} with another body"
                found.turned.append(Turned(one.entry, "conflict", detail, one.activation, one.authority, there.id))
        self._sort_refused(connection, found, [one for one in verdicts if isinstance(one, Turned)])
        for turned in found.turned:
            _count(found, turned.word)
        for event, entry in sorted(found.again):  # in key order too, after the last row that is inserted
            if self._ports.ledger.note_repeat(connection, event, entry):
                _count(found, "repeat")
        return found

    def _sort_refused(self, connection: sa.Connection, found: _Sorted, refused: Sequence[Turned]) -> None:
        """Tell refused entries from those whose event was accepted before what refuses them now came about.

        An accepted event is never refused again: the same entry is only redelivered, whatever stands now. Another entry
        with its message is judged like any other, in the order of the table, and is a repeat where it passes.
        """
        ledger = self._ports.ledger
        known = ledger.known(connection, [one.claims for one in refused if one.claims is not None])
        for one in refused:
            entry = one.entry
            if entry.fields is None or one.word == CRASHED:
                there = ledger.known_by_entry(connection, entry.tenant, entry.id, entry.micros)
            else:
                there = known.get(one.claims or b"")
                if there is not None and there.body_digest != hashlib.sha256(entry.fields.get(b"b", b"")).digest():
                    there = None
            if there is None or there.stream_id != entry.id:
                found.turned.append(one)
            elif one.word == CRASHED and there.unfinished:
                found.turned.append(one._replace(claims=there.id))  # the rest of its routes is lost: that is told
            else:
                _see_again(found, entry, there)

    def _audit(self, births: Births, new: Sequence[Admitted], turned: Sequence[Turned]) -> None:
        """One append for the whole batch, before its commit: decisions, events without a route, refusals (§9.6)."""
        records = [pipeline.sense_record(attempt) for attempt in births.decided]
        records += [_accept_record(one) for one in new if not one.routes]
        records += [_refuse_record(one) for one in turned]
        if records:
            self._ports.audit.append(records)


def _see_again(found: _Sorted, entry: StreamEntry, there: Known) -> None:
    """Note an entry of an event that is accepted; an unfinished fan-out is finished by whichever comes first."""
    at = (entry.tenant, there.id)
    if there.unfinished and at not in found.unfinished:
        found.unfinished.append(at)
    if there.stream_id == entry.id:
        _count(found, "redelivered")
    else:
        found.again.append((there.id, entry.id))


def _count(found: _Sorted, word: str) -> None:
    found.counts[word] = found.counts.get(word, 0) + 1


def _cut(verdicts: Sequence[Admitted | Turned]) -> Iterable[list[Admitted | Turned]]:
    """Cut a batch into transactions of at most ROWS_A_TRANSACTION rows, counting an event's first slice alone."""
    part: list[Admitted | Turned] = []
    room = ROWS_A_TRANSACTION
    for one in verdicts:
        cost = 1 + (2 * min(len(one.routes), ROUTES_A_TRANSACTION) if isinstance(one, Admitted) else 0)
        if part and cost > room:
            yield part
            part, room = [], ROWS_A_TRANSACTION
        part.append(one)
        room -= cost
    if part:
        yield part


def _candidates(
    authority: Authority, event: AcceptedEvent, land: str, now: Micros
) -> tuple[tuple[Route, ...], Counter[Reason]]:
    activation = authority.activation(event.activation_id)
    if activation is None:
        raise AssertionError(f"activation {event.activation_id} is gone: a revoked one keeps its row")
    seen = Filtering(lambda: parse_body(event.body)._replace(occurred_at=event.occurred_at), len(event.body))
    return candidates(Announced(authority, activation, Facts(*event[:6]), land, now, seen))


def _unfinished(one: Admitted) -> bool:
    return len(one.routes) > ROUTES_A_TRANSACTION


def _known(one: Admitted) -> Known:
    """Return what the ledger holds of an event that this transaction inserted."""
    return Known(one.facts.event_id, one.body_digest, one.entry.id, _unfinished(one))


def _receipt(without: Counter[Reason]) -> str | None:
    """Return JSON of text to count, or of text to owner to count where the owner may know."""
    told: dict[str, Any] = {}
    for reason, count in without.items():
        if reason.owner is None:
            told[reason.text] = count
        else:
            told.setdefault(reason.text, {})[reason.owner] = count
    return json.dumps(told) if told else None


def _summed(without: Counter[Reason]) -> str:
    """Return the texts with their counts on one line, those of most routes first."""
    counts: Counter[str] = Counter()
    for reason, count in without.items():
        counts[reason.text] += count
    told = [f"{text} ({count})" for text, count in counts.most_common(TEXTS_A_LINE)]
    left = len(counts) - len(told)
    return "; ".join(told + ([f"and {left} other reasons"] if left else []))


def _event_record(one: Admitted) -> EventRecord:
    facts, event = one.facts, one.event
    return EventRecord(
        *(facts.event_id, facts.tenant, facts.pack_id, facts.ref, facts.activation_id, facts.publisher),
        one.wire.message_id,
        *(one.activation.project_id, event.subject, event.occurred_at, one.wire.b, one.body_digest),
        *(one.entry.id, one.revision.generation, one.revision.pack.digest, one.traceparent),
        *(one.signed_at, one.arrival, _receipt(one.without), one.land if _unfinished(one) else None),
    )


def _accepted_event(one: Admitted) -> AcceptedEvent:
    event = one.event
    return AcceptedEvent(
        *one.facts, one.activation.project_id, event.subject, event.occurred_at, one.arrival, one.wire.b
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
        reason=_summed(one.without),
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
