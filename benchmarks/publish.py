"""A publisher process: `python -m benchmarks.publish stream|celery COUNT [RATE]`; RATE is events a second."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.world import REF, data
from sense_worker.activation_file import held_activation
from sense_worker.publisher import Announcement, Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 250


def main(kind: str, count: int, rate: float) -> None:
    """Publish `count` events, as fast as it goes or at `rate`."""
    file = Path(os.environ["BENCH_ACTIVATION"])
    if kind == "celery":
        publish_to_celery(file, count, rate)
        return
    with Publisher(file, stream_limit=10_000_000) as publisher:
        if rate:
            publish_at(publisher, count, rate)
            return
        for at in range(0, count, CHUNK):
            publisher.publish_many([Announcement(REF, data(n)) for n in range(at, min(at + CHUNK, count))])


def publish_at(publisher: Publisher, count: int, rate: float) -> None:
    """Publish one event after another, each at its moment; occurred_at is the moment it was handed over."""
    for number in paced(count, rate):
        publisher.publish(REF, data(number), id=f"{time.time():.6f}-{number}")


def paced(count: int, rate: float) -> Iterator[int]:
    """Yield numbers, each at its moment; at once where the rate is 0."""
    begun = time.time()
    for number in range(count):
        pause = begun + number / rate - time.time() if rate else 0.0
        if pause > 0:
            time.sleep(pause)
        yield number


def publish_to_celery(file: Path, count: int, rate: float) -> None:
    """Send one Celery message per event, with the fields of a signed entry."""
    from benchmarks.naive import deliver
    from sense_worker.announcement import prepare
    from sense_worker.wire import build_entry

    activation = held_activation(file).value
    for number in paced(count, rate):
        ready = prepare(
            Announcement(REF, data(number), id=f"{time.time():.6f}-{number}"),
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
        moment = f"{time.time():.3f}"
        fields = build_entry(activation.secret, activation.activation_id, ready.message_id, moment, ready.body)
        sent = {name: value.decode() if isinstance(value, bytes) else value for name, value in fields.items()}
        deliver.delay(activation.tenant, f"{int(time.time() * 1000)}-{number}", sent)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)
