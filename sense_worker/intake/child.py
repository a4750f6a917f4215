"""The life of an intake process: a child of the Celery worker (DESIGN §6.1)."""

from __future__ import annotations

import contextlib
import gc
import time
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from runtime_core.errors import LedgerBusy
from sense_worker.doorbell import Doorbell
from sense_worker.drain import Drain
from sense_worker.intake.health import Pulse
from sense_worker.intake.loop import IntakeLoop
from sense_worker.intake.record import Recorder
from sense_worker.intake.stream import EVENTS, Streams
from sense_worker.logs import configure, log
from sense_worker.nursery import stop_on_signals, stop_with_parent
from sense_worker.ring import sender
from sense_worker.settings import Settings
from sense_worker.wiring import build_ports, end_hung, redis_client

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from sense_worker.intake.loop import Recording
    from sense_worker.intake.stream import StreamKind
    from sense_worker.ports import Ports

STUCK_S = 120.0
"""A loop that has not ticked for this long is stuck: it stops saying it lives, and others take its entries over."""


def read(
    index: int, parent: int, kind: StreamKind, recording: Callable[[Settings, Ports], Recording], name: str
) -> None:
    """Read streams of one kind until SIGTERM, or until the worker that started this process is gone."""
    settings = Settings.load()
    configure(settings)
    stop = stop_on_signals()
    ports = build_ports(settings)
    reader = redis_client(settings, block_s=settings.block_ms / 1000)
    alive_s = 3 * settings.heartbeat_s
    limits = {"block_ms": settings.block_ms, "batch_entries": settings.batch_entries}
    streams = Streams(reader, alive_s=alive_s, kind=kind, **limits)

    def tenants() -> list[str]:
        with ports.database.read() as connection:
            return ports.ledger.tenants(connection)

    records = recording(settings, ports)
    loop = IntakeLoop(
        streams,
        records,
        Drain(ports, by="intake", on_hung=end_hung),
        Doorbell(redis_client(settings), sender(settings)),
        Pulse(reader, streams.consumer, kind.health),
        tenants,
        stop,
        reclaim_s=settings.reclaim_s,
        crash_limit=settings.crash_limit,
        batch_bytes=settings.batch_bytes,
    )
    _live(settings, streams, loop, stop, parent)
    # A batch makes some ten thousand tuples that die together: the collector's default of 700 would walk them all again
    # and again. What is loaded by now stays for good, and is not walked at all.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    log().info(f"{name} reads", index=index, consumer=streams.consumer)
    loop.run()
    with contextlib.suppress(RedisError):
        loop.leave()  # at once: what is done is acknowledged before others may take it for a dead reader's
    records.close()
    with contextlib.suppress(RedisError, LedgerBusy):
        streams.retire(tenants())
    ports.close()
    if loop.ended_by is not None:
        raise loop.ended_by


def _live(settings: Settings, streams: Streams, loop: IntakeLoop, stop: threading.Event, parent: int) -> None:
    """Say that this reader lives, from a thread and a connection of its own, while its loop ticks."""
    heart = Streams(redis_client(settings), alive_s=3 * settings.heartbeat_s, block_ms=1, batch_entries=1)
    heart.consumer = streams.consumer

    def beat() -> None:
        if time.monotonic() - loop.ticked_at < STUCK_S:
            with contextlib.suppress(RedisError):
                heart.keep_alive()

    beat()
    stop_with_parent(stop, parent, beat, settings.heartbeat_s)


def main(index: int, parent: int) -> None:
    """Read the event streams."""
    read(index, parent, EVENTS, lambda _, ports: Recorder(ports), "intake")
