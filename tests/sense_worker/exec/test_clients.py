"""The clients of Execute against a real Redis and a worker played by the test: the rules that both share."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis

from runtime_core.errors import ExecRefused, ExecTimeout, ExecUnreachable, IngressFull, NoWorker, UsageError
from sense_worker.client import AsyncHandle, AsyncRuntimeClient, Handle, HeldSession, RuntimeClient
from sense_worker.exec import asking
from sense_worker.exec.request import REQUEST_LIMIT, CancelRequest, parse_request
from sense_worker.exec.wire import Place, open_request, seal_reply
from sense_worker.intake.health import EXEC_HEALTH_KEY
from sense_worker.session_file import SessionFile
from sense_worker.wire import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator

HELD = HeldSession("t-red", "ses-1", "secret-of-ana")
STREAM = "sense:t-red:exec"


class Played:
    """A worker's part: reads requests off the stream and answers them."""

    def __init__(self, url: str) -> None:
        self.redis = redis.Redis.from_url(url, protocol=2)

    def entries(self) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """Return what is on the stream."""
        found: Any = self.redis.xrange(STREAM)
        return list(found)

    def opened(self, fields: dict[bytes, bytes], secret: str = HELD.secret) -> Any:
        """Return the request in an entry."""
        place = Place.of(fields[b"c"], fields[b"i"], fields[b"t"])
        return parse_request(open_request(secret.encode(), place, fields[b"b"]))

    def answer(self, fields: dict[bytes, bytes], envelope: dict[str, Any], secret: str = HELD.secret) -> None:
        """Push a reply."""
        place = Place.of(fields[b"c"], fields[b"i"], fields[b"t"])
        sealed = seal_reply(secret.encode(), place, json.dumps(envelope).encode())
        self.redis.rpush(f"sense:t-red:reply:{fields[b'i'].decode()}", sealed)

    def reads(self) -> None:
        """Say that a reader is alive."""
        seconds, _ = self.redis.time()
        self.redis.hset(EXEC_HEALTH_KEY, "reader", json.dumps({"at": seconds * 1_000_000}))


@pytest.fixture
def played(redis_url) -> Iterator[Played]:
    """A worker played by the test, on an empty server."""
    made = Played(redis_url)
    yield made
    made.redis.close()


@pytest.fixture
def client(redis_url) -> Iterator[RuntimeClient]:
    """Ana's client."""
    with RuntimeClient(HELD, redis_url) as made:
        yield made


OK = {"ok": True, "pack_id": "git", "verb_key": "git.log", "result": 1}


def test_both_clients_have_one_face():
    """Every public name of one client is one of the other, with the same arguments and a docstring."""
    for one, other in ((RuntimeClient, AsyncRuntimeClient), (Handle, AsyncHandle)):
        names = [name for name in vars(one) if not name.startswith("_")]
        assert names == [name for name in vars(other) if not name.startswith("_")]
        for name in names:
            first, second = inspect.getattr_static(one, name), inspect.getattr_static(other, name)
            assert first.__doc__
            assert second.__doc__
            if inspect.isfunction(first):
                assert inspect.signature(first).parameters == inspect.signature(second).parameters
                assert inspect.iscoroutinefunction(second)


def test_a_client_loads_neither_ledger_nor_queue():
    """Importing the client leaves SQLAlchemy and Celery alone."""
    program = "import sys, sense_worker.client; print({'sqlalchemy', 'celery', 'kombu'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_what_is_sent_is_what_was_asked(client, played):
    """The options of a call arrive in the sealed request, and nothing of them is in clear."""
    handle = client.submit(
        "git", "git.log", {"limit": 3}, project="apollo", timeout_s=1.5, idempotency_key="k", lane="bulk"
    )
    ((_, fields),) = played.entries()
    request = played.opened(fields)
    assert request.model_dump() == {
        "v": 1,
        "session_id": "ses-1",
        "message_id": handle.message_id,
        "project_id": "apollo",
        "timeout_ms": 1500,
        "idempotency_key": "k",
        "lane": "bulk",
        "envelope": {"pack_id": "git", "verb_key": "git.log", "args": {"limit": 3}},
    }
    assert b"git.log" not in b"".join(fields.values())
    handle.cancel(force=True)
    cancel = played.opened(played.entries()[1][1])
    assert isinstance(cancel, CancelRequest)
    assert (cancel.cancel, cancel.force) == (handle.message_id, True)


def test_the_projects_of_a_client_and_of_a_call(redis_url, played):
    """A call's project goes before the client's."""
    with RuntimeClient(HELD, redis_url, project="apollo") as client:
        client.submit("git", "git.log")
        client.submit("git", "git.log", project="gemini")
    assert [played.opened(fields).project_id for _, fields in played.entries()] == ["apollo", "gemini"]


def test_a_request_is_followed_from_the_stream_to_its_answer(client, played):
    """Status is queued, accepted, done; what is answered is opened, results that nest deeply included."""
    handle = client.submit("git", "git.log")
    ((entry_id, fields),) = played.entries()
    assert handle.status() == "queued"
    played.redis.xdel(STREAM, entry_id)
    assert handle.status() == "accepted"
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    played.answer(fields, OK | {"result": deep})
    assert handle.status() == "done"
    assert [handle.result().result for _ in range(2)] == [deep, deep]


def test_an_answer_of_somebody_else_is_refused(client, played):
    """A reply under another secret, or sealed for another moment or message, raises ExecRefused."""
    handles = [client.submit("git", "git.log") for _ in range(3)]
    first, second, third = (fields for _, fields in played.entries())
    played.answer(first, OK, "another secret")
    played.answer({**first, b"i": second[b"i"]}, OK)
    place = Place.of(first[b"c"], first[b"i"], first[b"t"])
    played.redis.rpush(f"sense:t-red:reply:{third[b'i'].decode()}", seal_reply(HELD.secret.encode(), place, b"{}"))
    for handle in handles:
        with pytest.raises(ExecRefused, match="not sealed for this request"):
            handle.result()


def test_only_what_no_reader_has_is_taken_back(client, played):
    """Without a live reader an unread request is taken back; one that a reader has is not, though it is silent."""
    unread = client.submit("git", "git.log", timeout_s=0.05)
    with pytest.raises(NoWorker, match="no worker reads requests"):
        unread.result()
    assert played.entries() == []
    played.redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    read = client.submit("git", "git.log", timeout_s=0.05)
    played.redis.xreadgroup(GROUP, "one that died", {STREAM: ">"})
    with pytest.raises(ExecTimeout):
        read.result()
    assert len(played.entries()) == 1
    played.reads()
    late = client.submit("git", "git.log", timeout_s=0.05)
    with pytest.raises(ExecTimeout, match=r"no answer within 0\.05 s"):
        late.result()
    assert len(played.entries()) == 2


def test_a_full_stream_takes_no_more(client, played, monkeypatch):
    """At the bound a request is taken off again and IngressFull is raised; the others stay."""
    monkeypatch.setattr(asking, "STREAM_LIMIT", 2)
    for _ in range(2):
        client.submit("git", "git.log")
    with pytest.raises(IngressFull, match="holds 2 requests"):
        client.submit("git", "git.log")
    assert len(played.entries()) == 2


def test_a_server_that_does_not_let_in_is_told_so(redis_servers):
    """A server that wants a password is told from one that is away."""
    server = redis_servers()
    with server.client() as made:
        made.config_set("requirepass", "right")
    with RuntimeClient(HELD, server.url) as client, pytest.raises(ExecUnreachable, match="does not let us in"):
        client.submit("git", "git.log")


def test_a_server_without_memory_is_full(redis_servers):
    """A server at its memory limit is a bound like the stream's own."""
    server = redis_servers("--maxmemory", "1")
    with RuntimeClient(HELD, server.url) as client, pytest.raises(IngressFull, match="memory limit"):
        client.submit("git", "git.log")


def test_no_server_is_unreachable(tmp_path):
    """Where nobody listens a call fails at once, in both clients; a URL that is none is refused, not repeated."""
    url = f"unix://{tmp_path}/none"
    with RuntimeClient(HELD, url) as client, pytest.raises(ExecUnreachable, match="does not answer"):
        client.exec("git", "git.log")

    async def asked():
        async with AsyncRuntimeClient(HELD, url) as client:
            await client.exec("git", "git.log")

    with pytest.raises(ExecUnreachable):
        asyncio.run(asked())
    with pytest.raises(UsageError) as caught:
        RuntimeClient(HELD, "http://ana:pass-word@nowhere")
    assert "pass-word" not in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"timeout_s": 0}, {"timeout_s": -1}, {"timeout_s": 86_401}, {"lane": "fast"}, {"idempotency_key": "é"}]
)
def test_options_that_are_none_are_refused(client, played, options):
    """Nothing is sent under options that the door would refuse."""
    with pytest.raises(UsageError):
        client.submit("git", "git.log", **options)
    assert played.entries() == []


@pytest.mark.parametrize(
    ("said", "place"),
    [(("git.log", {"limit": 3}), "verb_key"), ((None, "git.log"), "pack_id"), (("a", "b", [1]), "args")],
)
def test_a_call_with_its_arguments_mixed_up_is_told_here(client, played, said, place):
    """What is no pack, command or args is named before anything is sent."""
    with pytest.raises(UsageError, match=f"^{place}: must be "):
        client.submit(*said)
    assert played.entries() == []


def test_a_handle_names_its_request(client, played):
    """What is printed of a queued command is its message id."""
    handle = client.submit("git", "git.log")
    assert repr(handle).endswith(f"Handle({handle.message_id!r})")


def test_args_at_the_limit_are_sent(client, played):
    """Args up to the door's limit are sent, larger ones are refused here: the door could not answer."""
    size = REQUEST_LIMIT - 400
    client.submit("git", "git.log", {"x": "x" * size})
    with pytest.raises(UsageError, match=f"limit {REQUEST_LIMIT}"):
        client.submit("git", "git.log", {"x": "x" * REQUEST_LIMIT})
    for wrong in (float("inf"), object(), "\ud800"):
        with pytest.raises(UsageError, match="cannot be written as JSON"):
            client.submit("git", "git.log", {"x": wrong})
    assert len(played.entries()) == 1


def test_a_rotated_file_is_taken_up(tmp_path, redis_url, played, monkeypatch):
    """What is sent after a rotation is under the new secret; what was sent before is opened under its own."""
    place = tmp_path / "ana.session"
    SessionFile("t-red", "ana", "ses-1", "old").write(place)
    monkeypatch.setenv("SENSE_REDIS_URL", redis_url)
    with RuntimeClient.from_session_file(place) as client:
        before = client.submit("git", "git.log")
        SessionFile("t-red", "ana", "ses-1", "new").write(place)
        after = client.submit("git", "git.log")
        SessionFile("t-red", "eve", "ses-2", "another's").write(place)
        client.submit("git", "git.log")
        first, second, third = (fields for _, fields in played.entries())
        assert [played.opened(first, "old").v, played.opened(second, "new").v, played.opened(third, "new").v] == [1] * 3
        played.answer(first, OK, "old")
        played.answer(second, OK, "new")
        assert (before.result().ok, after.result().ok) == (True, True)
    with pytest.raises(UsageError):
        RuntimeClient.from_session_file(tmp_path / "none", redis_url)


def test_one_pool_serves_many_sessions(client, played):
    """A client under another session signs as that one, over the same connections."""
    other = client.under(HeldSession("t-red", "ses-2", "secret-of-bob"))
    other.submit("git", "git.log")
    client.submit("git", "git.log")
    assert [fields[b"c"] for _, fields in played.entries()] == [b"ses-2", b"ses-1"]


def test_a_waiting_client_takes_the_answer_when_it_comes(client, played):
    """Who waits is answered at once, and not at the end of a pause."""
    handle = client.submit("git", "git.log", timeout_s=60)
    ((_, fields),) = played.entries()
    answers = threading.Timer(0.1, played.answer, (fields, OK))
    answers.start()
    assert handle.result().result == 1
    answers.join()
