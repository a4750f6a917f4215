"""`./dev chaos`: kill and cut things while events flow, then count what was lost or doubled.

Each turn kills one thing with SIGKILL: the worker with all its children, one reader, one child of the pool, the sweep,
or Redis (which comes back on its data; it syncs every write, as `up` runs it). At the end every event that was
accepted must be in the inbox once, and delivered once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import cpu
from benchmarks.world import REF, World, data, wait_until
from runtime_core.errors import PublishError
from sense_worker.publisher import Announcement, Publisher
from sense_worker.storage.rows import Rows

if TYPE_CHECKING:
    import subprocess

RESULTS = Path(__file__).parent / "results" / "chaos.json"
WORKER = ("sense_worker.cli.main", "worker")
QUICK = {"SENSE_HEARTBEAT_S": "0.5", "SENSE_RECLAIM_S": "0.5", "SENSE_SWEEP_S": "0.5", "SENSE_CONCURRENCY": "2"}


def main() -> None:
    """Run the chaos and print what it came to; exit 1 where an event was lost or doubled."""
    parser = argparse.ArgumentParser(prog="./dev chaos", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long things are killed, per database")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], action="append")
    parser.add_argument("--keep", action="store_true", help=f"write {RESULTS.name} among the results")
    wanted = parser.parse_args()
    runs = {name: run(name, wanted) for name in wanted.database or ["sqlite", "postgresql"]}
    told = {"command": "./dev chaos " + " ".join(sys.argv[1:]), **runs}
    print(json.dumps(told, indent=2))
    if wanted.keep:
        RESULTS.write_text(json.dumps(told, indent=2) + "\n")
    if any(one["lost"] or one["doubled"] for one in runs.values()):
        sys.exit(1)


class Flow(threading.Thread):
    """Publishes events one after another, and keeps the ids of those that were accepted."""

    def __init__(self, activation: str) -> None:
        super().__init__(daemon=True)
        self.accepted: list[str] = []
        self.done = threading.Event()
        self._publisher = Publisher(Path(activation), attempts=1, timeout_s=2.0)

    def run(self) -> None:
        """Publish until told to stop; what is refused while Redis is away is not counted as accepted."""
        number = 0
        while not self.done.is_set():
            batch = [Announcement(REF, data(number + at), id=f"c-{number + at}") for at in range(20)]
            number += 20
            with suppress(PublishError):
                self.accepted += [one.message_id for one in self._publisher.publish_many(batch)]
            time.sleep(0.02)
        self._publisher.close()


def run(database: str, wanted: argparse.Namespace) -> dict[str, Any]:
    """Kill things for a while on one database, then wait until all that was accepted has settled."""
    chance = random.Random(wanted.seed)
    world = World(database, appendfsync="always")
    kills: dict[str, int] = {}
    try:
        worker = world.start(*WORKER, **QUICK)
        flow = Flow(str(world.activation))
        flow.start()
        ends = time.monotonic() + wanted.seconds
        while time.monotonic() < ends:
            time.sleep(wanted.every)
            what = chance.choice(["worker", "child", "child", "redis"])
            kills[what] = kills.get(what, 0) + 1
            worker = strike(world, worker, what, chance)
        flow.done.set()
        flow.join()
        accepted = set(flow.accepted)
        wait_until(lambda: not missing(world, accepted), 120)
        settled = counts(world)
        return {"kills": kills, "accepted": len(accepted), "lost": len(missing(world, accepted)), **settled}
    finally:
        world.close()


def strike(world: World, worker: subprocess.Popen[bytes], what: str, chance: random.Random) -> subprocess.Popen[bytes]:
    """Kill one thing of this run and bring back what nobody else would; returns the worker that runs now."""
    if what == "redis":
        world.restart_redis()
        return worker
    family = cpu.tree(worker.pid)
    if what == "child":
        if len(family) > 1:
            _kill(chance.choice(family[1:]))
        return worker
    for pid in reversed(family):
        _kill(pid)
    worker.wait()
    return world.start(*WORKER, **QUICK)


def missing(world: World, accepted: set[str]) -> set[str]:
    """Return the message ids that are accepted and not in the inbox."""
    with world.database.read() as connection:
        found = Rows(connection, world.database.kind).query(
            "SELECT message_id FROM sense_event e JOIN inbox_item i ON i.event_id = e.id"
        )
    return accepted - {row[0] for row in found}


def counts(world: World) -> dict[str, Any]:
    """Return what the ledger says at the end: doubled items, deliveries by state, dead entries."""
    with world.database.read() as connection:
        rows = Rows(connection, world.database.kind)
        doubled = rows.query("SELECT count(*) - count(DISTINCT event_id) FROM inbox_item")[0][0]
        states = dict(rows.query("SELECT state, count(*) FROM sense_delivery GROUP BY state"))
        dead = dict(rows.query("SELECT word, count(*) FROM sense_dead_entry GROUP BY word"))
    return {"doubled": int(doubled), "deliveries": states, "dead_entries": dead}


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
