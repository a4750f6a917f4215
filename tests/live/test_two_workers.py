"""Two workers on one stream and one ledger: nothing is held by both, and what one leaves the other takes."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from sense_worker.publisher import Announcement
from sense_worker.storage import tables
from sense_worker.storage.engine import Database
from sense_worker.wire import GROUP, stream_of
from tests.live.worlds import World, until, write_plugin
from tests.redis_servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAM = stream_of("t-red")
SLOW_MS = 1_000
"""How long a slow reader or sink holds what it holds: over three of the world's reclaim times."""
SLOW = f"""
import os
import time

from pydantic import BaseModel

from sinks import Delivered, SinkBase


class Options(BaseModel, extra="forbid"):
    file: str


class Sink(SinkBase):
    kind = "slow"
    Options = Options
    concurrency = 4
    deadline_s = 10.0

    def tell(self, word, one):
        with open(self.options.file, "a") as file:
            file.write(f"{{word}} {{one.id}}\\n")

    def deliver(self, batch):
        self.tell("start", batch[0])
        time.sleep({SLOW_MS / 1000})
        self.tell("end", batch[0])
        return [Delivered()]
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[World]:
    """A world with two workers of a reader and two slots each, and a granted route to the inbox."""
    home = tmp_path_factory.mktemp("pair")
    plugins = write_plugin(home / "plugins", "slow", SLOW)
    server = RedisServer()
    database = Database(f"sqlite:///{shutil.copyfile(sqlite_template, home / 'test.db')}")
    world = None
    try:
        env = {"SENSE_INTAKE": "1", "SENSE_CONCURRENCY": "2", "PYTHONPATH": str(plugins)}
        world = World(home, server.start().url, database, **env)
        world.route()
        for _ in range(2):
            world.worker()
        until(lambda: len(consumers(world)) == 2, 60, "both readers read")
        yield world
    finally:
        if world is not None:
            world.close()
        database.dispose()
        server.close()


def consumers(world: World) -> dict[str, int]:
    """Return the registered readers with the process of each."""
    with world.client() as client:
        if not client.exists(STREAM):
            return {}
        names = [row["name"].decode() for row in client.xinfo_consumers(STREAM, GROUP)]
    return {name: int(name.split(":")[1]) for name in names}


def publish(world: World, *names: str) -> None:
    """Publish events through ana's activation."""
    with world.publisher() as publisher:
        publisher.publish_many([Announcement("new_item", {}, id=name) for name in names])


def held(world: World, count: int, millis: int) -> list[tuple[str, int]]:
    """Wait until readers have held `count` entries for so long; return holder and hand-overs of each."""
    with world.client() as client:

        def rows() -> list[dict[str, Any]]:
            return list(client.xpending_range(STREAM, GROUP, "-", "+", 100))

        until(lambda: len([row for row in rows() if row["time_since_delivered"] >= millis]) == count, what="all held")
        return [(row["consumer"].decode(), row["times_delivered"]) for row in rows()]


@pytest.mark.case("C03")
def test_what_a_slow_reader_and_a_slow_sink_hold_is_held_once(pair, tmp_path):
    """Over three reclaim times in a reader's hands, then in a sink's: one start an id, one hand-over, none dead."""
    told = tmp_path / "told"
    pair.rows.sink("slow", "slow", {"file": str(told)}, audience="principal:ana")
    route = pair.rows.route("ana", sink="slow")
    with pair.database.write():  # the reader of this one cannot record it, and the other one has nothing to do
        publish(pair, "slow-0")
        reads = held(pair, 1, SLOW_MS)
    publish(pair, *(f"slow-{number}" for number in range(1, 8)))

    def lines(word: str) -> list[str]:
        return [line.split()[1] for line in told.read_text().splitlines() if line.startswith(word)]

    until(told.exists, what="the sink was called")
    with pair.client() as client:

        def all_ended() -> bool:
            client.delete("sense:drain:t-red/slow", "sense:queued:t-red/slow")  # so that every sweep wakes a drain
            return len(lines("end")) == 8

        until(all_ended, what="every call ended")

    assert [times for _, times in reads] == [1]
    assert len(lines("start")) == len(set(lines("start"))) == 8
    settled = "SELECT state, attempt, crashes FROM sense_delivery WHERE route_id = ?"
    until(lambda: pair.query(settled, route) == [("delivered", 1, 0)] * 8, what="all are settled")
    assert pair.query("SELECT count(*) FROM sense_attempt") == [(0,)]
    assert pair.query("SELECT count(*) FROM sense_dead_entry") == [(0,)]
    pair.rows.change(tables.RouteRow, {"id": route}, removed_at=1)


@pytest.mark.case("C04")
def test_what_a_worker_leaves_the_other_takes_with_no_new_traffic(pair):
    """Each reader has a name of its own; what a killed worker's held arrives once, and its name is forgotten."""
    groups = {name: os.getpgid(pid) for name, pid in consumers(pair).items()}
    assert sorted(groups.values()) == sorted(worker.process.pid for worker in pair.workers)
    before = pair.states().get("delivered", 0)

    with pair.database.write():
        publish(pair, *(f"left-{number}" for number in range(5)))
        assert {name for name, _ in held(pair, 2, 0)} == set(groups)
        pair.workers[0].kill()
    until(lambda: pair.states().get("delivered") == before + 5, what="the other worker took over")

    living = {name for name, group in groups.items() if group == pair.workers[1].process.pid}
    until(lambda: set(consumers(pair)) == living, what="the dead reader is forgotten")
    assert pair.query("SELECT sum(repeats) FROM sense_event") == [(0,)]
