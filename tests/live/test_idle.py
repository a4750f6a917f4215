"""A worker that has nothing to do does nothing, also after what it reads from has gone (C01)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sense_worker.intake.health import HEALTH_KEY
from sense_worker.storage.engine import Database
from sense_worker.wire import GROUP, stream_of
from tests.live.worlds import World, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from tests.redis_servers import RedisServer

STREAM = stream_of("t-red")
BLOCK_MS = 300
TURNS = 3
"""Turns of the reader that are watched: each blocks for BLOCK_MS where nothing comes."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time is read from /proc")


@pytest.fixture
def world(tmp_path: Path, redis_servers: Callable[..., RedisServer], sqlite_url: str) -> Iterator[World]:
    """A world with one reader that waits a third of a second for entries, and sweeps and beats as in life."""
    database = Database(sqlite_url)
    waits = {"SENSE_BLOCK_MS": str(BLOCK_MS), "SENSE_HEARTBEAT_S": "5", "SENSE_SWEEP_S": "1"}
    world = World(tmp_path, redis_servers().url, database, SENSE_INTAKE="1", SENSE_CONCURRENCY="1", **waits)
    world.route()
    yield world
    world.close()
    database.dispose()


def arrive(world: World, name: str, count: int) -> None:
    """Publish one event and wait until there are so many in the inbox."""
    with world.publisher() as publisher:
        publisher.publish("new_item", {}, id=name)
    until(lambda: world.query("SELECT count(*) FROM inbox_item") == [(count,)], what=f"{name} arrived")


def processor_s(group: int) -> float:
    """Return the seconds of processor time that the processes of a group have used."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[2]) == group:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def reads(client: redis.Redis) -> int:
    """Return how often streams were read."""
    answer: dict[str, Any] = client.info("commandstats")
    return int(answer["cmdstat_xreadgroup"]["calls"])


@pytest.mark.case("C01")
def test_after_what_it_reads_has_gone_the_worker_is_idle_between_reads(world):
    """Group, stream or the whole database gone: a turn of the reader is one read, and nobody keeps a core busy."""
    worker = world.worker()
    arrive(world, "before", 1)
    with world.client() as client:

        def finished() -> int:
            found = client.hvals(HEALTH_KEY)
            return int(json.loads(found[0])["finished_at"]) if found else 0

        for number, gone in enumerate(
            (lambda: client.xgroup_destroy(STREAM, GROUP), lambda: client.delete(STREAM), client.flushall), 2
        ):
            gone()
            arrive(world, f"after-{number}", number)
            calls, used, began, turned = reads(client), processor_s(worker.process.pid), time.monotonic(), finished()
            until(lambda turned=turned: finished() >= turned + TURNS * BLOCK_MS * 1_000, what="the reader turned")
            share = (processor_s(worker.process.pid) - used) / (time.monotonic() - began)
            assert reads(client) - calls <= 2 * TURNS
            assert share < 0.1
