"""The doorbell: tells Celery that a lane has something to do; rings coalesce (DESIGN §6.4).

A ring leaves a mark on the lane's bell and sends a Celery message only where no drain is at work or on its way. A
drain lingers on the bell before it ends, so a busy lane costs no Celery hop. Everything here may be lost at any time:
the rows are the truth and the sweep rings again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import redis

QUEUED_MS = 10_000
"""How long a sent message keeps others from being sent; if it is lost, the sweep's next ring after this sends one."""
ACTIVE_MS = 5_000
"""How long a drain counts as at work after its last sign; it gives one at least every two seconds."""
SIGN_S = 1.0
"""A drain that gave its sign less than this ago is silent: it would cost 0.3 ms of each batch."""
REST_MS = 1_000
"""How long a lane with all its calls out is left alone: rings of new deliveries could start nothing."""
BELL_TTL_S = 60


class Doorbell:
    """Rings lanes through Redis and, where nobody listens, through `send`, which sends the Celery message."""

    def __init__(self, client: redis.Redis, send: Callable[[str], object]) -> None:
        self._redis = client
        self._send = send
        self._signed: dict[str, float] = {}
        """When a lane's drain last gave its sign here, by this process's monotonic clock."""

    def ring(self, lanes: Iterable[str]) -> None:
        """Ring each lane once; one round trip for all, plus one Celery message for each that nobody drains."""
        lanes = sorted(set(lanes))
        if not lanes:
            return
        pipeline = self._redis.pipeline(transaction=False)
        for lane in lanes:
            bell = _bell(lane)
            pipeline.lpush(bell, b"1")
            pipeline.ltrim(bell, 0, 0)
            pipeline.expire(bell, BELL_TTL_S)
            pipeline.exists(_active(lane))
        answers = pipeline.execute()
        for lane, active in zip(lanes, answers[3::4], strict=True):
            if not active and self._redis.set(_queued(lane), b"1", nx=True, px=QUEUED_MS):
                self._send(lane)

    def start(self, lane: str) -> None:
        """A drain begins: it is at work, and no longer on its way."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.set(_active(lane), b"1", px=ACTIVE_MS)
        pipeline.delete(_queued(lane), _bell(lane))
        pipeline.execute()
        self._signed[lane] = time.monotonic()

    def unheard(self, lane: str) -> bool:
        """Tell whether the lane was rung and no drain is at work on it: its message may wait behind others."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.exists(_bell(lane))
        pipeline.exists(_active(lane))
        rung, active = pipeline.execute()
        return bool(rung) and not active

    def at_work(self, lane: str) -> None:
        """The drain goes on."""
        now = time.monotonic()
        if now - self._signed.get(lane, 0.0) >= SIGN_S:
            self._redis.set(_active(lane), b"1", px=ACTIVE_MS)
            self._signed[lane] = now

    def rest(self, lane: str) -> None:
        """The drain ends because all calls of the lane are out; the one that ends first stops the rest and rings."""
        self._signed.pop(lane, None)
        self._redis.set(_active(lane), b"1", px=REST_MS)

    def wait(self, lane: str, seconds: float) -> bool:
        """Wait for a ring; returns whether one came."""
        if seconds <= 0:  # to BLPOP a timeout of 0 is none at all
            return self._redis.lpop(_bell(lane)) is not None
        return self._redis.blpop([_bell(lane)], timeout=seconds) is not None

    def stop(self, lane: str) -> bool:
        """End the drain; returns True when a ring came in between and it must go on.

        First the sign goes, then the bell is read: whoever rang before sees no sign and is read here, whoever rings
        after sends a message of its own.
        """
        self._signed.pop(lane, None)
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.delete(_active(lane))
        pipeline.lpop(_bell(lane))
        return cast("list[object]", pipeline.execute())[1] is not None


def _bell(lane: str) -> str:
    return f"sense:bell:{lane}"


def _active(lane: str) -> str:
    return f"sense:drain:{lane}"


def _queued(lane: str) -> str:
    return f"sense:queued:{lane}"
