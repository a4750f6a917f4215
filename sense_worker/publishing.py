"""How announcements reach the stream, without any I/O: plans that say what to do next and judge what came of it.

A plan is a generator. It yields a step (commands for Redis, a pause, or work on files and the ledger that may block),
its driver answers with what came of the step, and the plan returns the outcome or raises. `Publisher` and
`AsyncPublisher` are the two drivers; every rule stands here once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import hiredis

from runtime_core.errors import HcpError, IngressFull, IngressUnreachable, LedgerBusy, PublishError, UsageError
from sense_worker.announcement import Announcement, Prepared, Published, prepare, written
from sense_worker.spool import Sender
from sense_worker.wire import build_entry, stream_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sense_worker.activation_file import ActivationFile
    from sense_worker.held_file import HeldFile
    from sense_worker.resp import Command, Reply
    from sense_worker.spool import Spool

Confirm = Literal["accepted", "ledger"]

CHUNK = 500
"""Entries in one round trip at most."""
CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes of bodies in one round trip, about: they must pass within one timeout."""
PAUSE_S = 0.1
"""Before the second attempt; doubled before each further one."""
LOOK_S, LOOK_LIMIT_S = 0.01, 0.25
"""Pauses between two looks into the ledger: the first, and the longest."""

# Of the server as a whole and for a while only: another attempt may succeed.
_PASSING = frozenset({"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "MISCONF", "NOREPLICAS"})
_EXHAUSTED = "exhausted the last possible ID"
"""In Redis's answer where no id is left for an entry."""
_NOT_ALLOWED = frozenset({"NOAUTH", "WRONGPASS", "NOPERM"})


class Exchange(NamedTuple):
    """Say these commands; the answer is their replies, or an OSError (or ReplyError, of the greeting) is thrown in."""

    commands: tuple[Command, ...]


class Pause(NamedTuple):
    """Wait; the answer is None."""

    seconds: float


class Do(NamedTuple):
    """Call this, off the event loop where there is one; the answer is what it returned, or what it raised."""

    act: Callable[[], object]


Step = Exchange | Pause | Do
_T = TypeVar("_T")
Plan = Generator[Step, Any, _T]


@dataclass(frozen=True, slots=True)
class Publishing:
    """The rules of one publisher: whose events, to which server, within which bounds."""

    activation: ActivationFile
    server: str
    """As it may be shown."""
    stream_limit: int
    attempts: int
    spool: Spool | None
    ledger: Callable[[Published], bool] | None
    """Whether the ledger holds the event; may block, may raise LedgerBusy, and PublishError where it was refused."""
    confirm_timeout_s: float
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    file: HeldFile[ActivationFile] | None = None
    """Where `activation` was read; looked at before each round trip, so that a rotated secret signs what follows."""

    def publish(self, announcement: Announcement, confirm: Confirm) -> Plan[Published]:
        """Accept one announcement. Raises as `Publisher.publish` says."""
        if confirm not in {"accepted", "ledger"}:
            raise UsageError("confirm", "must be 'accepted' or 'ledger'")
        ledger = self.ledger if confirm == "ledger" else None
        if confirm == "ledger" and ledger is None:
            raise UsageError("confirm", "'ledger' needs a ledger to look into", "give ledger= or database_url=")
        (published,) = yield from self._accept([prepare(announcement, self._now())])
        if ledger is not None and not published.spooled:
            yield from self._seen(ledger, published)
        return published

    def publish_many(self, announcements: Iterable[Announcement]) -> Plan[list[Published]]:
        """Accept announcements in order; none is sent where one of them is wrong."""
        now = self._now()
        prepared = [prepare(one, now, f"events[{index}] ") for index, one in enumerate(announcements)]
        return (yield from self._accept(prepared))

    def flush(self) -> Plan[int]:
        """Send what the spool keeps, in order; returns how many. 0 where another process is sending it."""
        if self.spool is None or not (yield Do(self.spool.holds)):
            return 0
        sender, total = Sender(self.spool), 0
        try:
            if not (yield Do(sender.claim)):
                return 0
            while batch := (yield Do(partial(sender.take, CHUNK, CHUNK_BYTES))):
                ids: list[str] = []
                try:
                    yield from self._send(batch, ids)
                finally:
                    sender.sent(len(ids))
                total += len(ids)
            return total
        finally:
            sender.release()

    def _now(self) -> str:
        return written(datetime.fromtimestamp(self.clock(), UTC))

    def _accept(self, prepared: Sequence[Prepared]) -> Plan[list[Published]]:
        ids: list[str] = []
        if self.spool is None:
            yield from self._send(prepared, ids)
        elif prepared:
            yield from self._send_or_keep(self.spool, prepared, ids)
        return [
            Published(one.message_id, self.activation.event_id(one.message_id).hex(), stream_id, stream_id is None)
            for one, stream_id in zip(prepared, chain(ids, [None] * (len(prepared) - len(ids))), strict=True)
        ]

    def _send_or_keep(self, spool: Spool, prepared: Sequence[Prepared], ids: list[str]) -> Plan[None]:
        """Send after all that is kept; what cannot be sent now is kept behind it."""
        try:
            yield from self.flush()
            waiting = yield Do(spool.holds)
            if not waiting:
                yield from self._send(prepared, ids)
                return
        except (IngressUnreachable, IngressFull):
            waiting = False
        yield Do(partial(spool.keep, prepared[len(ids) :]))
        if waiting:
            # Another process was sending. If it stopped before it saw this, nobody would send it until the next call.
            try:
                yield from self.flush()
            except (IngressUnreachable, IngressFull):
                return

    def _send(self, prepared: Sequence[Prepared], ids: list[str]) -> Plan[None]:
        """Add entries in order; `ids` grows by the stream id of each that was added, also when it raises."""
        failures = 0
        while len(ids) < len(prepared):
            before = len(ids)
            try:
                yield from self._send_chunk(_chunk(prepared, before), ids)
            except IngressUnreachable as error:
                failures = 1 if len(ids) > before else failures + 1
                if failures >= self.attempts:
                    raise self._counted(error, ids, prepared) from error.__cause__
                yield Pause(PAUSE_S * 2 ** (failures - 1))
            except PublishError as error:
                raise self._counted(error, ids, prepared) from error.__cause__
            else:
                failures = 0

    def _send_chunk(self, chunk: Sequence[Prepared], ids: list[str]) -> Plan[None]:
        key = stream_of(self.activation.tenant)
        try:
            (length,) = yield Exchange((("XLEN", key),))
            room = self.stream_limit - self._value(length, int)
            if room <= 0:
                raise IngressFull(key, f"at its bound of {self.stream_limit} entries", "start or add a worker")
            who = yield from self._newest()
            replies = yield Exchange(tuple(self._xadd(who, key, one) for one in chunk[:room]))
        except OSError as error:
            raise IngressUnreachable(self.server, f"does not answer: {_said(error)}", "is the server up?") from error
        except hiredis.ReplyError as error:
            raise self._judged(error) from None
        # extend() keeps what it got before an error reply raises: those entries were added.
        ids.extend(self._value(reply, bytes).decode() for reply in replies)

    def _newest(self) -> Plan[ActivationFile]:
        """Return the activation with its newest secret; a stat where nothing has changed."""
        if self.file is None:
            return self.activation
        if self.file.changed():
            yield Do(self.file.renewed)
        return self.file.value

    def _xadd(self, who: ActivationFile, key: str, one: Prepared) -> Command:
        signed_at = str(int(self.clock()))
        fields = build_entry(who.secret, who.activation_id, one.message_id, signed_at, one.body, one.traceparent)
        return ("XADD", key, "*", *chain.from_iterable(fields.items()))

    def _value(self, reply: Reply, kind: type[_T]) -> _T:
        if isinstance(reply, hiredis.ReplyError):
            raise self._judged(reply)
        if not isinstance(reply, kind):
            raise PublishError(self.server, f"answered {type(reply).__name__} where {kind.__name__} was due")
        return reply

    def _judged(self, error: hiredis.ReplyError) -> PublishError:
        """Return what an error reply means for an announcement."""
        code = str(error).partition(" ")[0]
        if code == "OOM":
            return IngressFull(self.server, "is at its memory limit", "give the server more memory, or start a worker")
        if _EXHAUSTED in str(error):
            way_out = "a worker makes it anew once it is empty: start one, try again; see `sense-worker health`"
            return IngressFull(stream_of(self.activation.tenant), "somebody wrote the greatest id into it", way_out)
        if code in _PASSING:
            return IngressUnreachable(self.server, f"takes nothing now: {error}")
        if code in _NOT_ALLOWED:
            way_out = f"run `sense-worker activate {self.activation.pack_id}`"
            return PublishError(self.server, f"does not let this activation write: {code}", way_out)
        return PublishError(self.server, f"refused the entry: {error}")

    @staticmethod
    def _counted(error: PublishError, ids: Sequence[str], prepared: Sequence[Prepared]) -> PublishError:
        """Return the error again, saying how many were accepted before it where there were several."""
        reason = f"{error.reason}; {len(ids)} of {len(prepared)} were accepted" if len(prepared) > 1 else error.reason
        return type(error)(error.place, reason, error.way_out)

    def _seen(self, ledger: Callable[[Published], bool], published: Published) -> Plan[None]:
        """Wait until the ledger holds the event. Raises PublishError where it was refused, and after a time."""
        look = partial(ledger, published)
        until, pause = self.monotonic() + self.confirm_timeout_s, LOOK_S
        while not (yield Do(partial(_not_busy, look, published))):
            if self.monotonic() >= until:
                raise PublishError(
                    f"event {published.event_id}",
                    f"accepted as {published.stream_id}, but not in the ledger within {self.confirm_timeout_s:g} s",
                    f"it may still arrive; see `sense-worker explain {published.event_id}` and `dead list`",
                )
            yield Pause(pause)
            pause = min(pause * 2, LOOK_LIMIT_S)


def _chunk(prepared: Sequence[Prepared], start: int) -> Sequence[Prepared]:
    """Return the next entries for one round trip: at least one."""
    size = 0
    for end in range(start, min(len(prepared), start + CHUNK)):
        size += len(prepared[end].body)
        if size > CHUNK_BYTES and end > start:
            return prepared[start:end]
    return prepared[start : start + CHUNK]


def _not_busy(look: Callable[[], bool], published: Published) -> bool:
    """Return what a look into the ledger answers; a ledger that cannot be looked into takes nothing back."""
    try:
        return look()
    except LedgerBusy:
        return False
    except PublishError:
        raise
    except HcpError as error:
        reason = f"accepted as {published.stream_id}, but the ledger cannot be asked: {error}"
        raise PublishError(f"event {published.event_id}", reason) from error


def _said(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
