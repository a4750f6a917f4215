"""Webhook deliveries a second to a loopback receiver: through the worker, and by clients that keep no ledger.

Everything on for the worker: authorization at each attempt, signature, guarded connections, settled rows, chained audit
with fsync. The deliveries wait in the ledger, and the clock starts when their sink is resumed: the drain is measured,
not the intake before it. The pool's processes have opened the sink before, as the bare client has its session. That
is the same aiohttp with as many requests in flight; the loop is `requests`, one after another. Rounds
alternate; each ratio is the median of the ratios within the rounds.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import requests

from benchmarks.world import REF, World, wait_until
from sense_worker.operator import Operator
from sense_worker.storage.rows import Rows
from sense_worker.storage.states import State, in_list
from sense_worker.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_FLIGHT = (1, 16, 64)
SINK = "hook"
DELIVERED = "d.state = 'delivered'"
LEFT = f"d.state IN ({in_list(State.PENDING, State.RETRYING, State.DELIVERING, State.HELD)}) LIMIT 1"
"""The condition of the index of what is left, and no more than one."""
WARM = 4
"""Times that a sink is drained before the clock counts: the pool's processes load and open what they need."""
ALONE = 10
"""With one in flight a round has so many times fewer."""
BODY = b"x" * 450
"""As long as a thin payload."""
HEADERS = {
    "Content-Type": "application/json",
    "webhook-id": "0" * 32 + ".rte_0123456789abcdef",
    "webhook-timestamp": "1780315200",
    "webhook-signature": "v1," + "A" * 44,
}


def run(database: str, rounds: int, deliveries: int) -> dict[str, Any]:
    """Return deliveries a second of each client with 1, 16 and 64 in flight, and the ratios of ours to the others."""
    world = World(database, SENSE_SINK_NETWORKS="127.0.0.0/8")
    try:
        with receiver(world) as url, Operator.open(world.settings) as operator:
            who = f"principal:{operator.acting.principal}"
            operator.add_sink(SINK, "webhook", options={"url": url}, audience=who)
            operator.add_route("mail", REF, SINK)
            world.start("sense_worker.cli.main", "worker")
            return {
                f"in_flight_{width}": _measured(world, operator, url, width, rounds, deliveries) for width in IN_FLIGHT
            }
    finally:
        world.close()


def _measured(world: World, operator: Operator, url: str, width: int, rounds: int, deliveries: int) -> dict[str, Any]:
    count = max(20, deliveries // ALONE) if width == 1 else deliveries
    operator.set_sink(SINK, {"in_flight": width})
    for _ in range(WARM):
        _ours(world, operator, 2 * width)
    each = [
        {
            "bare": asyncio.run(_bare(url, width, count)),
            "ours": _ours(world, operator, count),
            "requests": _looped(url, max(20, count // ALONE)),
        }
        for _ in range(rounds)
    ]
    ratios = {
        f"to_{other}": round(statistics.median(one["ours"] / one[other] for one in each), 2)
        for other in ("bare", "requests")
    }
    return {"deliveries": count, "rounds": each, **ratios}


@contextmanager
def receiver(world: World) -> Iterator[str]:
    """Run the receiver in a process of its own; yields its address."""
    argv = tethered([sys.executable, "-m", "benchmarks.receiver"])
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        world.processes.append(process)
        if process.stdout is None:
            raise AssertionError
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/hook"
        process.terminate()


def _ours(world: World, operator: Operator, count: int) -> float:
    """Let `count` deliveries wait in the ledger, then return how many a second are sent and settled."""
    operator.pause_sink(SINK)
    before, waiting = _count(world, DELIVERED), world.count("inbox_item")
    more = {"BENCH_ACTIVATION": world.activation}
    world.start("benchmarks.publish", "stream", str(count), "0.0", **more).wait()
    wait_until(lambda: world.count("inbox_item") == waiting + count, 120)
    operator.resume_sink(SINK)  # its last act is the ring
    begun = time.perf_counter()
    wait_until(lambda: not _count(world, LEFT), 300)
    seconds = time.perf_counter() - begun
    if _count(world, DELIVERED) != before + count:
        raise SystemExit("a delivery ended undelivered")
    return round(count / seconds, 1)


def _count(world: World, which: str) -> int:
    """Count deliveries of the sink; while the clock runs only by the index: a look at all takes a core's third."""
    query = f"SELECT count(*) FROM (SELECT 1 FROM sense_delivery d WHERE d.lane = ? AND {which}) AS found"
    with world.database.read() as connection:
        return int(Rows(connection, world.database.kind).query(query, (f"default/{SINK}",))[0][0])


async def _bare(url: str, width: int, count: int) -> float:
    """Return how many requests a second aiohttp makes with `width` of them in flight."""
    left = iter(range(count))

    async def one_after_another(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.post(url, data=BODY, headers=HEADERS) as response:
                await response.read()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        begun = time.perf_counter()
        await asyncio.gather(*(one_after_another(session) for _ in range(width)))
    return round(count / (time.perf_counter() - begun), 1)


def _looped(url: str, count: int) -> float:
    """Return how many requests a second a plain loop makes."""
    begun = time.perf_counter()
    for _ in range(count):
        requests.post(url, data=BODY, headers=HEADERS, timeout=10).raise_for_status()
    return round(count / (time.perf_counter() - begun), 1)


def told(found: dict[str, Any]) -> Iterator[str]:
    """Return the result as lines for people."""
    for database, one in found.items():
        for width in IN_FLIGHT:
            each = one[f"in_flight_{width}"]
            ours, bare, loop = (
                statistics.median(turn[who] for turn in each["rounds"]) for who in ("ours", "bare", "requests")
            )
            yield (
                f"{database}, {width:2} in flight: {ours:,.0f} deliveries/s; bare aiohttp {bare:,.0f}/s, x "
                f"{each['to_bare']}; requests in a loop {loop:,.0f}/s, x {each['to_requests']}"
            )
