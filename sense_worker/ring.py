"""Sending a lane's Celery message from a process that is no Celery worker: readers, sweep, command line.

Best effort: a message that cannot be sent is made up for by the sweep. Celery is loaded when the first one is sent:
it costs a reader a third of its start, and most readers never ring. So is redis-py, which a command does without.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from sense_worker.up_file import discover_redis_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from celery import Celery

    from sense_worker.settings import Settings


def sender(settings: Settings) -> Callable[[str], None]:
    """Return the function that sends the message for a lane; it never raises for a broker that is away."""
    apps: list[Celery] = []

    def send(lane: str) -> None:
        from kombu.exceptions import OperationalError
        from redis.exceptions import RedisError

        from sense_worker.app import make_app, send_drain

        if not apps:
            apps.append(make_app(settings))
        with contextlib.suppress(OperationalError, RedisError):
            send_drain(apps[0])(lane)

    return send


def ring_by(settings: Settings) -> Callable[[Iterable[str]], None]:
    """Return a function that rings lanes on the Redis of this home, where one answers."""

    def ring(lanes: Iterable[str]) -> None:
        url = discover_redis_url(settings)
        if url is None:
            return
        from redis.exceptions import RedisError

        from sense_worker.doorbell import Doorbell
        from sense_worker.wiring import redis_client

        named = settings.model_copy(update={"redis_url": url})
        with contextlib.suppress(RedisError), redis_client(named) as client:
            Doorbell(client, sender(named)).ring(lanes)

    return ring
