"""`./dev bench`: events from publish to settled beside a naive worker, in one run, on both databases.

Everything on: HMAC, strict parse, schema, candidates, authorization, event + delivery + inbox rows, chained audit with
fsync, append-only Redis. Rounds alternate; a rate's ratio is the median of the ratios within the rounds, because
absolute numbers of a small machine move by 20 to 40 % between rounds. CPU is that of every process but the benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import check, cpu, execute, policy, webhook
from benchmarks.world import World, wait_until
from sense_worker.storage.rows import Rows

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

RESULTS = Path(__file__).parent / "results" / "bench.json"
NAIVE = (
    *("celery", "-A", "benchmarks.naive", "worker", "-c", "2", "-O", "fair", "--loglevel=warning"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
)
OURS = ("sense_worker.cli.main", "worker")


def main() -> None:
    """Run the benchmark, print a table and keep the result."""
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000, help="events per round of ours (default 20,000)")
    parser.add_argument("--naive-events", type=int, default=600, help="events per round of the naive worker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], action="append")
    parser.add_argument("--policy", action="store_true", help="only the policy step: no worker, some 12 seconds")
    parser.add_argument(
        "--exec", action="store_true", help="only the round trip of a command, some two minutes a database"
    )
    parser.add_argument("--webhook", action="store_true", help="only deliveries to a webhook, some minutes a database")
    parser.add_argument("--check", action="store_true", help="only `sense-worker check` with 1,000 cases")
    parser.add_argument("--deliveries", type=int, default=6_000, help="deliveries per round of --webhook")
    parser.add_argument("--calls", type=int, default=800, help="calls per round of --exec (default 800)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON only")
    parser.add_argument("--keep", action="store_true", help=f"write it to {RESULTS.name} among the results")
    wanted = parser.parse_args()
    begun = time.time()
    result: dict[str, Any] = {"command": "./dev bench " + " ".join(sys.argv[1:]), "machine": machine()}
    databases = wanted.database or ["sqlite", "postgresql"]
    if wanted.exec:
        result["exec"] = {}
        for database in databases:
            say(f"{database}: commands")
            result["exec"][database] = execute.run(database, wanted.rounds, wanted.calls)
    elif wanted.webhook:
        result["webhook"] = {}
        for database in databases:
            say(f"{database}: deliveries to a webhook")
            result["webhook"][database] = webhook.run(database, wanted.rounds, wanted.deliveries)
    elif wanted.check:
        result["check"] = check.run(wanted.rounds)
    else:
        result["policy"] = policy.run()
        for database in () if wanted.policy else databases:
            result[database] = measure(database, wanted)
    result["seconds"] = round(time.time() - begun)
    print(json.dumps(result, indent=2) if wanted.json else told(result))
    if wanted.keep:
        part = next((name for name in ("exec", "webhook", "check") if name in result), "bench")
        place = RESULTS.with_name(f"{part}.json")
        place.write_text(json.dumps(result, indent=2) + "\n")


def machine() -> str:
    """Return what this ran on."""
    python, linux = platform.python_version(), platform.release()
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {python}, Linux {linux}"


def measure(database: str, wanted: argparse.Namespace) -> dict[str, Any]:
    """Measure both workers on one database, in alternating rounds, then latency at 100 events a second."""
    rounds = []
    for number in range(wanted.rounds):
        say(f"{database}: round {number + 1} of {wanted.rounds}")
        naive = saturate(database, "celery", wanted.naive_events)
        ours = saturate(database, "stream", wanted.events)
        rounds.append({"naive": naive, "ours": ours})
    say(f"{database}: latency at 100 events/s")
    ratios = [one["ours"]["events_per_s"] / one["naive"]["events_per_s"] for one in rounds]
    cpus = [one["naive"]["cpu_us"] / one["ours"]["cpu_us"] for one in rounds]
    return {
        "rounds": rounds,
        "rate_ratio": round(statistics.median(ratios), 1),
        "cpu_ratio": round(statistics.median(cpus), 1),
        "latency_ms": latency(database, "stream", 1_000, 100.0),
        "naive_latency_ms": latency(database, "celery", 1_000, 100.0),
    }


def saturate(database: str, kind: str, count: int) -> dict[str, Any]:
    """Publish as fast as it goes while a worker settles; from the first publish to the last row."""
    world = World(database)
    try:
        worker = start(world, kind)
        publish(world, kind, 50).wait()
        wait_until(lambda: world.count("inbox_item") == 50, 60)
        before = spent(world, worker)
        begun = time.perf_counter()
        publisher = publish(world, kind, count)
        last = cpu.seconds(publisher.pid)
        while publisher.poll() is None:
            last = max(last, cpu.seconds(publisher.pid))
            time.sleep(0.05)
        wait_until(lambda: world.count("inbox_item") == 50 + count, 120)
        seconds = time.perf_counter() - begun
        used = {name: value - before[name] for name, value in spent(world, worker).items()} | {"publisher": last}
        return {
            "events": count,
            "events_per_s": round(count / seconds, 1),
            "cpu_us": round(sum(used.values()) / count * 1e6, 1),
            "cpu_us_by": {name: round(value / count * 1e6, 1) for name, value in used.items()},
        }
    finally:
        world.close()


def latency(database: str, kind: str, count: int, rate: float) -> dict[str, float]:
    """Return p50 and p99 from publish to a committed inbox row, in milliseconds, looked at every millisecond."""
    world = World(database)
    try:
        start(world, kind)
        publish(world, kind, 50).wait()
        wait_until(lambda: world.count("inbox_item") == 50, 60)
        begun = time.time()
        publisher = publish(world, kind, count, rate)
        seen: list[float] = []
        ends = time.monotonic() + count / rate + 30
        while len(seen) < count and time.monotonic() < ends:
            arrived = world.count("inbox_item") - 50
            seen += [time.time()] * (arrived - len(seen))
            time.sleep(0.001)
        publisher.wait()
        with world.database.read() as connection:
            ids = Rows(connection, world.database.kind).query("SELECT message_id FROM sense_event")
        moments = (row[0].partition("-")[0] for row in ids if "." in row[0])
        sent = sorted(float(moment) for moment in moments if float(moment) >= begun)
        waits = sorted((there - at) * 1000 for at, there in zip(sent, seen, strict=True))
        return {"p50": round(waits[len(waits) // 2], 2), "p99": round(waits[int(len(waits) * 0.99)], 2)}
    finally:
        world.close()


def start(world: World, kind: str) -> subprocess.Popen[bytes]:
    """Start the worker of a kind."""
    if kind == "stream":
        return world.start(*OURS)
    return world.start(*NAIVE, BENCH_BROKER=str(world.settings.broker_url), PYTHONPATH=str(Path.cwd()))


def publish(world: World, kind: str, count: int, rate: float = 0.0) -> subprocess.Popen[bytes]:
    """Start a publisher process."""
    more = {"BENCH_ACTIVATION": world.activation, "BENCH_BROKER": str(world.settings.broker_url)}
    return world.start("benchmarks.publish", kind, str(count), str(rate), **more)


def spent(world: World, worker: subprocess.Popen[bytes]) -> dict[str, float]:
    """Return the CPU seconds so far of worker, Redis and PostgreSQL."""
    used = {"worker": cpu.seconds(worker.pid), "redis": cpu.seconds(world.redis.pid)}
    if world.postgres and world.postgres.process:
        used["postgres"] = cpu.seconds(world.postgres.process.pid)
    return used


def told(result: dict[str, Any]) -> str:
    """Return the result as a table for people."""
    if "exec" in result:
        return "\n".join([result["machine"], *_exec(result["exec"]), f"took {result['seconds']} s"])
    if "webhook" in result:
        return "\n".join([result["machine"], *webhook.told(result["webhook"]), f"took {result['seconds']} s"])
    if "check" in result:
        return "\n".join([result["machine"], *check.told(result["check"])])
    lines = [result["machine"], *_policy(result["policy"]), ""]
    if "sqlite" not in result and "postgresql" not in result:
        return "\n".join(lines)
    rates = f"{'naive ev/s':>12}{'ours ev/s':>12}{'x':>7}"
    lines.append(f"{'':12}{rates}{'naive us':>10}{'ours us':>9}{'x':>7}{'naive p50/p99 ms':>20}{'ours p50/p99 ms':>18}")
    for name in ("sqlite", "postgresql"):
        with suppress(KeyError):
            one = result[name]
            lines.append(
                f"{name:12}{_middle(one, 'naive', 'events_per_s'):>12,.0f}"
                f"{_middle(one, 'ours', 'events_per_s'):>12,.0f}"
                f"{one['rate_ratio']:>7}{_middle(one, 'naive', 'cpu_us'):>10,.0f}"
                f"{_middle(one, 'ours', 'cpu_us'):>9,.0f}"
                f"{one['cpu_ratio']:>7}{_waits(one['naive_latency_ms']):>20}{_waits(one['latency_ms']):>18}"
            )
    lines.append(f"\ntook {result['seconds']} s; CPU is microseconds an event over all processes")
    return "\n".join(lines)


def _exec(found: dict[str, Any]) -> Iterator[str]:
    for database, one in found.items():
        for clients in (1, 16):
            each = one[f"clients_{clients}"]
            ours, bare = (
                {
                    name: statistics.median(turn[who][name] for turn in each["rounds"])
                    for name in ("p50", "p99", "calls_per_s")
                }
                for who in ("ours", "bare")
            )
            yield (
                f"{database}, {clients:2} clients: p50/p99 {ours['p50']:g}/{ours['p99']:g} ms, "
                f"{ours['calls_per_s']:,.0f} calls/s; "
                f"bare Celery {bare['p50']:g}/{bare['p99']:g} ms, {bare['calls_per_s']:,.0f} calls/s; "
                f"p50 x {each['p50_ratio']}, calls/s x {each['rate_ratio']}"
            )
        full = one["saturated"]
        yield (
            f"{database}, 1 client beside {full['events_per_s']:,.0f} events/s: p50 {full['busy']['p50']:g} ms, "
            f"idle {full['idle']['p50']:g} ms, x {full['p50_ratio']}"
        )


def _policy(one: dict[str, Any]) -> Iterator[str]:
    yield f"policy step alone, decisions/s a core with {one['grants']:,} grants (load average {one['load']})"
    for land in ("personal", "brain"):
        figures = (
            "{walked_per_s:,} every gate walked, {kept_per_s:,} kept with the snapshot, {signed_per_s:,} with HMAC"
        )
        yield f"  land {land + ':':10}" + figures.format(**one[land])


def _waits(one: dict[str, float]) -> str:
    return f"{one['p50']} / {one['p99']}"


def _middle(one: dict[str, Any], who: str, what: str) -> float:
    return float(statistics.median(each[who][what] for each in one["rounds"]))


def say(text: str) -> None:
    """Tell what goes on, on standard error."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
