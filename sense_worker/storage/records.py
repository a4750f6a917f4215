"""Rows of the hot paths as plain tuples, in column order."""

from __future__ import annotations

from typing import NamedTuple


class EventRecord(NamedTuple):
    """A row of `sense_event` as intake inserts it."""

    id: bytes
    tenant: str
    pack_id: str
    ref: str
    activation_id: str
    publisher: str
    message_id: str
    project: str | None
    subject: str | None
    occurred_at: str
    body: bytes
    body_digest: bytes
    stream_id: str
    generation: int
    digest: str
    traceparent: str | None
    signed_at: int
    accepted_at: int
    receipt: str | None
    unfinished_land: str | None


class AcceptedEvent(NamedTuple):
    """What the birth of its deliveries needs of an accepted event. From `tenant` to `body` as Claimed has it."""

    id: bytes
    tenant: str
    pack_id: str
    ref: str
    activation_id: str
    publisher: str
    project: str | None
    subject: str | None
    occurred_at: str
    accepted_at: int
    body: bytes


class DeliveryRecord(NamedTuple):
    """A row of `sense_delivery` as it is born."""

    event_id: bytes
    route_id: str
    tenant: str
    lane: str
    owner: str
    state: str
    attempt: int
    alone: bool
    due_at: int
    lease: str | None
    reason: str | None
    step: str | None
    grant_id: str | None
    digest: str | None
    created_at: int
    settled_at: int | None


class DeadRecord(NamedTuple):
    """A row of `sense_dead_entry`."""

    stream: str
    stream_id: str
    tenant: str
    word: str
    detail: str
    raw: str
    raw_length: int
    raw_digest: str
    activation_id: str | None
    event_id: bytes | None
    at: int


class Claimed(NamedTuple):
    """A delivery under this process's lease, with what its attempt needs of the event."""

    event_id: bytes
    route_id: str
    lease: str
    attempt: int
    """Number of this attempt, 1 for the first."""
    alone: bool
    crashes: int
    """Deaths of a process that had this delivery alone."""
    lane: str
    owner: str
    tenant: str
    pack_id: str
    ref: str
    activation_id: str
    publisher: str
    project: str | None
    subject: str | None
    occurred_at: str
    accepted_at: int
    body: bytes


class AttemptRecord(NamedTuple):
    """A row of `sense_attempt` but for its number in the delivery's row of attempts, which the ledger gives it."""

    event_id: bytes
    route_id: str
    attempt: int
    state: str
    step: str | None
    reason: str | None
    by: str
    at: int


class Settlement(NamedTuple):
    """How an attempt ended: written only where the lease is still ours (fencing)."""

    claimed: Claimed
    state: str
    reason: str | None = None
    step: str | None = None
    grant_id: str | None = None
    digest: str | None = None
    receipt: str | None = None
    due_at: int = 0
    give_back: bool = False
    """The attempt did not count: nothing was tried."""
