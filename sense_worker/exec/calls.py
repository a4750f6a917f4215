"""Calls: serves `sense_worker.exec`, the request by way of Celery, in a pool process (DESIGN §8).

The entry goes on the stream, through the same door and ledger as every other, and the slot waits for the reply. A
slot that waits is one less to drain with: where a lane was rung and nobody is at work on it, the slot drains it itself,
so that a pool full of waiting calls still runs what they wait for.
"""

from __future__ import annotations

import base64
import os
import time
from typing import TYPE_CHECKING, Any

from sense_worker.doorbell import Doorbell
from sense_worker.exec.asking import HeldSession, send, wait_once
from sense_worker.exec.celery_call import celery_call
from sense_worker.exec.driving import drive
from sense_worker.exec.process import exec_drain
from sense_worker.exec.record import LANES
from sense_worker.exec.request import TIMEOUT_LIMIT_MS
from sense_worker.wiring import PoolProcess, redis_client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import redis

    from sense_worker.settings import Settings

LOOK_S = 0.25
"""How long a slot waits for the reply before it looks whether a lane needs it."""
GRACE_S = 5.0
"""Beyond the request's own time: by then the worker itself has answered that it is over."""


class Calls:
    """Serves calls in this process, one at a time; its client is made after the fork and kept."""

    def __init__(self, settings: Settings, send_drain: Callable[[str], object]) -> None:
        self._settings = settings
        self._send_drain = send_drain
        # Without lingering: whoever waits for this slot's own reply would linger too.
        self._drain = PoolProcess(settings.model_copy(update={"linger_s": 0.0}), send_drain, exec_drain)
        self._made: tuple[int, redis.Redis] | None = None

    def run(self, kwargs: Mapping[str, Any]) -> str | None:
        """Return the sealed reply to a call in base64; None where none came in time.

        Raises UsageError for arguments of no call, IngressFull and ExecUnreachable; their texts hold nothing of it.
        """
        call = celery_call(HeldSession(str(kwargs.get("tenant")), "", ""), kwargs)
        client = self._client()
        sent = drive(client, send(call.request))
        ends = sent.at + min(call.request.timeout_s, TIMEOUT_LIMIT_MS / 1000) + GRACE_S
        bell = Doorbell(client, self._send_drain)
        while time.monotonic() < ends:
            sealed = drive(client, wait_once(call.request, LOOK_S))
            if sealed is not None:
                return base64.b64encode(sealed).decode()
            for lane in LANES.values():
                if bell.unheard(lane):
                    self._drain.run(lane)
        return None

    def _client(self) -> redis.Redis:
        if self._made is None or self._made[0] != os.getpid():
            self._made = os.getpid(), redis_client(self._settings, block_s=LOOK_S)
        return self._made[1]
