"""Connections that a parent used before it forked: children have their own, and the parent's still works (C56)."""

from __future__ import annotations

import multiprocessing
import os
from typing import TYPE_CHECKING, Any

import pytest

from sense_worker.doorbell import Doorbell
from sense_worker.settings import Settings
from sense_worker.storage.rows import Rows
from sense_worker.wiring import redis_client

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.queues import SimpleQueue

    import redis

    from sense_worker.storage.engine import Database

FORK = multiprocessing.get_context("fork")
SIZES = [
    pytest.param(3, 20, id="quick"),
    pytest.param(8, 1_000, id="literal", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
]
pytestmark = [
    pytest.mark.case("C56"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


class Children:
    """Forks children that each do a number of tasks over what the parent has opened, and tell what went wrong."""

    def __init__(self, task: Callable[[int, int], object]) -> None:
        self._task = task
        self._told: SimpleQueue[str] = FORK.SimpleQueue()

    def run(self, numbers: range, tasks: int) -> list[str]:
        """Fork one child a number, at once; returns what each told: `done`, or the first thing that was wrong."""
        started = [FORK.Process(target=self._work, args=(number, tasks)) for number in numbers]
        for process in started:
            process.start()
        told = [self._told.get() for _ in started]
        for process in started:
            process.join(20)
        return told

    def _work(self, child: int, tasks: int) -> None:
        said = "done"
        try:
            for number in range(tasks):
                found, expected = self._task(child, number), (child, number)
                if found != expected:
                    said = f"read {found} instead of {expected}"
                    break
        except Exception as error:  # noqa: BLE001 - told to the parent
            said = f"child {child}: {error!r}"
        self._told.put(said)
        os._exit(0)  # as a pool child ends: without closing what it shares with its parent


def one_after_another(children: Children, first: int, tasks: int) -> list[str]:
    """Let five children do a share each, one replaced by the next as a pool does after so many tasks."""
    return [said for number in range(first, first + 5) for said in children.run(range(number, number + 1), tasks // 5)]


@pytest.mark.parametrize(("processes", "tasks"), SIZES)
def test_a_database_used_before_the_fork(database: Database, processes: int, tasks: int) -> None:
    """Each task reads back its own row, in children at once and one after another; the parent goes on."""
    with database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE forked (child INTEGER, n INTEGER)")

    def task(child: int, number: int) -> object:
        with database.write() as connection:
            rows = Rows(connection, database.kind)
            rows.execute("INSERT INTO forked (child, n) VALUES (?, ?)", (child, number))
            return rows.query("SELECT child, max(n) FROM forked WHERE child = ? GROUP BY child", (child,))[0]

    children = Children(task)
    told = children.run(range(processes), tasks) + one_after_another(children, 100, tasks)

    assert told == ["done"] * (processes + 5)
    with database.read() as connection:
        rows = Rows(connection, database.kind).query("SELECT count(*) FROM forked")
    assert rows == [(processes * tasks + 5 * (tasks // 5),)]


@pytest.mark.parametrize(("processes", "tasks"), SIZES)
def test_a_redis_client_used_before_the_fork(redis_url: str, processes: int, tasks: int) -> None:
    """Plain answers, pipelines and blocking reads come back to whoever asked, in children and in the parent."""
    client = redis_client(Settings(redis_url=redis_url), block_s=1)
    rung: list[str] = []
    bell = Doorbell(client, rung.append)
    assert client.ping()

    def task(child: int, number: int) -> object:
        key, lane = f"forked:{child}", f"t-red/{child}-{number}"
        bell.ring([lane])
        came = bell.wait(lane, 1)
        _, seen = client.pipeline(transaction=False).set(key, f"{child} {number}").get(key).execute()
        return tuple(int(part) for part in seen.split()) if came and rung[-1] == lane else "no ring"

    children = Children(task)
    told = children.run(range(processes), tasks) + one_after_another(children, 100, tasks)

    assert told == ["done"] * (processes + 5)
    assert task(999, 1) == (999, 1)
    assert own_keys(client) == processes + 5 + 1
    client.close()


def own_keys(client: redis.Redis) -> int:
    """Return how many children and parents have written."""
    found: Any = client.keys("forked:*")
    return len(found)
