"""What an intake process says of itself: judged by finished work, not by being alive (C64)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import redis

HEALTH_KEY = "sense:health"
EXEC_HEALTH_KEY = "sense:health:exec"
"""Of the readers of requests: they have a worker of their own."""
FUTURE_ID_MICROS = 5_000_000
"""A stream id this far ahead of Redis's clock was written by somebody with a wrong or wilful clock (DESIGN §4)."""
FUTURE_ID_SHOWN_MICROS = 60_000_000
WRITTEN_EVERY_MICROS = 200_000
"""How often a reader that goes from batch to batch says so: each time is a round trip, and health looks at seconds."""


class Pulse:
    """Writes this process's field of the health hash: when it last finished a turn, and what keeps it from one."""

    def __init__(self, client: redis.Redis, name: str, key: str = HEALTH_KEY) -> None:
        self._redis = client
        self._name = name
        self._key = key
        self._finished_at = 0
        self._written: tuple[int, str] = (0, "")
        self._future_until = 0
        self._entries = 0

    def saw(self, entry_micros: int, redis_now: int) -> None:
        """Note the moment in an entry's id; one from the future turns health bad for a minute."""
        if entry_micros > redis_now + FUTURE_ID_MICROS:
            self._future_until = redis_now + FUTURE_ID_SHOWN_MICROS

    def finished(self, redis_now: int, entries: int) -> None:
        """A turn is done: entries were recorded, or there were none."""
        self._finished_at = redis_now
        self._entries += entries
        at, state = self._written
        if not entries or state != "ok" or redis_now - at >= WRITTEN_EVERY_MICROS:
            self.write(redis_now, "ok")

    def write(self, redis_now: int, state: str) -> None:
        """Write the field; `state` is `ok` or what keeps entries from being recorded."""
        field = {
            "at": redis_now,
            "finished_at": self._finished_at,
            "state": state,
            "future_id": redis_now < self._future_until,
            "entries": self._entries,
        }
        self._redis.hset(self._key, self._name, json.dumps(field))
        self._written = redis_now, state

    def leave(self) -> None:
        """Take the field away: this process ends in order."""
        self._redis.hdel(self._key, self._name)
