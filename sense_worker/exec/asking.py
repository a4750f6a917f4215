"""What a client of Execute says and hears, without any I/O: `RuntimeClient` and `AsyncRuntimeClient` drive it."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from runtime_core.envelope import ResultEnvelope
from runtime_core.errors import ExecRefused, ExecTimeout, NoWorker, UsageError
from runtime_core.strict_json import parse_object
from sense_worker.exec.request import TIMEOUT_LIMIT_MS, CancelRequest, ExecRequest
from sense_worker.exec.wire import Place, build_request, open_reply, reply_key, stream_of_exec

if TYPE_CHECKING:
    from sense_worker.exec.request import Lane

Status = Literal["queued", "accepted", "done"]
"""On the stream; in the ledger, waiting or running; answered."""

BLOCK_S = 5.0
"""The longest blocking read: the server may end idle connections, and a deadline must be seen."""
EARLY_S = 2.0
"""After this long without an answer the client looks whether anybody reads at all."""
READER_SILENT_S = 30.0
"""A reader that has not finished a turn for this long counts as none: it does at least every few seconds."""
STREAM_LIMIT = 10_000
_REPLY_LIMIT = 2 * 1024 * 1024
_REFUSED = "refused: "


class HeldSession(NamedTuple):
    """A session as its holder has it: a login's, issued by `sense_worker.operator`."""

    tenant: str
    session_id: str
    secret: str

    def __repr__(self) -> str:
        """Return it without its secret."""
        return f"HeldSession(tenant={self.tenant!r}, session_id={self.session_id!r})"


class Request(NamedTuple):
    """A sealed request, ready for the stream, and where its answer will be."""

    stream: str
    fields: dict[str, str | bytes]
    reply_at: str
    place: Place
    message_id: str
    pack_id: str
    verb_key: str
    timeout_s: float


def ask(
    held: HeldSession,
    pack_id: str,
    verb_key: str,
    args: dict[str, Any] | None,
    *,
    project: str | None,
    timeout_s: float,
    idempotency_key: str | None,
    lane: Lane,
) -> Request:
    """Return the request to run one command. Raises UsageError for a timeout that is none."""
    if not 0 < timeout_s * 1000 <= TIMEOUT_LIMIT_MS:
        raise UsageError("timeout_s", f"must be above 0 and at most {TIMEOUT_LIMIT_MS // 1000} seconds")
    message_id = uuid.uuid4().hex
    envelope = {"pack_id": pack_id, "verb_key": verb_key, "args": {} if args is None else args}
    plain = ExecRequest(
        v=1,
        session_id=held.session_id,
        message_id=message_id,
        project_id=project,
        timeout_ms=max(1, int(timeout_s * 1000)),
        idempotency_key=idempotency_key,
        lane=lane,
        envelope=envelope,
    ).plain()
    return _sealed(held, message_id, plain, (pack_id, verb_key, timeout_s))


def ask_to_cancel(held: HeldSession, message_id: str, *, force: bool) -> Request:
    """Return the request that cancels another one."""
    own = uuid.uuid4().hex
    plain = CancelRequest(v=1, session_id=held.session_id, message_id=own, cancel=message_id, force=force).plain()
    return _sealed(held, own, plain, ("", "", 0.0))


def _sealed(held: HeldSession, message_id: str, plain: bytes, about: tuple[str, str, float]) -> Request:
    now = time.time_ns() // 1000
    signed_at = f"{now // 1_000_000}.{now % 1_000_000:06d}"
    fields = build_request(held.secret.encode(), held.session_id, message_id, signed_at, plain)
    place = Place(held.session_id, message_id, signed_at)
    return Request(stream_of_exec(held.tenant), fields, reply_key(held.tenant, message_id), place, message_id, *about)


def heard(held: HeldSession, request: Request, sealed: bytes) -> ResultEnvelope:
    """Open an answer. Raises ExecRefused where the request failed its door, or the answer was not sealed for it."""
    plain = open_reply(held.secret.encode(), request.place, sealed)
    if plain is None:
        raise ExecRefused("reply", "was not sealed for this request", "the session's secret was rotated; log in again")
    fields = parse_object(plain, limit=_REPLY_LIMIT, what="reply")
    error = fields.get("error")
    if isinstance(error, str) and error.startswith(_REFUSED):
        raise ExecRefused("request", error, f"see docs/wire.md for {error.removeprefix(_REFUSED)}")
    return ResultEnvelope(bool(fields["ok"]), fields["pack_id"], fields["verb_key"], fields.get("result"), error)


def reads(fields: list[bytes], now_micros: int) -> bool:
    """Tell from the readers' health fields whether one of them finished a turn lately."""
    finished = [int(json.loads(field)["at"]) for field in fields]
    return any(now_micros - at < READER_SILENT_S * 1e6 for at in finished)


def nobody_reads() -> NoWorker:
    """Return the error for a request that nobody took; it was taken back."""
    return NoWorker("exec", "no worker reads requests", "start `sense-worker up` or `sense-worker worker --commands`")


def too_late(request: Request) -> ExecTimeout:
    """Return the error for an answer that did not come in time."""
    name = f"{request.pack_id} {request.verb_key}"
    return ExecTimeout(name, f"no answer within {request.timeout_s:g} s", "a write may have run: ask for its status")
