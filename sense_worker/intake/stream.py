"""The streams: read a batch, acknowledge it, and take over what dead readers left (DESIGN §4, §6).

Liveness, not idle time, says whether an entry may be taken over: every reader keeps a key `sense:alive:<consumer>`
that a thread of its own refreshes. So an entry that is merely waiting or slow is never handled twice (C03), and one of
a dead reader is taken as soon as its key has lapsed, with no new traffic needed (C04).
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, cast

from redis.exceptions import RedisError, ResponseError

from runtime_core.errors import printable
from sense_worker.intake.health import FUTURE_ID_MICROS, HEALTH_KEY
from sense_worker.logs import log
from sense_worker.wire import GROUP, stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import redis
    from redis.client import Pipeline

RECLAIM_PAGE = 100
"""Entries taken over in one turn: each then runs alone, so a turn stays well under a second."""
FORGET = """
if redis.call('EXISTS', KEYS[2]) == 0 and #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
"""
"""Forget a reader that is dead and has nothing pending, in one step: with a consumer goes its pending list, so one that
was only stopped for a while and reads again in between would lose its entries."""
TAKE = """
local listed = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[4], ARGV[2])
if #listed == 0 then return {listed, {}} end
local ids = {}
for at, one in ipairs(listed) do ids[at] = one[1] end
return {listed, redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, unpack(ids))}
"""
"""List what a dead reader holds and take it, in one step: an entry that it acknowledged in between, waking for a
moment, would look like one whose body is gone. Redis 7 leaves entries that were deleted out of the answer to XCLAIM,
older servers answer them with no fields; either way such an entry is lost, and the ledger must say so (C02)."""
SET_RIGHT = """
local facts = redis.pcall('XINFO', 'STREAM', KEYS[1])
if facts.err then return false end
local fact = {}
for at = 1, #facts, 2 do fact[facts[at]] = facts[at + 1] end
local last = fact['last-generated-id']
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if tonumber(string.match(last, '^%d+')) <= now_ms + ARGV[2] or fact['length'] > 0 then return false end
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1])
if not pending.err and pending[1] > 0 then return false end
redis.call('DEL', KEYS[1])
redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
redis.call('XSETID', KEYS[1], string.format('%d-18446744073709551615', now_ms))
return last
"""
"""Make a stream anew whose last id lies in the future, in one step, and only where it is empty and nothing is pending:
whoever may write to it can write an id of their own, and after the greatest there is no further one for anybody. Its
ids go on after this millisecond, so that none is given twice."""
NO_STREAM_S = 10.0
"""How often a key that is no stream is looked at again."""
READ_CEILING = 2_000
"""Entries one read may bring over all streams: COUNT counts per stream."""


class StreamKind(NamedTuple):
    """Which streams a reader reads: events, or requests (DESIGN §8)."""

    stream_of: Callable[[str], str]
    """The key of a tenant's stream."""
    lock: str
    """Held by the one reader that takes over."""
    health: str
    """The hash in which its readers say how they fare."""


EVENTS = StreamKind(stream_of, "sense:reclaim", HEALTH_KEY)


class StreamEntry(NamedTuple):
    """One entry as read; `fields` is None where its body was deleted while it was pending (C02)."""

    tenant: str
    stream: str
    id: str
    fields: dict[bytes, bytes] | None
    deliveries: int
    """How often it was handed to a reader, this time included; above 1 it may have a mark (see `mark_alone`)."""

    drained_at: int = 0
    """Redis's clock at a moment when everything then on the stream had been read: this entry came later."""

    @property
    def micros(self) -> int:
        """The moment in its id, by Redis's clock or by whoever wrote the id."""
        return int(self.id.partition("-")[0]) * 1000

    def arrival(self, redis_now: int) -> int:
        """Return when it came: as its id says, yet neither after `redis_now` nor before the stream was last drained.

        The holder of an ended session may write an id of their own, of a moment when it had not ended.
        """
        return max(min(self.micros, redis_now), self.drained_at)

    @property
    def size(self) -> int:
        """Bytes of all field names and values."""
        return sum(len(name) + len(value) for name, value in self.fields.items()) if self.fields else 0


class Streams:
    """One reader of every tenant's stream, under a consumer name of its own (never one of another live process)."""

    def __init__(
        self,
        client: redis.Redis,
        *,
        alive_s: float,
        block_ms: int,
        batch_entries: int,
        kind: StreamKind = EVENTS,
    ) -> None:
        self._redis = client
        self._kind = kind
        self._alive_ms = int(alive_s * 1000)
        self._block_ms = block_ms
        self._batch_entries = batch_entries
        self._groups: set[str] = set()
        self._no_stream: dict[str, float] = {}
        self._drained: dict[str, int] = {}
        self.clock = 0
        """Redis's clock as it was last seen, in microseconds."""
        self._busy_streams = 1
        self.consumer = f"{printable(socket.gethostname())}:{os.getpid()}:{secrets.token_hex(4)}"

    def keep_alive(self) -> None:
        """Say that this reader lives; to be called at least three times per `alive_s`."""
        self._redis.set(_alive_key(self.consumer), b"1", px=self._alive_ms)

    def micros(self) -> int:
        """Return Redis's clock, in microseconds."""
        self._saw_clock(self._redis.time())
        return self.clock

    def read(self, tenants: Sequence[str], done: Iterable[StreamEntry] = ()) -> list[StreamEntry]:
        """Acknowledge `done`, wait up to the block time for new entries of any tenant, and see the clock, in one trip.

        There is no waiting to fill a batch.

        COUNT is per stream, so tenants take turns: one with a backlog cannot keep another's entries waiting for more
        than its share of a batch. A group that is gone (FLUSHDB, DEL) is made again, from the stream's beginning:
        what was acknowledged is deleted, so only unread entries stand there (C01).
        """
        share = min(self._batch_entries // self._busy_streams, READ_CEILING // max(1, len(tenants)))
        before, share = self.clock, max(1, share)
        entries = self._read(tenants, ">", share, self._block_ms, done)
        taken = Counter(entry.stream for entry in entries)
        self._busy_streams = max(1, len(taken))
        bounded = [entry._replace(drained_at=self._drained.get(entry.stream, 0)) for entry in entries]
        # A read that was not full took all there was, at some moment after the clock was last looked at.
        self._drained.update({stream: before for stream in self._groups if taken[stream] < share})
        return bounded

    def read_own(self, tenants: Sequence[str]) -> list[StreamEntry]:
        """Return what is pending under this reader's own name: after a lost reply that is all it never saw."""
        found = self._read(tenants, "0", self._batch_entries, None)
        return [entry._replace(deliveries=2) for entry in found]  # one taken over may have its mark still

    def _read(
        self, tenants: Sequence[str], after: str, count: int, block: int | None, done: Iterable[StreamEntry] = ()
    ) -> list[StreamEntry]:
        streams = {self._kind.stream_of(tenant): tenant for tenant in tenants}
        streams = {stream: tenant for stream, tenant in streams.items() if self._has_group(stream)}
        if not streams:
            self.acknowledge(done)
            time.sleep((block or 0) / 1000)  # as long as the read would have waited
            self.micros()
            return []
        pipeline = self._redis.pipeline(transaction=False)
        _acknowledge(pipeline, done)
        pipeline.xreadgroup(GROUP, self.consumer, dict.fromkeys(streams, after), count=count, block=block)
        pipeline.time()
        *_, answer, clock = pipeline.execute(raise_on_error=False)
        if isinstance(clock, RedisError):
            raise clock
        if isinstance(answer, RedisError):
            if not str(answer).startswith(("NOGROUP", "WRONGTYPE", "UNBLOCKED")):
                raise answer
            self._groups.clear()
            answer = []
        self._saw_clock(clock)
        found = cast("list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes] | None]]]]", answer or [])
        return [
            StreamEntry(streams[name.decode()], name.decode(), entry_id.decode(), fields or None, 1)
            for name, entries in found
            for entry_id, fields in entries
        ]

    def acknowledge(self, entries: Iterable[StreamEntry]) -> None:
        """Take the entries off the pending lists and the streams, and forget their marks; one round trip."""
        pipeline = self._redis.pipeline(transaction=False)
        _acknowledge(pipeline, entries)
        if len(pipeline):
            pipeline.execute(raise_on_error=False)

    def _saw_clock(self, time: tuple[int, int]) -> None:
        self.clock = int(time[0]) * 1_000_000 + int(time[1])

    def mark_alone(self, entry: StreamEntry) -> int:
        """Note, before it is handled, that an entry runs alone; returns how often a process died of it before."""
        return int(self._redis.hincrby(_alone_key(entry.stream), entry.id, 1)) - 1

    def unmark_alone(self, entry: StreamEntry) -> None:
        """Take the mark back: the process lives, so the failure was not a death."""
        self._redis.hincrby(_alone_key(entry.stream), entry.id, -1)

    def take_over(self, tenants: Sequence[str], lock_s: float) -> list[StreamEntry]:
        """Take a page of entries from readers that live no more; one reader at a time does this.

        Also forgets dead readers with nothing pending, so their number stays bounded (C04), and sets right a drained
        stream whose last id lies in the future.
        """
        if not self._redis.set(self._kind.lock, self.consumer, nx=True, px=int(lock_s * 1000)):
            return []
        taken: list[StreamEntry] = []
        for tenant in tenants:
            stream = self._kind.stream_of(tenant)
            self._set_right(stream)
            for consumer, pending in self._dead_consumers(stream):
                if pending == 0:
                    self._redis.eval(FORGET, 2, stream, _alive_key(consumer), GROUP, consumer)
                    self._redis.hdel(self._kind.health, consumer)
                elif len(taken) < RECLAIM_PAGE:
                    taken += self._take_from(tenant, stream, consumer, RECLAIM_PAGE - len(taken))
        if len(taken) >= RECLAIM_PAGE:
            self._redis.delete(self._kind.lock)
        return taken

    def retire(self, tenants: Sequence[str]) -> None:
        """Leave in order: the alive key goes, so others take over at once what this reader leaves pending."""
        self._redis.delete(_alive_key(self.consumer))
        for tenant in tenants:
            stream = self._kind.stream_of(tenant)
            mine = [pending for name, pending in self._consumers(stream) if name == self.consumer]
            if mine == [0]:
                self._redis.xgroup_delconsumer(stream, GROUP, self.consumer)

    def _set_right(self, stream: str) -> None:
        last = cast("bytes | None", self._redis.eval(SET_RIGHT, 1, stream, GROUP, FUTURE_ID_MICROS // 1000))
        if last is not None:
            log().warning("stream made anew: its last id lay in the future", stream=stream, last=last.decode())

    def _take_from(self, tenant: str, stream: str, consumer: str, limit: int) -> list[StreamEntry]:
        listed, claimed = cast(
            "tuple[list[tuple[bytes, bytes, int, int]], list[tuple[bytes, list[bytes] | None] | None]]",
            self._redis.eval(TAKE, 1, stream, GROUP, consumer, self.consumer, limit),
        )
        bodies = dict(one for one in claimed if one is not None)
        return [
            StreamEntry(tenant, stream, entry_id.decode(), _pairs(bodies.get(entry_id)), int(seen) + 1)
            for entry_id, _, _, seen in listed
        ]

    def _dead_consumers(self, stream: str) -> list[tuple[str, int]]:
        others = [(name, pending) for name, pending in self._consumers(stream) if name != self.consumer]
        if not others:
            return []
        alive = cast("list[bytes | None]", self._redis.mget([_alive_key(name) for name, _ in others]))
        return [other for other, key in zip(others, alive, strict=True) if key is None]

    def _consumers(self, stream: str) -> list[tuple[str, int]]:
        try:
            listed = cast("list[dict[str, object]]", self._redis.xinfo_consumers(stream, GROUP))
        except ResponseError:
            return []  # no such key or group: nobody reads it yet
        return [(cast("bytes", row["name"]).decode(errors="replace"), cast("int", row["pending"])) for row in listed]

    def _has_group(self, stream: str) -> bool:
        """Make the group where it is missing; False where the key is no stream: that tenant alone has to wait."""
        if stream in self._groups:
            return True
        if time.monotonic() < self._no_stream.get(stream, 0.0):
            return False
        try:
            self._redis.xgroup_create(stream, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                if stream not in self._no_stream:
                    log().error("key is no stream", key=stream, way_out="rename or delete the key")
                self._no_stream[stream] = time.monotonic() + NO_STREAM_S
                return False
            if "BUSYGROUP" not in str(error):
                raise
        self._no_stream.pop(stream, None)
        self._drained.pop(stream, None)  # a group made anew reads again what came before
        self._groups.add(stream)
        return True


def _acknowledge(pipeline: Pipeline, entries: Iterable[StreamEntry]) -> None:
    by_stream: dict[str, list[StreamEntry]] = {}
    for entry in entries:
        by_stream.setdefault(entry.stream, []).append(entry)
    for stream, group in by_stream.items():
        ids = [entry.id for entry in group]
        pipeline.xack(stream, GROUP, *ids)
        pipeline.xdel(stream, *ids)
        again = [entry.id for entry in group if entry.deliveries > 1]
        if again:
            pipeline.hdel(_alone_key(stream), *again)


def _alive_key(consumer: str) -> str:
    return f"sense:alive:{consumer}"


def _pairs(fields: list[bytes] | None) -> dict[bytes, bytes] | None:
    """Return the fields of an entry from their flat form; None for one that has none."""
    return dict(zip(fields[::2], fields[1::2], strict=True)) if fields else None


def _alone_key(stream: str) -> str:
    return f"{stream}:alone"
