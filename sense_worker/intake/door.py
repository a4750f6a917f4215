"""The door of the event stream: an entry is admitted or refused, by the first word that applies (DESIGN §7).

Nothing of the body is looked at before the signature has been verified; tenant and principals come from the
activation's row, never from the message (§9.1.2, §9.2.1).
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from runtime_core.errors import INTAKE_WORDS, DoorError
from runtime_core.event import TriggerEvent, event_id, parse_body
from runtime_core.pipeline import Facts
from runtime_core.signing import freshness, parse_signed_at, verify
from sense_worker.filters import Filtering
from sense_worker.intake.candidates import Announced, candidates
from sense_worker.wire import Entry, check_entry, parse_entry

if TYPE_CHECKING:
    from collections import Counter

    from runtime_core.authority import Authority
    from runtime_core.identity import Activation, Micros, Route, Session
    from runtime_core.pack import PackRevision
    from sense_worker.intake.candidates import Reason
    from sense_worker.intake.stream import StreamEntry

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNSIGNED = frozenset({"no_body", "too_large", "unknown_credential", "bad_signature"})
"""Refusals of an entry whose sender is not known: nothing in it may name an event."""
TRACEPARENT_LIMIT = 128
"""Characters of a W3C traceparent that are kept: version 00 has 55; it is unsigned, so it must stay small."""


class Turned(NamedTuple):
    """A refused entry: the word of the table, and what exactly was wrong."""

    entry: StreamEntry
    word: str
    detail: str
    activation: Activation | None = None
    authority: Authority | None = None
    """What it was judged by; None where nothing of it was looked at."""
    claims: bytes | None = None
    """The event that it says it is, by its activation and message id."""

    @property
    def event_id(self) -> bytes | None:
        """The event that its publisher asks for; None where the sender is not known."""
        return None if self.word in UNSIGNED else self.claims


class Admitted(NamedTuple):
    """An entry that is an event, with the routes that get a Delivery of it."""

    entry: StreamEntry
    authority: Authority
    activation: Activation
    revision: PackRevision
    facts: Facts
    event: TriggerEvent
    wire: Entry
    body_digest: bytes
    signed_at: Micros
    arrival: Micros
    routes: tuple[Route, ...]
    without: Counter[Reason]
    """Matching routes that get no Delivery, by reason; `no route` where none matched (DESIGN §6.2)."""
    land: str

    @property
    def traceparent(self) -> str | None:
        """The unsigned trace context, if it is one; anything else is dropped."""
        raw = self.wire.tp
        sound = 0 < len(raw) <= TRACEPARENT_LIMIT and raw.isascii() and raw.decode().isprintable()
        return raw.decode() if sound else None


def admit(entry: StreamEntry, authority: Authority, arrival: Micros, tolerance_s: float) -> Admitted | Turned:
    """Judge one entry against the tenant's authority; never raises for anything that stands in the entry.

    `arrival` is when the entry came (`StreamEntry.arrival`); `tolerance_s` is how far signed-at may be from it.
    """
    activation: Activation | None = None
    wire: Entry | None = None
    try:
        if entry.fields is None:
            raise DoorError("no_body", "entry", "was deleted from the stream while it was pending: its body is lost")
        wire = parse_entry(entry.fields)
        activation = authority.activation(wire.activation_id) if wire.activation_id else None
        if activation is None:
            raise DoorError("unknown_credential", "c", "names no activation of this tenant")
        moment = _authenticate(wire, activation, arrival, tolerance_s)
        session = _standing(authority, activation, arrival)
        event, signed_at = _parse(wire, moment)
        revision = authority.revision(activation.pack_id)
        if revision is None:
            raise DoorError("pack_missing", activation.pack_id, "is not installed")
        trigger = revision.pack.triggers.get(event.ref)
        if trigger is None:
            raise DoorError("undeclared_ref", event.ref, f"is no trigger of {activation.pack_id}")
        reason = trigger.check(event.data)
        if reason is not None:
            raise DoorError("invalid_data", "data", reason)
    except DoorError as refused:
        claims = _claimed_event(wire, authority, activation)
        return Turned(entry, refused.word, str(refused), activation, authority, claims)
    if not event.occurred_at:
        event = event._replace(occurred_at=_written(signed_at))
    key = event_id(entry.tenant, session.principal, activation.pack_id, wire.message_id)
    facts = Facts(key, entry.tenant, activation.pack_id, event.ref, activation.id, session.principal)
    seen = Filtering(lambda: event, len(wire.b))
    routes, without = candidates(Announced(authority, activation, facts, trigger.land, arrival, seen))
    return Admitted(
        *(entry, authority, activation, revision, facts, event, wire),
        *(hashlib.sha256(wire.b).digest(), signed_at, arrival, routes, without, trigger.land),
    )


def _claimed_event(wire: Entry | None, authority: Authority, activation: Activation | None) -> bytes | None:
    """Return the event id that a refused entry would have had: its publisher asks for it by that id."""
    session = None if activation is None else authority.session(activation.session_id)
    if wire is None or activation is None or session is None or not wire.message_id:
        return None
    return event_id(authority.tenant, session.principal, activation.pack_id, wire.message_id)


def _authenticate(wire: Entry, activation: Activation, arrival: Micros, tolerance_s: float) -> Micros | None:
    """Return signed-at, or None where t is not a moment: an authenticated sender then learns `malformed`."""
    if not verify(activation.credential.live(arrival), wire.c, wire.i, wire.t, wire.b, wire.s):
        raise DoorError("bad_signature", "s", "is not the signature of c, i, t and b under a live secret of c")
    signed_at = parse_signed_at(wire.t)
    word = None if signed_at is None else freshness(signed_at, arrival, tolerance_s)
    if word is not None and signed_at is not None:
        seconds = abs(signed_at - arrival) / 1e6
        raise DoorError(word, "t", f"{seconds:.0f} s {'before' if word == 'stale' else 'after'} arrival")
    return signed_at


def _standing(authority: Authority, activation: Activation, arrival: Micros) -> Session:
    """Return the session of the activation while it, its session and its principal stand."""
    if activation.revoked:
        raise DoorError("activation_revoked", activation.id, "was deactivated")
    session = authority.session(activation.session_id)
    if session is None or session.revoked:
        raise DoorError("session_revoked", activation.session_id, "was revoked")
    principal = authority.principal(session.principal)
    if principal is None or principal.disabled:
        raise DoorError("principal_disabled", session.principal, "is disabled")
    if session.expires_at <= arrival:
        raise DoorError("expired", session.id, "had expired at arrival")
    return session


def _parse(wire: Entry, signed_at: Micros | None) -> tuple[TriggerEvent, Micros]:
    """Parse the body; of several faults in entry and body the earlier word of the table wins."""
    faults = [] if signed_at is not None else [DoorError("malformed", "t", "is not decimal seconds")]
    event = None
    try:
        check_entry(wire)
    except DoorError as error:
        faults.append(error)
    try:
        event = parse_body(wire.b)
    except DoorError as error:
        faults.append(error)
    if event is None or signed_at is None or faults:
        raise min(faults, key=lambda fault: INTAKE_WORDS.index(fault.word))
    return event, signed_at


def _written(moment: Micros) -> str:
    """Return a moment as RFC 3339: an announcement that does not say when it happened happened when it was signed."""
    return (EPOCH + timedelta(microseconds=moment)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
