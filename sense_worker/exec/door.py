"""The door of requests: who sent it, and is it one? (DESIGN §4, §7, §8). It authorizes nothing: EXEC_STEPS do."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple

from runtime_core.envelope import Envelope, check_envelope
from runtime_core.errors import DoorError
from runtime_core.signing import freshness, parse_signed_at
from sense_worker.exec.request import REQUEST_LIMIT, CancelRequest, ExecRequest, parse_request
from sense_worker.exec.wire import NONCE_BYTES, Place, open_request, verify_request
from sense_worker.wire import Entry, check_entry, parse_entry

if TYPE_CHECKING:
    from runtime_core.authority import Authority
    from runtime_core.identity import Micros, Session
    from sense_worker.intake.stream import StreamEntry

SEALED_LIMIT = REQUEST_LIMIT + NONCE_BYTES + 16
"""Bytes of a sealed request: GCM adds a nonce and a tag."""


class Sender(NamedTuple):
    """An authenticated sender: where the reply goes, and under which secret."""

    session: Session
    secret: bytes
    place: Place
    message_id: str
    signed_at: str


class Asked(NamedTuple):
    """An entry that is a request to run a command."""

    entry: StreamEntry
    sender: Sender
    request: ExecRequest
    envelope: Envelope
    plain: bytes
    signed_at: Micros

    @property
    def digest(self) -> bytes:
        """SHA-256 over what the request asks for: two of one idempotency key must agree in it."""
        asked = [self.request.project_id, self.envelope.pack_id, self.envelope.verb_key, self.envelope.args]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).digest()


class Withdrawn(NamedTuple):
    """An entry that cancels an earlier request."""

    entry: StreamEntry
    sender: Sender
    request: CancelRequest


class RefusedExec(NamedTuple):
    """A refused entry; it is answered where its sender is known."""

    entry: StreamEntry
    word: str
    detail: str
    sender: Sender | None = None


def exec_id(tenant: str, session_id: str, message_id: str) -> bytes:
    """Return 16 bytes: SHA-256 over the length-prefixed key, cut. Equal keys are one request."""
    parts = (tenant.encode(), session_id.encode(), message_id.encode())
    return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in parts)).digest()[:16]


def admit_exec(
    entry: StreamEntry, authority: Authority, arrival: Micros, tolerance_s: float
) -> Asked | Withdrawn | RefusedExec:
    """Judge one entry; never raises for anything that stands in it. `arrival` as in `intake.door.admit`."""
    sender: Sender | None = None
    try:
        if entry.fields is None:
            raise DoorError("no_body", "entry", "was deleted from the stream while it was pending: its body is lost")
        wire = parse_entry(entry.fields, SEALED_LIMIT)
        sender, plain = _authenticated(wire, authority, arrival)
        moment = _fresh(wire, arrival, tolerance_s)
        check_entry(wire)
        request = parse_request(plain)
        if (request.session_id, request.message_id) != (sender.session.id, sender.message_id):
            raise DoorError("malformed", "request", "is of another session or message than its entry")
        if isinstance(request, CancelRequest):
            return Withdrawn(entry, sender, request)
        return Asked(entry, sender, request, check_envelope(request.envelope), plain, moment)
    except DoorError as refused:
        return RefusedExec(entry, refused.word, str(refused), sender)


def _authenticated(wire: Entry, authority: Authority, arrival: Micros) -> tuple[Sender, bytes]:
    session = authority.session(wire.activation_id) if wire.activation_id else None
    if session is None:
        raise DoorError("unknown_credential", "c", "names no session of this tenant")
    place = Place.of(wire.c, wire.i, wire.t)
    secret = verify_request(session.credential.live(arrival), place, wire.b, wire.s)
    plain = None if secret is None else open_request(secret, place, wire.b)
    if secret is None or plain is None:
        raise DoorError("bad_signature", "s", "is not the signature of c, i, t and b under a live secret of c")
    signed_at = wire.t.decode("ascii", "replace")
    return Sender(session, secret, place, wire.message_id, signed_at), plain


def _fresh(wire: Entry, arrival: Micros, tolerance_s: float) -> Micros:
    moment = parse_signed_at(wire.t)
    if moment is None:
        raise DoorError("malformed", "t", "is not decimal seconds")
    word = freshness(moment, arrival, tolerance_s)
    if word is not None:
        seconds = abs(moment - arrival) / 1e6
        raise DoorError(word, "t", f"{seconds:.0f} s {'before' if word == 'stale' else 'after'} arrival")
    return moment
