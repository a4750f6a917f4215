"""Ringing lanes from a process that is no worker, such as the command line: best effort, the sweep makes up for it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from sense_worker.up_file import discover_redis_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sense_worker.settings import Settings


def ring_by(settings: Settings) -> Callable[[Iterable[str]], None]:
    """Return a function that rings lanes on the Redis of this home, where one answers."""

    def ring(lanes: Iterable[str]) -> None:
        url = discover_redis_url(settings)
        if url is None:
            return
        from kombu.exceptions import OperationalError

        from sense_worker.app import make_app, send_drain
        from sense_worker.doorbell import Doorbell
        from sense_worker.wiring import redis_client

        named = settings.model_copy(update={"redis_url": url})
        with contextlib.suppress(RedisError, OperationalError), redis_client(named) as client:
            Doorbell(client, send_drain(make_app(named))).ring(lanes)

    return ring
