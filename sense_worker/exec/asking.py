"""What a client of Execute says and hears, without any I/O (DESIGN §8).

A plan is a generator, as those of `sense_worker.publishing`: it yields what to say to Redis or how long to wait, and
judges what came of it. `RuntimeClient` and `AsyncRuntimeClient` are its two drivers; every rule stands here once.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Generator
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, TypeVar

from redis.exceptions import AuthenticationError, NoPermissionError, OutOfMemoryError, RedisError

from runtime_core.closed import Misfit, fit
from runtime_core.envelope import ResultEnvelope
from runtime_core.errors import ExecRefused, ExecTimeout, ExecUnreachable, IngressFull, NoWorker, UsageError
from sense_worker.exec.request import REQUEST_LIMIT, TIMEOUT_LIMIT_MS, CancelRequest, ExecRequest
from sense_worker.exec.wire import Place, build_request, open_reply, reply_key, stream_of_exec
from sense_worker.intake.health import EXEC_HEALTH_KEY
from sense_worker.publishing import Exchange, Pause
from sense_worker.wire import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_core.errors import HcpError
    from sense_worker.exec.request import Lane
    from sense_worker.session_file import SessionFile

Status = Literal["queued", "accepted", "done"]
"""On the stream; in the ledger, waiting or running (or its result was kept no longer); answered."""

BLOCK_S = 5.0
"""The longest blocking read: the server may end idle connections, and a deadline must be seen."""
LEAST_BLOCK_S = 0.01
"""The shortest: to Redis 0 means for ever."""
EARLY_S = 2.0
"""After this long without an answer the client looks whether anybody reads at all."""
READER_SILENT_S = 30.0
"""A reader not heard of for this long counts as none: it writes its field at least every few seconds."""
AWAY_S, AWAY_LIMIT_S = 0.05, 1.0
"""Pauses of who waits for a result while Redis is away: the first, and the longest."""
STREAM_LIMIT = 10_000
TAKE_BACK = """
local held = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)
if not held.err and #held > 0 then return 0 end
return redis.call('XDEL', KEYS[1], ARGV[2])
"""
"""Take an entry off the stream that no reader has, in one step: what was read may run, though its reader ended."""
_REFUSED = "refused: "

Step = Exchange | Pause
_T = TypeVar("_T")
Plan = Generator[Step, Any, _T]


class HeldSession(NamedTuple):
    """A session as its holder has it: a login's, issued by `sense_worker.operator`."""

    tenant: str
    session_id: str
    secret: str

    @classmethod
    def of(cls, file: SessionFile) -> HeldSession:
        """Return the session of a file."""
        return cls(file.tenant, file.session_id, file.secret)

    def __repr__(self) -> str:
        """Return it without its secret."""
        return f"HeldSession(tenant={self.tenant!r}, session_id={self.session_id!r})"


class ExecOptions(TypedDict, total=False):
    """How a command is asked for."""

    project: str | None
    """Selects among the session's own activations; it grants nothing. None: that of the client, else none."""
    timeout_s: float
    """Seconds, 30 unless given: the command is not started any more once they are over, nor waited for."""
    idempotency_key: str | None
    """1 to 128 printable characters: two requests of one principal under one key are one, with one result."""
    lane: Lane
    """`interactive` unless given, or `bulk`: who waits behind whom."""


class Request(NamedTuple):
    """A sealed request, ready for the stream, and where its answer will be."""

    held: HeldSession
    """As it was when this was sealed: the answer is sealed under the same secret."""
    fields: dict[str, str | bytes]
    place: Place
    message_id: str
    pack_id: str
    verb_key: str
    timeout_s: float

    @property
    def stream(self) -> str:
        """The key of the stream it goes to."""
        return stream_of_exec(self.held.tenant)

    @property
    def reply_at(self) -> str:
        """The key of the list its answer is pushed to."""
        return reply_key(self.held.tenant, self.message_id)


class Sent(NamedTuple):
    """A request on the stream."""

    request: Request
    entry_id: str
    at: float
    """By the monotonic clock."""


def ask(
    held: HeldSession,
    pack_id: str,
    verb_key: str,
    args: dict[str, Any] | None,
    *,
    project: str | None = None,
    timeout_s: float = 30.0,
    idempotency_key: str | None = None,
    lane: Lane = "interactive",
) -> Request:
    """Return the request to run one command. Raises UsageError for options that are none, and for args too large."""
    if not 0 < timeout_s * 1000 <= TIMEOUT_LIMIT_MS:
        raise UsageError("timeout_s", f"must be above 0 and at most {TIMEOUT_LIMIT_MS // 1000} seconds")
    for name, value in (("pack_id", pack_id), ("verb_key", verb_key)):
        if not isinstance(value, str):
            raise UsageError(name, "must be text, as in exec('git', 'git.log', {'limit': 3})")
    if args is not None and not isinstance(args, dict):
        raise UsageError("args", "must be a dict")
    message_id = uuid.uuid4().hex
    fields = {
        "v": 1,
        "session_id": held.session_id,
        "message_id": message_id,
        "project_id": project,
        "timeout_ms": max(1, int(timeout_s * 1000)),
        "idempotency_key": idempotency_key,
        "lane": lane,
        "envelope": {"pack_id": pack_id, "verb_key": verb_key, "args": {} if args is None else args},
    }
    try:
        plain = fit(ExecRequest, fields).plain()
    except Misfit as misfit:
        raise UsageError(".".join(map(str, misfit.at)), misfit.reason) from None
    except (TypeError, ValueError, RecursionError):  # its text may hold a value
        raise UsageError("args", "cannot be written as JSON") from None
    # One that is larger than the door takes is refused before its sender is known, and so is never answered.
    if len(plain) > REQUEST_LIMIT:
        raise UsageError("args", f"make a request of {len(plain)} bytes, limit {REQUEST_LIMIT}")
    return _sealed(held, message_id, plain, (pack_id, verb_key, timeout_s))


def ask_to_cancel(request: Request, *, force: bool) -> Request:
    """Return the request that cancels another one."""
    held, own = request.held, uuid.uuid4().hex
    cancel = CancelRequest(v=1, session_id=held.session_id, message_id=own, cancel=request.message_id, force=force)
    return _sealed(held, own, cancel.plain(), (request.pack_id, request.verb_key, 0.0))


def _sealed(held: HeldSession, message_id: str, plain: bytes, about: tuple[str, str, float]) -> Request:
    now = time.time_ns() // 1000
    signed_at = f"{now // 1_000_000}.{now % 1_000_000:06d}"
    fields = build_request(held.secret.encode(), held.session_id, message_id, signed_at, plain)
    return Request(held, fields, Place(held.session_id, message_id, signed_at), message_id, *about)


def send(request: Request) -> Plan[Sent]:
    """Put a request on the stream, in one round trip; one too many is taken off again. Raises as `submit` says."""
    fields = tuple(chain.from_iterable(request.fields.items()))
    at = time.monotonic()
    added, length = yield Exchange((("XADD", request.stream, "*", *fields), ("XLEN", request.stream)))
    sent = Sent(request, added.decode(), at)
    if length > STREAM_LIMIT and (yield from _taken_off(sent)):
        raise IngressFull(request.stream, f"holds {STREAM_LIMIT} requests", "wait, or start more workers")
    return sent


def wait_for(sent: Sent, wait_s: float | None) -> Plan[ResultEnvelope]:
    """Wait for the answer. A Redis that is away meanwhile loses nothing: it is asked again. Raises as `result` says."""
    request, over = sent.request, sent.at + sent.request.timeout_s
    ends = over if wait_s is None else time.monotonic() + wait_s
    look_at, pause = min(sent.at + EARLY_S, over), AWAY_S
    while True:
        try:
            sealed = yield from wait_once(request, min(ends, look_at) - time.monotonic())
            if sealed is not None:
                return heard(request, sealed)
            if time.monotonic() >= look_at:
                look_at = over if look_at < over else float("inf")
                if (yield from _take_back(sent)):
                    raise nobody_reads()
        except RedisError as error:
            if time.monotonic() + pause >= ends:
                raise unreachable(error) from None
            yield Pause(pause)
            pause = min(2 * pause, AWAY_LIMIT_S)
        if time.monotonic() >= ends:
            raise too_late(request, wait_s)


def wait_once(request: Request, seconds: float) -> Plan[bytes | None]:
    """Wait for the sealed answer so long, 5 s at most; None where it did not come."""
    # Moved onto itself, so that it stays for whoever asks again.
    at, seconds = request.reply_at, min(max(seconds, LEAST_BLOCK_S), BLOCK_S)
    (found,) = yield Exchange((("BLMOVE", at, at, "LEFT", "LEFT", f"{seconds:.3f}"),))
    return None if found is None else bytes(found)


def _take_back(sent: Sent) -> Plan[bool]:
    """Take the request back where no worker reads; False where one does, or has it already."""
    (seconds, micros), fields = yield Exchange((("TIME",), ("HVALS", EXEC_HEALTH_KEY)))
    if reads(fields, int(seconds) * 1_000_000 + int(micros)):
        return False
    return (yield from _taken_off(sent))


def _taken_off(sent: Sent) -> Plan[bool]:
    (count,) = yield Exchange((("EVAL", TAKE_BACK, 1, sent.request.stream, GROUP, sent.entry_id),))
    return bool(count)


def find(sent: Sent) -> Plan[Status]:
    """Tell where a request is."""
    entry = sent.entry_id
    answered, waiting = yield Exchange(
        (("EXISTS", sent.request.reply_at), ("XRANGE", sent.request.stream, entry, entry))
    )
    return "done" if answered else "queued" if waiting else "accepted"


def heard(request: Request, sealed: bytes) -> ResultEnvelope:
    """Open an answer. Raises ExecRefused where the request failed its door, or the answer was not sealed for it."""
    plain = open_reply(request.held.secret.encode(), request.place, sealed)
    if plain is None:
        raise ExecRefused("reply", "was not sealed for this request", "somebody else writes to this Redis")
    # Only a worker can have sealed it, and its results may nest deeper than what a door takes.
    fields = json.loads(plain)
    error = fields.get("error")
    if isinstance(error, str) and error.startswith(_REFUSED):
        raise ExecRefused("request", error, f"see docs/wire.md for {error.removeprefix(_REFUSED)}")
    return ResultEnvelope(bool(fields["ok"]), fields["pack_id"], fields["verb_key"], fields.get("result"), error)


def reads(fields: Sequence[bytes], now_micros: int) -> bool:
    """Tell from the readers' health fields whether one of them was heard of lately."""
    written = [int(json.loads(field)["at"]) for field in fields]
    return any(now_micros - at < READER_SILENT_S * 1e6 for at in written)


def nobody_reads() -> NoWorker:
    """Return the error for a request that nobody took; it was taken back."""
    return NoWorker("exec", "no worker reads requests", "start `sense-worker up` or `sense-worker worker --commands`")


def too_late(request: Request, wait_s: float | None = None) -> ExecTimeout:
    """Return the error for an answer that did not come in time."""
    seconds = request.timeout_s if wait_s is None else wait_s
    name = f"{request.pack_id} {request.verb_key}"
    return ExecTimeout(name, f"no answer within {seconds:g} s", "it may have run: ask for its result again")


def unreachable(error: RedisError) -> HcpError:
    """Return what a failure of Redis means for whoever asked."""
    if isinstance(error, OutOfMemoryError):
        return IngressFull("Redis", "is at its memory limit", "give the server more memory, or start more workers")
    if isinstance(error, AuthenticationError | NoPermissionError):
        return ExecUnreachable("Redis", f"does not let us in: {type(error).__name__}", "see the name in redis_url")
    return ExecUnreachable("Redis", f"does not answer: {type(error).__name__}", "is it running, and redis_url right?")
