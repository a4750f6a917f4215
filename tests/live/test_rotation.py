"""An activation is rotated while its publisher and a worker run: nobody is started again, and nothing is lost."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from sense_worker.operator import Operator
from sense_worker.publisher import Publisher
from sense_worker.storage.engine import Database
from tests.live.worlds import World, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.redis_servers import RedisServer


@pytest.fixture
def world(tmp_path: Path, redis_servers: Callable[..., RedisServer], sqlite_url: str) -> Iterator[World]:
    """A world with one granted route to the inbox, and an operator."""
    database = Database(sqlite_url)
    world = World(tmp_path, redis_servers().url, database, SENSE_INTAKE="1", SENSE_CONCURRENCY="1")
    world.route()
    Operator.initialize(world.settings, tenant="t-red")
    yield world
    world.close()
    database.dispose()


@pytest.mark.case("C51")
def test_a_running_publisher_goes_on_through_rotations(world):
    """Three rotations under way: its events all arrive; a copy of an old file ends when its secret does."""
    file, copy = world.home / "activations" / "a-ana.json", world.home / "copy.json"
    world.worker()
    with Operator.open(world.settings, session_file=world.home / "t-red.session") as operator:
        operator.rotate_activation("a-ana")
        shutil.copy2(file, copy)
        with Publisher(file) as running, Publisher(copy) as behind:
            world.publishers += [running, behind]
            running.publish("new_item", {}, id="with-the-secret-of-the-start")
            operator.rotate_activation("a-ana", overlap_s=3600)
            running.publish("new_item", {}, id="with-a-new-secret")
            behind.publish("new_item", {}, id="within-the-overlap")
            until(lambda: world.states() == {"delivered": 3})

            operator.rotate_activation("a-ana", overlap_s=0)
            behind.publish("new_item", {}, id="after-its-end")
            running.publish("new_item", {}, id="with-the-newest-secret")
            until(lambda: world.states() == {"delivered": 4})
    until(lambda: world.query("SELECT word FROM sense_dead_entry") == [("bad_signature",)])
    ids = world.query("SELECT message_id FROM sense_event ORDER BY message_id")
    assert [row[0] for row in ids] == [
        *("with-a-new-secret", "with-the-newest-secret", "with-the-secret-of-the-start", "within-the-overlap"),
    ]
