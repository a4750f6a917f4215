"""No accepted event is lost when the worker is killed at any moment (issue: what must hold)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from sense_worker.publisher import Announcement
from sense_worker.storage.engine import Database
from tests.live.exec_worlds import quick_on_one_kind
from tests.live.worlds import World, until, write_plugin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


database_url = quick_on_one_kind


@pytest.fixture
def world(tmp_path: Path, redis_url: str, database: Database) -> Iterator[World]:
    """A world on SQLite, and in the long tier on PostgreSQL."""
    world = World(tmp_path, redis_url, database, SENSE_CONCURRENCY="1")
    yield world
    world.close()


@pytest.mark.case("C36")
@pytest.mark.case("C40")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("events", "kills"), [(1_000, 2), pytest.param(5_000, 5, marks=pytest.mark.long)])
def test_kills_in_the_middle_of_a_flow_of_events_lose_and_double_nothing(world, events, kills):
    """The worker and all its children are killed while events flow; each event is in the inbox once."""
    world.route()
    publisher = world.publisher()
    pause = threading.Event()

    def publish() -> None:
        for at in range(0, events, 100):
            publisher.publish_many([Announcement("new_item", {"n": n}, id=f"m-{n}") for n in range(at, at + 100)])
            pause.wait(0.05)  # events flow while workers die, instead of waiting for them

    flow = threading.Thread(target=publish)
    flow.start()

    def arrived() -> int:
        return int(world.query("SELECT count(*) FROM inbox_item")[0][0])

    for kill in range(kills):
        worker = world.worker()
        mark = max(arrived() + 1, events * (kill + 1) // (kills + 2))
        until(lambda mark=mark: arrived() >= mark, 60, f"{mark} arrived before kill {kill}")
        worker.kill()
    flow.join()
    world.worker()
    until(lambda: arrived() >= events, 90, "all arrived after the last start")

    assert world.states() == {"delivered": events}
    assert world.query("SELECT count(DISTINCT event_id) FROM inbox_item") == [(events,)]
    assert world.query("SELECT count(*) FROM sense_dead_entry") == [(0,)]


@pytest.mark.case("C05")
@pytest.mark.case("C36")
@pytest.mark.parametrize("limit", [1, pytest.param(3, marks=pytest.mark.long)])
def test_an_event_that_kills_its_process_ends_dead_and_holds_up_nobody(tmp_path, redis_url, sqlite_url, limit):
    """An event whose sink ends the process by SIGKILL is dead after its deaths alone; its neighbours arrive."""
    plugins = tmp_path / "plugins"
    write_plugin(plugins, "deadly", PLUGIN)
    env = {"PYTHONPATH": str(plugins), "SENSE_CRASH_LIMIT": str(limit), "SENSE_INTAKE": "1"}
    world = World(tmp_path, redis_url, Database(sqlite_url), **env)
    try:
        world.rows.sink("deadly", "deadly", {"file": str(tmp_path / "lived")}, audience="principal:ana")
        world.route(sink="deadly")
        publisher = world.publisher()
        publisher.publish("new_item", {"kill": True}, id="poison")
        publisher.publish_many([Announcement("new_item", {"n": n}, id=f"m-{n}") for n in range(5)])
        world.worker()
        lived = tmp_path / "lived"

        until(lambda: lived.exists() and len(lived.read_text().splitlines()) == 5, 60, "the neighbours arrived")
        until(lambda: world.states() == {"delivered": 5, "dead": 1}, 90, "the poison is dead")

        assert world.query("SELECT reason FROM sense_delivery WHERE state = 'dead'") == [
            (f"crashed: its process died {limit} times",)
        ]
    finally:
        world.close()
        world.database.dispose()


@pytest.mark.long
@pytest.mark.case("C44")
def test_a_sink_that_hangs_gives_its_slot_back(tmp_path, redis_url, sqlite_url):
    """One slot, one sink that never answers: the deliveries of another sink arrive, and the hanging one ends dead."""
    plugins = tmp_path / "plugins"
    write_plugin(plugins, "deadly", PLUGIN)
    env = {"SENSE_CONCURRENCY": "1", "SENSE_INTAKE": "1", "SENSE_CRASH_LIMIT": "1"}
    world = World(tmp_path, redis_url, Database(sqlite_url), PYTHONPATH=str(plugins), **env)
    try:
        for name in ("deadly", "lively"):
            world.rows.sink(name, "deadly", {"file": str(tmp_path / name)}, audience="principal:ana")
        world.route(sink="deadly")
        publisher = world.publisher()
        publisher.publish("new_item", {"hang": True}, id="hanging")
        worker = world.worker()
        until(lambda: world.states() == {"delivering": 1}, 60, "the sink hangs")
        world.rows.route("ana", "new_item", "lively")
        publisher.publish("new_item", {"n": 1}, id="m-1")

        until((tmp_path / "lively").exists, 30, "the other sink got its delivery")
        until(lambda: world.states() == {"delivered": 2, "dead": 1}, 60, "the hanging one is dead")

        assert '"event":"process ends: its sink does not answer"' in worker.log.read_text()
    finally:
        world.close()
        world.database.dispose()


PLUGIN = """
import os
import signal
import time

from pydantic import BaseModel

from sinks import Delivered, SinkBase


class Options(BaseModel, extra="forbid"):
    file: str


class Sink(SinkBase):
    kind = "deadly"
    Options = Options
    deadline_s = 0.5

    def deliver(self, batch):
        for one in batch:
            if b'"kill":true' in one.body.replace(b" ", b""):
                os.kill(os.getpid(), signal.SIGKILL)
            while b'"hang":true' in one.body.replace(b" ", b""):
                time.sleep(1)
            with open(self.options.file, "a") as file:
                file.write(one.id + "\\n")
        return [Delivered()] * len(batch)
"""
