"""The intake loop: read → record → acknowledge → hand over, one batch a turn (DESIGN §6.1).

An entry leaves the stream only after the transaction that recorded it, or its refusal, has committed. Whatever keeps
that from happening (database locked, audit full, a key missing, Redis away) keeps the batch in hand and tries again;
nothing new is read meanwhile, and health says why. What this process read once at its start (a key, a setting) is not
mended by trying: the loop ends in order then, and the process is started again with what stands there now.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from redis.exceptions import RedisError

from runtime_core.errors import AuditUnavailable, HcpError, LedgerBusy
from sense_worker.logs import log
from sinks.raised import origin

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Sequence

    from sense_worker.attempts import Judged
    from sense_worker.doorbell import Doorbell
    from sense_worker.drain import Drain
    from sense_worker.intake.health import Pulse
    from sense_worker.intake.record import Recorded
    from sense_worker.intake.stream import StreamEntry, Streams
    from sense_worker.open_sinks import OpenSink

TENANTS_EVERY_S = 1.0
PAUSE_CEILING_S = 2.0
"""Longest pause between two tries: after Redis or the database is back, work resumes within it."""
FRESH_START_S = 5.0
"""How long a fault that is neither the database's nor the audit's is met with another try before the loop ends."""
_STATES: dict[type[HcpError], str] = {AuditUnavailable: "audit unavailable", LedgerBusy: "ledger busy"}


class Recording(Protocol):
    """What makes rows of entries: `intake.record` of events, `exec.record` of requests."""

    def record(self, entries: Sequence[StreamEntry], redis_now: int, /) -> list[Recorded]: ...

    def bury(self, entry: StreamEntry, word: str, detail: str, /) -> Recorded: ...

    def close(self) -> None: ...


class IntakeLoop:
    """One intake process's work. `tenants` lists the tenants now; `stop` ends the loop after the turn at hand."""

    def __init__(  # noqa: PLR0913 - the parts it ties together
        self,
        streams: Streams,
        recorder: Recording,
        drain: Drain,
        bell: Doorbell,
        pulse: Pulse,
        tenants: Callable[[], Sequence[str]],
        stop: threading.Event,
        *,
        reclaim_s: float,
        crash_limit: int,
        batch_bytes: int,
    ) -> None:
        self._streams = streams
        self._recorder = recorder
        self._drain = drain
        self._bell = bell
        self._pulse = pulse
        self._list_tenants = tenants
        self._stop = stop
        self._reclaim_s = reclaim_s
        self._crash_limit = crash_limit
        self._batch_bytes = batch_bytes
        self._tenants: Sequence[str] = ()
        self._tenants_at = -TENANTS_EVERY_S
        self._reclaim_at = 0.0
        self._unacknowledged: list[StreamEntry] = []
        self._lost_reply = False
        self.ticked_at = time.monotonic()
        self.ended_by: HcpError | None = None
        """The fault that only another process can get past; None where the loop was told to stop."""

    def run(self) -> None:
        """Turn until stopped. Redis being away only pauses; one line says so, one that it is back."""
        pause = 0.05
        away = False
        while not self._stop.is_set():
            self.ticked_at = time.monotonic()
            try:
                self.turn()
            except RedisError as error:
                self._lost_reply = True
                if not away:
                    log().warning("redis away", error=f"{type(error).__name__}: {error}")
                away = True
                self._stop.wait(pause)
                pause = min(2 * pause, PAUSE_CEILING_S)
            else:
                if away:
                    log().info("redis back")
                away, pause = False, 0.05

    def leave(self) -> None:
        """End in order: acknowledge what is done, take its field of the health hash away. Raises RedisError."""
        self._acknowledge()
        self._pulse.leave()

    def turn(self) -> None:
        """Take over what dead readers left, read a batch, record it. Raises RedisError where Redis is away."""
        self._refresh_tenants()
        if not self._tenants:
            self._stop.wait(TENANTS_EVERY_S)
            self._pulse.finished(self._streams.micros(), 0)
            return
        now = time.monotonic()
        if now >= self._reclaim_at:
            self._reclaim_at = now + self._reclaim_s
            for entry in self._streams.take_over(self._tenants, 2 * self._reclaim_s):
                self._handle_alone(entry)
        entries, redis_now = self._read(), self._streams.clock
        for entry in entries:
            self._pulse.saw(entry.micros, redis_now)
        for part in by_bytes(entries, self._batch_bytes):
            self._handle(part, redis_now)
        if not self._stop.is_set():
            self._pulse.finished(redis_now, len(entries))

    def _refresh_tenants(self) -> None:
        if time.monotonic() - self._tenants_at < TENANTS_EVERY_S:
            return
        try:
            self._tenants = self._list_tenants()
        except LedgerBusy as error:
            log().warning("ledger busy", error=str(error))
        self._tenants_at = time.monotonic()

    def _read(self) -> list[StreamEntry]:
        """Acknowledge what was done in the turn before, and read what is next."""
        if self._lost_reply:
            self._acknowledge()  # what was done is not one's own any more
            entries = self._streams.read_own(self._tenants)
            self._lost_reply = bool(entries)
            if entries:
                return entries
        entries = self._streams.read(self._tenants, self._unacknowledged)
        self._unacknowledged = []
        return entries

    def _handle_alone(self, entry: StreamEntry) -> None:
        """Handle an entry that was in hand when a reader died: marked first, so that its death by it is counted."""
        died = self._streams.mark_alone(entry)
        if died >= self._crash_limit:
            done = self._bury(entry, f"its process died {died} times while handling it alone")
        else:
            done = self._handle([entry], self._streams.micros())
        if done:
            self._acknowledge()
        else:
            self._streams.unmark_alone(entry)

    def _handle(self, entries: Sequence[StreamEntry], redis_now: int, tries: int = 1) -> bool:
        """Record entries, whatever it takes; a batch that fails for its content is halved until the one is found.

        Returns False when the stop came first.
        """
        try:
            claimed_at = time.monotonic()
            recorded = self._until_possible(lambda: self._recorder.record(entries, redis_now))
        except RedisError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns one entry, and the rest must go on
            if len(entries) > 1:
                middle = len(entries) // 2
                return self._handle(entries[:middle], redis_now) and self._handle(entries[middle:], redis_now)
            return self._try_again(entries[0], redis_now, tries, error)
        if recorded is None:
            return False
        self._finish(entries, recorded, claimed_at)
        return True

    def _try_again(self, entry: StreamEntry, redis_now: int, tries: int, error: Exception) -> bool:
        """An entry that fails by itself may have met a bad moment (memory, files): only the last try buries it.

        Of the error the kind and the place are logged: a driver's text may hold the row.
        """
        what = {"stream": entry.stream, "id": entry.id, "error": type(error).__name__, "at": origin(error)}
        log().error("entry failed", **what, tries=tries)
        if tries >= self._crash_limit:
            return self._bury(entry, f"recording it raised {type(error).__name__} {tries} times")
        if self._stop.wait(0.1 * tries):
            return False
        return self._handle([entry], redis_now, tries + 1)

    def _bury(self, entry: StreamEntry, detail: str) -> bool:
        recorded = self._until_possible(lambda: [self._recorder.bury(entry, "crashed", detail)])
        if recorded is None:
            return False
        self._finish([entry], recorded, time.monotonic())
        return True

    def _until_possible(self, work: Callable[[], list[Recorded]]) -> list[Recorded] | None:
        """Do `work` until it is done; None when the stop came first: the entries stay pending for another reader."""
        pause = 0.02
        said = ""
        begun = time.monotonic()
        while True:
            self.ticked_at = time.monotonic()
            try:
                return work()
            except HcpError as error:  # a fault of this installation, never of an entry
                state = _STATES.get(type(error), f"{error.place}: {error.reason}")
                if said != state and pause > 0.1:  # noqa: PLR2004 - a lock of a moment is no news
                    said = state
                    log().warning(state, error=str(error))
                self._pulse.write(self._streams.micros(), state)
                if type(error) not in _STATES and time.monotonic() - begun >= FRESH_START_S:
                    self.ended_by = error
                    self._stop.set()
                if self._stop.wait(pause):
                    return None
                pause = min(2 * pause, PAUSE_CEILING_S)

    def _finish(self, entries: Sequence[StreamEntry], recorded: Sequence[Recorded], claimed_at: float) -> None:
        """Acknowledge what has committed, hand over what is local and ring for the rest.

        The acknowledgement goes with the next read, unless a sink may take its time before that.
        """
        self._unacknowledged += entries
        if any(part.local for part in recorded):
            self._acknowledge()
        for part in recorded:
            self._bell.ring(part.ring)
            for opened, batch in part.local:
                for at in range(0, len(batch), opened.traits.batch_size):
                    self._hand_over(opened, batch[at : at + opened.traits.batch_size], claimed_at)

    def _hand_over(self, opened: OpenSink, batch: Sequence[Judged], claimed_at: float) -> None:
        """Hand over what was born under this process's lease; where that fails the lease runs out and a drain does."""
        try:
            self._drain.hand_over(opened, batch, claimed_at)
        except HcpError as error:
            log().warning("hand-over not settled", error=str(error))

    def _acknowledge(self) -> None:
        """A lost acknowledgement is made up for later: these entries are pending under a name that lives on."""
        self._streams.acknowledge(self._unacknowledged)
        self._unacknowledged = []


def by_bytes(entries: Sequence[StreamEntry], limit: int) -> Iterable[list[StreamEntry]]:
    """Cut a batch so that no part holds more than `limit` bytes, but for a single entry above it."""
    part: list[StreamEntry] = []
    size = 0
    for entry in entries:
        if part and size + entry.size > limit:
            yield part
            part, size = [], 0
        part.append(entry)
        size += entry.size
    if part:
        yield part
