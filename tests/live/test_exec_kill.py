"""No request is lost and no write runs twice, whatever of the exec worker is killed when (issue: what must hold)."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from runtime_core.errors import INTERRUPTED, ExecTimeout
from sense_worker import nursery
from sense_worker.audit_check import check_audit
from sense_worker.storage.engine import Database
from tests.live.exec_worlds import TEXT, ExecWorld
from tests.live.worlds import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sense_worker.client import Handle, RuntimeClient
    from tests.live.worlds import Worker

THREADS = 4
UNKNOWN = INTERRUPTED.text()
READER, POOL, MAIN = "reader", "pool", "main"


class KillWorld(ExecWorld):
    """`tool.add` appends its text to `ran`, and to `ended` 0.3 s later: most kills find one in between."""

    def _tool(self) -> tuple[dict[str, Any], dict[str, Any]]:
        surface, policy = super()._tool()
        self.ended = self.home / "ended"
        self.ended.touch()
        script = f'printf "%s\\n" "$1" >> {self.ran}; sleep 0.3; printf "%s\\n" "$1" >> {self.ended}'
        surface["verbs"]["tool.add"] = {"summary": "add", "cli": ["-c", script, "add", "{text}"], "args": TEXT}
        policy["verbs"]["tool.add"] = {"operation": "write", "privacy": {"land": "personal"}}
        return surface, policy

    def states_of_requests(self) -> Counter[str]:
        """Return how many requests stand in each state."""
        return Counter(dict(self.asked("SELECT state, count(*) FROM sense_exec GROUP BY state")))

    def lines_of(self, action: str) -> dict[str, list[dict[str, Any]]]:
        """Return the audit's lines of an action, by request."""
        found: dict[str, list[dict[str, Any]]] = {}
        for text in self.settings.audit_file.read_text().splitlines():
            with suppress(ValueError):  # one that a kill tore
                line = json.loads(text)
                if line["action"] == action:
                    found.setdefault(line["subject"], []).append(line)
        return found

    def end_leases(self) -> None:
        """Let the time pass that leases of the dead last; call it when no worker lives."""
        requests = Database(self.settings.requests_url)
        with requests.write() as connection:
            connection.exec_driver_sql("UPDATE sense_exec SET due_at = 0 WHERE state = 'running'")
        requests.dispose()


class Flow:
    """Clients in threads that ask for reads and writes, each by its own number, and hear what they can meanwhile."""

    def __init__(self, client: RuntimeClient, count: int) -> None:
        self._client = client
        self._count = count
        self._allowed = threading.Semaphore(0)
        self.handles: dict[int, Handle] = {}
        self._threads = ThreadPoolExecutor(THREADS)
        self._ends = [self._threads.submit(self._ask, first) for first in range(THREADS)]

    def allow(self, count: int) -> None:
        """Let so many more requests be asked for."""
        self._allowed.release(count)

    def join(self) -> None:
        """Let all be asked for, and wait until they are; raises what a client met."""
        self.allow(self._count)
        for end in self._ends:
            end.result(timeout=120)
        self._threads.shutdown()

    def _ask(self, first: int) -> None:
        for number in range(first, self._count, THREADS):
            self._allowed.acquire()
            verb = "tool.add" if is_write(number) else "tool.say"
            lane: Any = "bulk" if number % 5 == 0 else "interactive"
            handle = self._client.submit("tool", verb, {"text": f"n-{number}"}, timeout_s=600, lane=lane)
            self.handles[number] = handle
            with suppress(ExecTimeout):
                handle.result(wait_s=0.05)  # requests come while workers die, instead of waiting for them


def is_write(number: int) -> bool:
    return number // THREADS % 2 == 0


class Row(NamedTuple):
    """A settled request, as its row tells it."""

    id: bytes
    write: bool
    ok: bool
    error: str | None


def processes_of(worker: Worker) -> dict[str, list[int]]:
    """Return the reader with the sweep, and the children of the pool of an exec worker, by what they are."""
    found: dict[str, list[int]] = {READER: [], POOL: []}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            parent, group = (entry / "stat").read_text().rpartition(")")[2].split()[1:3]
            if int(group) != worker.process.pid:
                continue
            name = (entry / "comm").read_text().strip()
            if name == nursery.CHILD_NAME:
                found[READER].append(int(entry.name))
            elif int(parent) == worker.process.pid and name != nursery.NAME:
                found[POOL].append(int(entry.name))
    return found


def kill_one(world: KillWorld, worker: Worker, what: str, wait: Callable[[], None]) -> Worker:
    """Kill one part of the worker by SIGKILL; all of it for MAIN, and then `wait` and start another. Returns it."""
    if what == MAIN:
        worker.kill()
        wait()
        return world.commands()
    until(lambda: processes_of(worker)[what], what=f"a {what} to kill")
    for pid in processes_of(worker)[what]:
        with suppress(ProcessLookupError):
            worker.kill_process(pid)
    return worker


def play(world: KillWorld, count: int, kills: list[str], seed: int, wait: Callable[[], None]) -> Flow:
    """Let requests flow while parts of the worker are killed at moments of `seed`; ends when all have settled."""
    moments, pause = random.Random(seed), threading.Event()
    worker = world.commands()
    with world.runtime() as client:
        flow = Flow(client, count)
        for what in kills:
            ran = len(world.runs())
            flow.allow(count // (len(kills) + 1))
            until(lambda ran=ran: len(world.runs()) > ran, 120, "a write runs")  # type: ignore[misc]
            pause.wait(moments.random() * 0.3)
            worker = kill_one(world, worker, what, wait)
        flow.join()
        settled = lambda: world.states_of_requests() == {"done": count}  # noqa: E731
        until(settled, 180, "every request is settled")
    return flow


def assert_nothing_lost_and_no_write_twice(world: KillWorld, flow: Flow, count: int) -> None:
    columns = "message_id, id, write, ok, error"
    rows = {row[0]: Row(*row[1:]) for row in world.asked(f"SELECT {columns} FROM sense_exec")}
    assert {handle.message_id for handle in flow.handles.values()} == set(rows)
    assert len(rows) == len(flow.handles) == count
    ran = Counter(world.runs())
    assert [text for text, times in ran.items() if times > 1] == []
    begun, ended = world.lines_of("exec.begin"), world.lines_of("exec.end")
    for number, handle in flow.handles.items():
        row = rows[handle.message_id]
        request, text = bytes(row.id).hex(), f"n-{number}"
        if not is_write(number):
            assert (bool(row.ok), row.error, text in ran) == (True, None, False)
            continue
        assert row.error in (None, UNKNOWN)
        assert bool(row.ok) == (row.error is None)
        if row.ok:
            assert text in ran
            assert [line["ok"] for line in ended[request]] == [True]
        if text in ran:
            assert request in begun, "a write ran without the line of before it"
        if request in begun and not any(line["ok"] for line in ended.get(request, [])):
            assert row.error == UNKNOWN
    with world.runtime() as client:
        assert_answers(client, flow, rows)
    assert check_audit(world.settings).ok


def assert_answers(client: RuntimeClient, flow: Flow, rows: dict[str, Row]) -> None:
    """What a client hears is what the row says. An answer that died with its process stays in the row alone."""
    answered = 0
    for number, handle in flow.handles.items():
        row = rows[handle.message_id]
        with suppress(ExecTimeout):
            envelope = handle.result(wait_s=0)
            answered += 1
            assert (envelope.ok, envelope.error) == (bool(row.ok), row.error)
            if not is_write(number):
                assert envelope.result == {"stdout": f"n-{number}", "stderr": ""}
    assert answered >= len(rows) * 9 // 10


@pytest.fixture
def world(tmp_path: Path, redis_url: str, sqlite_url: str) -> Iterator[KillWorld]:
    """A world on SQLite."""
    opened = Database(sqlite_url)
    made = KillWorld(tmp_path, redis_url, opened)
    yield made
    made.close()
    opened.dispose()


@pytest.mark.case("C36")
@pytest.mark.timeout(400)
def test_kills_lose_no_request_and_run_no_write_twice(world):
    """The reader, the pool and all of an exec worker are killed while 120 requests of four clients are under way."""
    flow = play(world, 120, [POOL, READER, MAIN], 7, world.end_leases)
    assert_nothing_lost_and_no_write_twice(world, flow, 120)


@pytest.mark.case("C36")
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_twenty_kills_with_the_real_leases(tmp_path, redis_url, database):
    """The same with a thousand requests, twenty kills and the leases' own time, on both databases."""
    world = KillWorld(tmp_path, redis_url, database)
    try:
        kills = random.Random(11).choices([READER, POOL, MAIN], k=20)
        flow = play(world, 1_000, kills, 11, lambda: None)
        assert_nothing_lost_and_no_write_twice(world, flow, 1_000)
    finally:
        world.close()


@pytest.mark.case("C37")
@pytest.mark.timeout(300)
def test_an_orderly_stop_loses_nothing_and_tells_no_success_as_failed(world):
    """SIGTERM with writes running and more queued: what runs ends well, what waits is run once by the next worker."""
    worker = world.commands(SENSE_EXEC_WIDTH="2")
    with world.runtime() as client:
        texts = [f"n-{number}" for number in range(30)]
        handles = [client.submit("tool", "tool.add", {"text": text}, timeout_s=600) for text in texts]
        until(lambda: len(world.runs()) > len(world.ended.read_text().split()), what="writes run")

        assert worker.stop(60) == 0

        left = world.states_of_requests()
        with world.client() as redis:
            unread = redis.xlen("sense:t-red:exec")
        assert (left["running"], left["pending"] + unread > 0) == (0, True)
        assert sorted(world.runs()) == sorted(world.ended.read_text().split())
        world.commands(SENSE_EXEC_WIDTH="8")
        assert {handle.result(wait_s=120).error for handle in handles} == {None}
    assert sorted(world.runs()) == sorted(texts)
    assert len(world.lines_of("exec.begin")) == len(world.lines_of("exec.end")) == len(texts)
