"""The clients of Execute against a real exec worker, a real Redis and a real database (DESIGN §8)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runtime_core.envelope import ResultEnvelope
from runtime_core.errors import CANCELLED, ExecRefused, ExecTimeout, ExecUnreachable, NoWorker, UsageError
from sense_worker.client import HeldSession, RuntimeClient
from sense_worker.session_file import SessionFile
from tests.live.exec_worlds import ExecWorld, quick_on_one_kind
from tests.live.worlds import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sense_worker.storage.engine import Database

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parents[2]


@contextmanager
def a_world(folder: Path, url: str, database: Database, **env: str) -> Iterator[ExecWorld]:
    world = ExecWorld(folder, url, database, **env)
    try:
        yield world
    finally:
        world.close()


database_url = quick_on_one_kind


@pytest.fixture
def world(tmp_path, redis_url, database) -> Iterator[ExecWorld]:
    """A world without a worker yet."""
    with a_world(tmp_path, redis_url, database) as made:
        yield made


def said(text: str) -> ResultEnvelope:
    return ResultEnvelope(True, "tool", "tool.say", {"stdout": text, "stderr": ""})


@pytest.mark.long
def test_sixteen_threads_share_a_client(world):
    """Requests of many threads at once are each answered with their own result."""
    world.commands()
    with world.runtime() as client, ThreadPoolExecutor(16) as pool:
        texts = [f"n-{n}" for n in range(64)]
        found = list(pool.map(lambda text: client.exec("tool", "tool.say", {"text": text}), texts))
    assert found == [said(text) for text in texts]


@pytest.mark.long
def test_fifty_tasks_share_an_async_client(world):
    """Fifty calls awaited together are each answered with their own result."""
    world.commands()

    async def gathered():
        async with world.async_runtime() as client:
            texts = [f"n-{n}" for n in range(50)]
            return await asyncio.gather(*(client.exec("tool", "tool.say", {"text": text}) for text in texts))

    assert asyncio.run(gathered()) == [said(f"n-{n}") for n in range(50)]


def test_without_a_worker_a_request_is_taken_back_and_with_one_it_is_answered(world):
    """Where nobody reads, exec raises NoWorker and leaves nothing behind for a worker that starts later.

    With one, exec returns the result envelope; submit's handle tells where it is and gives it as often as asked.
    """
    with world.runtime() as client:
        with pytest.raises(NoWorker):
            client.exec("tool", "tool.put")
        with pytest.raises(NoWorker):
            client.exec("tool", "tool.put", timeout_s=0.2)
        handle = client.submit("tool", "tool.put", timeout_s=120)
        assert handle.status() == "queued"
        with pytest.raises(ExecTimeout):
            handle.result(wait_s=0.05)  # asked in passing, it stays
        world.commands()
        assert handle.result().ok
        assert_answered(client)
    assert world.runs() == ["put"]


def assert_answered(client: RuntimeClient) -> None:
    assert client.exec("tool", "tool.say", {"text": "größe 🦉"}) == said("größe 🦉")
    assert client.exec("tool", "tool.fail").error == "exited 3"
    handle = client.submit("tool", "tool.say", {"text": "again"})
    assert handle.result() == said("again")
    assert handle.status() == "done"
    assert handle.result(wait_s=0) == said("again")
    denied = client.exec("tool", "tool.none")
    assert (denied.ok, denied.error) == (False, "unknown command: tool.none")
    big = client.exec("tool", "tool.big")
    assert (big.ok, len(big.result["stdout"])) == (True, 900_000)
    over = client.exec("tool", "tool.bigger")
    assert (over.ok, over.result, over.error) == (False, None, "output over 1048576 bytes")


@pytest.mark.long
def test_an_answer_that_is_late_can_still_be_had(world):
    """Result raises ExecTimeout when the request's time is over, and the command is ended by its deadline."""
    world.commands()
    with world.runtime() as client:
        handle = client.submit("tool", "tool.wait", timeout_s=8)
        until(lambda: world.runs() == ["wait"])
        assert handle.status() == "accepted"
        with pytest.raises(ExecTimeout, match=r"within 0\.1 s"):
            handle.result(wait_s=0.1)
        ended = handle.result(wait_s=20)
    assert (ended.ok, (ended.error or "").startswith("timed out after")) == (False, True)


def test_cancel_before_the_start_and_of_a_running_read(world):
    """What waits is cancelled and never runs, a running read is killed, a running write only by force."""
    world.commands(SENSE_EXEC_WIDTH="1")
    with world.runtime() as client:
        running, write = (client.submit("tool", f"tool.{verb}") for verb in ("wait", "hold"))
        until(lambda: sorted(world.runs()) == ["hold", "wait"])
        waiting = client.submit("tool", "tool.put")  # behind the write: one runs at a time
        until(lambda: waiting.status() == "accepted")
        waiting.cancel()
        cancelled = waiting.result()
        assert cancelled == ResultEnvelope(False, "tool", "tool.put", None, CANCELLED)
        running.cancel()
        assert running.result().error == CANCELLED
        write.cancel()
        with pytest.raises(ExecTimeout):
            write.result(wait_s=1)
        write.cancel(force=True)
        assert not write.result().ok
    assert sorted(world.runs()) == ["hold", "wait"]


@pytest.mark.long
def test_a_cancelled_request_answers_those_under_its_key(world):
    """Two requests under one idempotency key are one: cancelled before it started, both are answered."""
    world.commands(SENSE_EXEC_WIDTH="1")
    with world.runtime() as client:
        running = client.submit("tool", "tool.wait")
        until(lambda: world.runs() == ["wait"])
        first, second = (client.submit("tool", "tool.put", idempotency_key="k") for _ in range(2))
        until(lambda: second.status() == "accepted")
        first.cancel()
        assert [one.result(wait_s=20).error for one in (first, second)] == [CANCELLED] * 2
        running.cancel()
    assert world.runs() == ["wait"]


@pytest.mark.long
def test_one_key_is_one_request(world):
    """Requests under one idempotency key run once and have one result; another request under it is refused."""
    world.commands()
    with world.runtime() as client:
        handles = [client.submit("tool", "tool.put", idempotency_key="k-1") for _ in range(5)]
        assert {handle.result().ok for handle in handles} == {True}
        with pytest.raises(ExecRefused, match="refused: conflict"):
            client.exec("tool", "tool.hold", idempotency_key="k-1")
    assert world.runs() == ["put"]


@pytest.mark.long
def test_a_request_that_fails_its_door_is_told_its_word(world):
    """A refused envelope raises ExecRefused with its word; what cannot be a request is refused before it is sent."""
    world.commands()
    with world.runtime() as client:
        for pack_id, word in (("NO ID", "malformed"), ("../tool", "malformed")):
            with pytest.raises(ExecRefused, match=f"refused: {word}"):
                client.exec(pack_id, "tool.say")
        wrong = ({"text": "x" * 300_000}, {"text": float("nan")}, {"text": "\ud800"}, {"text": object()})
        for args in wrong:
            with pytest.raises(UsageError):
                client.submit("tool", "tool.say", args)
        for options in ({"timeout_s": 0}, {"timeout_s": 1e9}, {"lane": "fast"}, {"idempotency_key": "a b"}):
            with pytest.raises(UsageError):
                client.submit("tool", "tool.say", **options)
    stranger = HeldSession("t-red", "ses-none", "secret-of-nobody")
    with RuntimeClient(stranger, str(world.settings.redis_url)) as client, pytest.raises(ExecTimeout):
        client.exec("tool", "tool.say", {"text": "x"}, timeout_s=1)
    assert world.asked("SELECT count(*) FROM sense_exec") == [(0,)]


@pytest.mark.long
def test_a_result_is_kept_for_a_settable_time(tmp_path, redis_url, database):
    """After SENSE_EXEC_RESULT_S a result is gone from Redis, and is not had any more."""
    with a_world(tmp_path, redis_url, database, SENSE_EXEC_RESULT_S="1") as world, world.client() as seen:
        world.commands()
        with world.runtime() as client:
            handle = client.submit("tool", "tool.say", {"text": "x"}, timeout_s=3)
            assert handle.result().ok
            assert 0 < seen.pttl(f"sense:t-red:reply:{handle.message_id}") <= 1_000
            until(lambda: not seen.exists(f"sense:t-red:reply:{handle.message_id}"))
            assert handle.status() == "accepted"
            with pytest.raises(ExecTimeout):
                handle.result(wait_s=0.1)


@pytest.mark.long
def test_redis_may_go_and_come_back(tmp_path, redis_servers, database):
    """Who waits goes on when Redis is back; without it a new request fails at once, and none is lost."""
    server = redis_servers()
    with a_world(tmp_path, server.url, database) as world:
        world.commands()
        with world.runtime() as client, ThreadPoolExecutor(1) as pool:
            handle = client.submit("tool", "tool.wait", timeout_s=60)
            until(lambda: world.runs() == ["wait"])
            waiting = pool.submit(handle.result)
            server.kill()
            with pytest.raises(ExecUnreachable):
                client.submit("tool", "tool.put")
            server.start()
            assert client.exec("tool", "tool.say", {"text": "back"}, timeout_s=60) == said("back")
            handle.cancel()
            assert waiting.result(timeout=60).error == CANCELLED


@pytest.mark.long
def test_a_rotated_session_file_is_taken_up(world, tmp_path):
    """A client from a session file signs with the file's newest secret; one that was answered late is still opened."""
    world.commands()
    place = tmp_path / "ana.session"
    SessionFile("t-red", "ana", world.held.session_id, world.held.secret).write(place)
    with RuntimeClient.from_session_file(place, str(world.settings.redis_url)) as client:
        assert client.exec("tool", "tool.say", {"text": "old"}).ok
        under_old = client.submit("tool", "tool.wait")
        until(lambda: world.runs() == ["wait"])
        world.rotate("a new secret")
        SessionFile("t-red", "ana", world.held.session_id, "a new secret").write(place)
        assert client.exec("tool", "tool.say", {"text": "new"}) == said("new")
        under_old.cancel()
        with pytest.raises(ExecTimeout):
            under_old.result(wait_s=1)  # its cancel was signed with the secret that is dead
        handle = client.submit("tool", "tool.say", {"text": "new"})
        assert handle.result() == said("new")
    assert os.stat(place).st_mode & 0o777 == 0o600  # noqa: PTH116


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_node_example_runs_a_command(world, tmp_path):
    """exec.mjs prints the result envelope and exits by it, with Node's own modules only."""
    world.commands()
    place = tmp_path / "ana.session"
    SessionFile("t-red", "ana", world.held.session_id, world.held.secret).write(place)

    def node(*words: str) -> tuple[int, str]:
        names = {"SENSE_SESSION_FILE": str(place), "SENSE_REDIS_URL": str(world.settings.redis_url)}
        argv = ["node", str(ROOT / "examples/exec/exec.mjs"), *words]
        environment = {"PATH": os.environ["PATH"]} | names
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout or done.stderr

    code, printed = node("tool", "tool.say", '{"text": "größe 🦉"}')
    assert (code, json.loads(printed)) == (0, said("größe 🦉").plain())
    assert node("tool", "tool.none")[0] == 1
    assert "refused: malformed" in node("NO", "tool.say")[1]
    assert "usage: exec.mjs" in node()[1]
    code, printed = node("tool", "tool.wait", "{}", "1")
    assert (code, json.loads(printed)["ok"]) == (1, False)


@pytest.mark.long
def test_an_abandoned_call_leaves_no_stuck_connection(world):
    """Calls whose tasks are cancelled anywhere in their way leave a client that answers the next ones rightly."""
    world.commands()

    async def hammered():
        async with world.async_runtime(connections=4) as client:
            for n in range(60):
                call = asyncio.ensure_future(client.exec("tool", "tool.say", {"text": f"{n}"}))
                await asyncio.sleep(n % 6 * 0.0004)
                call.cancel()
                await asyncio.wait([call])
            found = [await client.exec("tool", "tool.say", {"text": f"n-{n}"}) for n in range(8)]
            return found, await asyncio.gather(*(client.exec("tool", "tool.say", {"text": f"{n}"}) for n in range(4)))

    alone, together = asyncio.run(hammered())
    assert alone == [said(f"n-{n}") for n in range(8)]
    assert together == [said(f"{n}") for n in range(4)]


@pytest.mark.long
def test_an_abandoned_call_is_cancelled_where_that_is_asked_for(world):
    """With cancel_abandoned a running read is ended when its caller goes; without, it goes on."""
    world.commands()

    async def abandoned(*, cancel: bool):
        async with world.async_runtime(cancel_abandoned=cancel) as client:
            handle = await client.submit("tool", "tool.wait", timeout_s=60)
            waiting = asyncio.ensure_future(handle.result())
            await asyncio.to_thread(until, lambda: len(world.runs()) == 1 + cancel)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            try:
                return (await handle.result(wait_s=30 if cancel else 1)).error
            except ExecTimeout:
                return None
            finally:
                await handle.cancel()

    assert asyncio.run(abandoned(cancel=False)) is None
    assert asyncio.run(abandoned(cancel=True)) == CANCELLED
