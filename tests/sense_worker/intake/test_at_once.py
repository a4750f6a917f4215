"""The same events handed to many workers at the same moment: one write each, and no loser fails (C39)."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from sense_worker.intake.record import Recorder
from sense_worker.wiring import build_ports

if TYPE_CHECKING:
    from sense_worker.intake.stream import StreamEntry
    from tests.intake_bench import IntakeBench

EVENTS = 200
WORKERS = 8
BATCH = 50


def hand_over(bench: IntakeBench, handed: list[list[StreamEntry]]) -> dict[str, int]:
    """Let each worker record its entries, batch by batch, all of them at once; returns how many became what."""
    together = threading.Barrier(len(handed))

    def work(entries: list[StreamEntry]) -> list[dict[str, int]]:
        ports = build_ports(bench.settings)
        together.wait(timeout=30)
        counts = [
            part.counts
            for at in range(0, len(entries), BATCH)
            for part in Recorder(ports).record(entries[at : at + BATCH], entries[0].micros + 1_000_000)
        ]
        ports.sinks.close()
        ports.audit.close()
        ports.database.dispose()
        return counts

    total: dict[str, int] = {}
    with ThreadPoolExecutor(len(handed)) as pool:
        for counts in pool.map(work, handed, timeout=90):
            for count in counts:
                for word, number in count.items():
                    total[word] = total.get(word, 0) + number
    return {word: number for word, number in total.items() if number}


@pytest.mark.case("C39")
def test_eight_workers_that_get_the_same_events_at_once_write_each_once(bench):
    """200 items, counted and numbered once; every loser is a repeat; another body under a used id is a conflict.

    Each worker gets its own entries of the 200 messages, in an order of its own.
    """
    bench.granted()
    handed = [[bench.entry(message_id=f"m-same-{n}", data={"n": n}) for n in range(EVENTS)] for _ in range(WORKERS)]
    for number, entries in enumerate(handed):
        random.Random(number).shuffle(entries)

    assert hand_over(bench, handed) == {"accepted": EVENTS, "repeat": EVENTS * (WORKERS - 1)}
    assert bench.query("SELECT count(*), count(DISTINCT event_id) FROM inbox_item") == [(EVENTS, EVENTS)]
    assert bench.query("SELECT unseen FROM inbox_counter") == [(EVENTS,)]
    assert bench.query("SELECT state, count(*) FROM sense_delivery GROUP BY state") == [("delivered", EVENTS)]
    assert bench.query("SELECT sum(repeats) FROM sense_event") == [(EVENTS * (WORKERS - 1),)]
    assert bench.dead() == []

    others = [bench.entry(message_id=f"m-same-{n}", data={"n": -n - 1}) for n in range(EVENTS)]
    shares = [others[at::WORKERS] for at in range(WORKERS)]
    assert hand_over(bench, shares) == {"conflict": EVENTS}
    assert {word for word, _ in bench.dead()} == {"conflict"}
    assert len(bench.dead()) == EVENTS
    assert bench.query("SELECT count(*) FROM inbox_item") == [(EVENTS,)]
    assert bench.query("SELECT unseen FROM inbox_counter") == [(EVENTS,)]
