"""The round trip of a read that does nothing: through Execute, and through bare Celery's `delay().get()`.

Everything on for Execute: sealed request and reply, ledger row, authorization, chained audit with fsync. Rounds
alternate; each ratio is the median of the ratios within the rounds.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.world import World, wait_until
from sense_worker.app import EXEC_SLOTS
from sense_worker.client import HeldSession, RuntimeClient
from sense_worker.intake.health import EXEC_HEALTH_KEY, HEALTH_KEY
from sense_worker.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Callable

ARGS = {"text": "a few words"}
WARM = 50
SURFACE = {
    "id": "noop",
    "adapter": "wrap",
    "verbs": {"noop.read": {"args": {"type": "object", "properties": {"text": {"type": "string"}}}}},
}
POLICY = {
    "surface_id": "noop",
    "version": 1,
    "verbs": {"noop.read": {"operation": "read", "privacy": {"land": "personal"}}},
}


def run(database: str, rounds: int, calls: int) -> dict[str, Any]:
    """Return p50 and p99 in milliseconds and calls a second with 1 and 16 waiting clients, for both, and the ratios."""
    world = World(database)
    try:
        ask, close = _ours(world)
        bare = _bare(world)
        found: dict[str, Any] = {}
        for clients in (1, 16):
            each = [
                {"bare": _measure(bare, clients, calls), "ours": _measure(ask, clients, calls)} for _ in range(rounds)
            ]
            found[f"clients_{clients}"] = {
                "rounds": each,
                "p50_ratio": round(statistics.median(one["ours"]["p50"] / one["bare"]["p50"] for one in each), 2),
                "rate_ratio": round(
                    statistics.median(one["ours"]["calls_per_s"] / one["bare"]["calls_per_s"] for one in each), 2
                ),
            }
        found["saturated"] = _saturated(world, ask, calls)
        close()
        return found
    finally:
        world.close()


def _saturated(world: World, ask: Callable[[], object], calls: int) -> dict[str, Any]:
    """Measure one client idle, then while a publisher keeps a worker for events as busy as it can be."""
    idle = _measure(ask, 1, calls)
    world.start("sense_worker.cli.main", "worker")
    with world.client() as client:
        wait_until(lambda: bool(client.hlen(HEALTH_KEY)), 60)
    more = {"BENCH_ACTIVATION": world.activation, "BENCH_BROKER": str(world.settings.broker_url)}
    publisher = world.start("benchmarks.publish", "stream", "1000000", "0.0", **more)
    wait_until(lambda: world.count("inbox_item") > 1_000, 60)
    before, begun = world.count("inbox_item"), time.perf_counter()
    busy = _measure(ask, 1, calls)
    events = world.count("inbox_item") - before
    rate = round(events / (time.perf_counter() - begun), 1)
    publisher.kill()
    return {"idle": idle, "busy": busy, "events_per_s": rate, "p50_ratio": round(busy["p50"] / idle["p50"], 2)}


def _ours(world: World) -> tuple[Callable[[], object], Callable[[], None]]:
    pack = world.folder / "noop"
    pack.mkdir()
    (pack / "surface.json").write_text(json.dumps(SURFACE))
    (pack / "policy.json").write_text(json.dumps(POLICY))
    (pack / "HARNESS.md").write_text("# noop\n")
    with Operator.open(world.settings) as operator:
        operator.install_pack(pack)
        operator.add_grant(operator.acting.principal, "verb.exec.read", pack="noop")
        operator.activate("noop")
    world.start("benchmarks.exec_worker", PYTHONPATH=str(Path.cwd()))
    with world.client() as client:
        wait_until(lambda: bool(client.hlen(EXEC_HEALTH_KEY)), 60)
    facts = json.loads(world.settings.session_file.read_text())
    held = HeldSession(facts["tenant"], facts["session_id"], facts["secret"])
    runtime = RuntimeClient(held, str(world.settings.redis_url))

    def ask() -> None:
        answer = runtime.exec("noop", "noop.read", ARGS)
        if answer.result != ARGS:
            raise AssertionError(answer)

    return ask, runtime.close


def _bare(world: World) -> Callable[[], object]:
    socket = world.folder / "redis.sock"
    env = {"BENCH_BROKER": str(world.settings.broker_url), "BENCH_BACKEND": f"redis+socket://{socket}"}
    os.environ.update(env)
    nothing = importlib.reload(importlib.import_module("benchmarks.bare")).nothing  # its app is this world's
    options = ("--loglevel=warning", "--without-gossip", "--without-mingle", "--without-heartbeat")
    argv = ("celery", "-A", "benchmarks.bare", "worker", f"--concurrency={EXEC_SLOTS}", *options)
    world.start(*argv, **env, PYTHONPATH=str(Path.cwd()))

    def ask() -> None:
        if nothing.delay(ARGS).get(timeout=60) != ARGS:
            raise AssertionError

    return ask


def _measure(ask: Callable[[], object], clients: int, calls: int) -> dict[str, float]:
    """Let clients ask one after the other, each in a thread, and return how long it took."""
    for _ in range(WARM):
        ask()
    waits: list[float] = []

    def work() -> None:
        for _ in range(calls // clients):
            begun = time.perf_counter()
            ask()
            waits.append((time.perf_counter() - begun) * 1000)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    waits.sort()
    return {
        "p50": round(waits[len(waits) // 2], 2),
        "p99": round(waits[int(len(waits) * 0.99)], 2),
        "calls_per_s": round(len(waits) / seconds, 1),
    }
