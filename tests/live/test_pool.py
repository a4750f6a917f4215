"""Celery's pool, forked from a parent that has used its database and its Redis (C56)."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from sense_worker.publisher import Announcement
from sense_worker.storage.engine import Database
from tests.live.worlds import World, until, write_plugin

if TYPE_CHECKING:
    from pathlib import Path

FILED = """
import os

from pydantic import BaseModel

from sinks import Delivered, SinkBase


class Options(BaseModel, extra="forbid"):
    file: str


class Sink(SinkBase):
    kind = "filed"
    Options = Options

    def deliver(self, batch):
        with open(self.options.file, "a") as file:
            file.writelines(f"{one.id} {os.getpid()}\\n" for one in batch)
        return [Delivered()] * len(batch)
"""
REPLACED = """
import os
from sense_worker import app
from sense_worker.settings import Settings

make_app, worker = app.make_app, os.getpid()


def used_before_the_fork(settings):
    made = make_app(settings)
    made.conf.worker_max_tasks_per_child = 1
    if os.getpid() == worker:
        made.tasks[app.DRAIN]("t-red/filed-0")  # opens in this process what its children must not share
    return made


app.make_app = used_before_the_fork
app.run_worker(Settings.load())
"""


def world_of(tmp_path: Path, redis_url: str, database: Database, lanes: int) -> World:
    """Return a world with so many sinks that go through the pool, a route of ana's to each, and a child for each."""
    plugins = write_plugin(tmp_path / "plugins", "filed", FILED)
    env = {"SENSE_INTAKE": "1", "SENSE_CONCURRENCY": str(lanes), "SENSE_LINGER_S": "0", "SENSE_LEASE_SLACK_S": "10"}
    world = World(tmp_path, redis_url, database, PYTHONPATH=str(plugins), **env)
    world.rows.grant("ana")
    for number in range(lanes):
        file = {"file": str(tmp_path / f"filed-{number}")}
        world.rows.sink(f"filed-{number}", "filed", file, audience="principal:ana")
        world.rows.route("ana", sink=f"filed-{number}")
    return world


def filed(world: World) -> list[tuple[str, int]]:
    """Return delivery and process of everything that the sinks were given."""
    lines = [line.split() for file in world.home.glob("filed-*") for line in file.read_text().splitlines()]
    return [(name, int(pid)) for name, pid in lines]


def lives(pid: int) -> bool:
    """Say whether a process is there."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def replaced_children_settle_all(world: World, lanes: int, waves: int, events: int) -> None:
    """Publish wave after wave; every delivery is settled, once, by one try, in children of one task each."""
    world.worker(program=REPLACED)
    with world.publisher() as publisher:
        for wave in range(waves):
            publisher.publish_many([Announcement("new_item", {}, id=f"m-{wave}-{n}") for n in range(events)])
            done = {"delivered": lanes * events * (wave + 1)}
            until(lambda done=done: world.states() == done, 60, f"wave {wave} is settled")
            until(lambda: not any(lives(pid) for _, pid in filed(world)), 60, f"the children of wave {wave} ended")

    total = lanes * events * waves
    assert (len(filed(world)), len({name for name, _ in filed(world)})) == (total, total)
    assert len({pid for _, pid in filed(world)}) >= lanes * waves
    assert world.query("SELECT count(*) FROM sense_delivery WHERE attempt > 1 OR crashes > 0") == [(0,)]
    log = world.workers[0].log.read_text().splitlines()
    wrong = [line for line in log if '"level":"error"' in line or "drain broken off" in line]
    # On a busy machine a new child may take over 4 s to say that it is up; Celery then starts another.
    assert [line for line in wrong if "Timed out waiting for UP message" not in line] == []


@pytest.mark.case("C56")
def test_children_replaced_after_one_task_have_connections_of_their_own(tmp_path, redis_url, postgresql_url):
    """Two lanes are drained wave after wave by a new child each time, without an error or a second try."""
    database = Database(postgresql_url)
    world = world_of(tmp_path, redis_url, database, 2)
    try:
        replaced_children_settle_all(world, lanes=2, waves=2, events=3)
    finally:
        world.close()
        database.dispose()


@pytest.mark.long
@pytest.mark.case("C56")
@pytest.mark.timeout(900)
def test_eight_children_replaced_all_the_time_settle_eight_thousand_deliveries(tmp_path, redis_url, database):
    """Eight lanes of a thousand events each, on both databases."""
    world = world_of(tmp_path, redis_url, database, 8)
    try:
        replaced_children_settle_all(world, lanes=8, waves=50, events=20)
    finally:
        world.close()
