"""Both publishers against a real server: what they say to it, and what becomes of them when it fails."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.errors import IngressFull, IngressUnreachable, PublishError
from runtime_core.signing import verify
from sense_worker.publisher import Announcement, AsyncPublisher, Publisher
from sense_worker.wire import check_entry, parse_entry
from tests.certificates import self_signed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.redis_servers import RedisServer

KEY = "sense:acme:events"
ACL = ("resetkeys", f"~{KEY}", "resetchannels", "-@all", "+xadd", "+xlen")
FAST: dict[str, Any] = {"timeout_s": 0.3, "attempts": 1}


@pytest.fixture
def file(tmp_path: Path, redis_url: str) -> Path:
    return activation_file(tmp_path, redis_url)


def activation_file(folder: Path, url: str) -> Path:
    path = folder / "activation.json"
    names = {"tenant": "acme", "principal": "ana", "activation_id": "act_1", "pack_id": "git", "secret": "s3cret"}
    path.write_text(json.dumps({"v": 1, "redis_url": url} | names))
    path.chmod(0o600)
    return path


def blocking(file: Path, work: Callable[..., Any], **settings: Any) -> list[Any]:
    with Publisher(file, **settings) as publisher:
        return [step() for step in work(publisher)]


def on_a_loop(file: Path, work: Callable[..., Any], **settings: Any) -> list[Any]:
    async def run() -> list[Any]:
        async with AsyncPublisher(file, **settings) as publisher:
            return [await step() for step in work(publisher)]

    return asyncio.run(run())


both = pytest.mark.parametrize("run", [blocking, on_a_loop])


def entries(server: RedisServer) -> list[Any]:
    with server.client() as client:
        return [parse_entry(fields) for _, fields in client.xrange(KEY)]


@both
def test_it_publishes_what_verifies(run, file, redis_server):
    """Single and many announcements are entries of the stream that pass every check, in order."""
    found = run(
        file,
        lambda publisher: [
            lambda: publisher.publish("commit.created", {"x": "Zoë"}, subject="main", id="e-0"),
            lambda: publisher.publish_many([Announcement("a", {}, id=f"e-{number}") for number in range(1, 1200)]),
            publisher.flush,
        ],
    )
    read = entries(redis_server)
    for entry in read:
        check_entry(entry)
        assert verify([b"s3cret"], entry.c, entry.i, entry.t, entry.b, entry.s)
    assert [entry.message_id for entry in read] == [f"e-{number}" for number in range(1200)]
    with redis_server.client() as client:
        ids = [id.decode() for id, _ in client.xrange(KEY)]
    assert [found[0].stream_id, *(published.stream_id for published in found[1])] == ids
    assert found[2] == 0


@both
def test_an_acl_of_xadd_and_xlen_is_enough(run, file, redis_server):
    """Under a server account that may say XADD and XLEN on its key, it works and tries nothing else."""
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "act_1", "on", ">pw", *ACL)
        client.execute_command("ACL", "LOG", "RESET")
        url = f"unix://act_1:pw@{redis_server.socket}"
        run(file, lambda publisher: [lambda: publisher.publish("a", {})], redis_url=url)
        assert len(entries(redis_server)) == 1
        assert client.execute_command("ACL", "LOG") == []
        client.execute_command("ACL", "DELUSER", "act_1")


@both
@pytest.mark.parametrize(("password", "key"), [("wrong-one", KEY), ("pw", "sense:other:events")])
def test_an_account_that_may_not_write_is_told_so(run, file, redis_server, password, key):
    """A wrong password, or an account of another key, is a PublishError with the way out; the password is not shown."""
    acl = ("resetkeys", f"~{key}", "-@all", "+xadd", "+xlen")
    url = f"unix://act_1:{password}@{redis_server.socket}"
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "act_1", "on", ">pw", *acl)
        with pytest.raises(PublishError, match=r"does not let this activation write: (WRONGPASS|NOPERM)") as caught:
            run(file, lambda publisher: [lambda: publisher.publish("a", {})], redis_url=url)
        client.execute_command("ACL", "DELUSER", "act_1")
    assert password not in str(caught.value).split()
    assert entries(redis_server) == []


@both
def test_a_full_stream_is_refused_and_not_trimmed(run, file, redis_server):
    """At the bound nothing is added and nothing is taken away."""
    with pytest.raises(IngressFull, match="3 of 5 were accepted"):
        run(
            file,
            lambda publisher: [lambda: publisher.publish_many([Announcement("a", {"n": n}) for n in range(5)])],
            stream_limit=3,
        )
    assert [json.loads(entry.b)["data"]["n"] for entry in entries(redis_server)] == [0, 1, 2]


@both
def test_a_database_and_a_password_over_tcp(run, tmp_path, redis_servers):
    """Over TCP, with a password and a database of its own, the entry stands in that database."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    server = redis_servers("--port", str(port), "--bind", "127.0.0.1")
    with server.client() as client:
        client.config_set("requirepass", "p@ss/word")
        url = f"redis://:p%40ss%2Fword@127.0.0.1:{port}/3"
        run(activation_file(tmp_path, url), lambda publisher: [lambda: publisher.publish("a", {})])
    with server.client(db=3, password="p@ss/word") as client:
        assert client.xlen(KEY) == 1


@both
def test_a_server_that_is_gone_is_unreachable_and_one_that_came_back_is_used(run, tmp_path, redis_servers):
    """A restart between two announcements costs no attempt; a server that is gone is IngressUnreachable."""
    server = redis_servers()
    with pytest.raises(IngressUnreachable, match="does not answer"):
        run(
            activation_file(tmp_path, server.url),
            lambda publisher: [
                lambda: publisher.publish("a", {"n": 1}),
                lambda: later(server.restart, publisher.publish, "a", {"n": 2}),
                lambda: later(server.kill, publisher.publish, "a", {"n": 3}),
            ],
            **FAST,
        )
    server.start()
    assert [json.loads(entry.b)["data"]["n"] for entry in entries(server)] == [1, 2]


def later(first: Callable[[], None], then: Callable[..., Any], *arguments: Any) -> Any:
    first()
    return then(*arguments)


@both
def test_a_server_that_hangs_is_unreachable_in_time(run, tmp_path, redis_servers):
    """A server that takes the connection and says nothing is given up after the timeout."""
    server = redis_servers()
    server.pause()
    try:
        with pytest.raises(IngressUnreachable, match="timed out"):
            run(activation_file(tmp_path, server.url), lambda publisher: [lambda: publisher.publish("a", {})], **FAST)
    finally:
        server.resume()


@both
def test_what_a_dead_server_did_not_take_is_sent_to_the_next_one(run, tmp_path, redis_servers):
    """With a spool nothing is lost over an outage, and the order stays."""
    server = redis_servers()
    found = run(
        activation_file(tmp_path, server.url),
        lambda publisher: [
            lambda: publisher.publish("a", {"n": 1}),
            lambda: later(server.kill, publisher.publish, "a", {"n": 2}),
            lambda: publisher.publish("a", {"n": 3}),
            lambda: later(server.start, publisher.publish, "a", {"n": 4}),
        ],
        spool=tmp_path / "spool",
        **FAST,
    )
    assert [published.spooled for published in found] == [False, True, True, False]
    assert [json.loads(entry.b)["data"]["n"] for entry in entries(server)] == [1, 2, 3, 4]


@both
def test_a_key_of_another_kind_is_named(run, file, redis_server):
    """A string in the stream's place is a PublishError that says so."""
    with redis_server.client() as client:
        client.set(KEY, "x")
    with pytest.raises(PublishError, match="refused the entry: WRONGTYPE"):
        run(file, lambda publisher: [lambda: publisher.publish("a", {})])


@both
def test_something_else_at_the_address_is_unreachable(run, tmp_path):
    """A server of another protocol is IngressUnreachable, not a crash."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as accepted:
                accepted.recv(65_536)
                accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        talking = threading.Thread(target=answer, daemon=True)
        talking.start()
        file = activation_file(tmp_path, f"redis://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(IngressUnreachable, match="the answer is not of Redis"):
            run(file, lambda publisher: [lambda: publisher.publish("a", {})], attempts=1)
        talking.join()


@both
def test_tls_wants_a_certificate_it_can_trust(run, tmp_path, monkeypatch):
    """rediss:// refuses a server whose certificate nobody vouches for, and takes one that is vouched for."""
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            for _ in range(2):
                accepted = listening.accept()[0]
                try:
                    with context.wrap_socket(accepted, server_side=True) as opened:
                        for reply in (b":0\r\n", b"$3\r\n1-1\r\n"):
                            opened.recv(65_536)
                            opened.sendall(reply)
                except ssl.SSLError:
                    accepted.close()

        talking = threading.Thread(target=answer, daemon=True)
        talking.start()
        file = activation_file(tmp_path, f"rediss://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(IngressUnreachable, match=r"(?i)certificate.verify.failed"):
            run(file, lambda publisher: [lambda: publisher.publish("a", {})], attempts=1)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        (found,) = run(file, lambda publisher: [lambda: publisher.publish("a", {})], attempts=1)
        talking.join()
    assert found.stream_id == "1-1"


def test_threads_share_a_publisher(file, redis_server):
    """Threads that announce through one publisher each get their own answer."""
    with Publisher(file) as publisher, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: publisher.publish("a", {}, id=f"e-{n}"), range(200)))
    with redis_server.client() as client:
        read = {id.decode(): fields[b"i"].decode() for id, fields in client.xrange(KEY)}
    assert {str(published.stream_id): published.message_id for published in found} == read


def test_tasks_share_a_publisher(file, redis_server):
    """Tasks that announce through one async publisher each get their own answer."""

    async def run() -> list[Any]:
        async with AsyncPublisher(file) as publisher:
            return await asyncio.gather(*(publisher.publish("a", {}, id=f"e-{n}") for n in range(200)))

    found = asyncio.run(run())
    with redis_server.client() as client:
        read = {id.decode(): fields[b"i"].decode() for id, fields in client.xrange(KEY)}
    assert {published.stream_id: published.message_id for published in found} == read


def test_a_child_process_uses_a_connection_of_its_own(file, redis_server):
    """After a fork, parent and child announce without taking each other's answers."""
    with Publisher(file) as publisher:
        publisher.publish("a", {}, id="parent-0")
        mine = inode(publisher)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                answers = [publisher.publish("a", {}, id=f"child-{n}") for n in range(50)]
                code = 0 if len({answer.stream_id for answer in answers}) == 50 and inode(publisher) != mine else 2
            finally:
                os._exit(code)
        found = [publisher.publish("a", {}, id=f"parent-{n}") for n in range(1, 51)]
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert inode(publisher) == mine
    assert len({published.stream_id for published in found}) == 50
    ids = sorted(entry.message_id for entry in entries(redis_server))
    assert ids == sorted(f"{who}-{n}" for who in ("parent", "child") for n in range(51) if (who, n) != ("child", 50))


def inode(publisher: Publisher) -> int:
    """Tell which connection it holds."""
    opened = publisher._connection._socket
    assert opened is not None
    return os.fstat(opened.fileno()).st_ino


def test_a_late_answer_is_not_taken_for_another(tmp_path, redis_servers):
    """After a timeout the connection is given up: the answer that comes late belongs to nobody."""
    server = redis_servers()
    with Publisher(activation_file(tmp_path, server.url), **FAST) as publisher:
        publisher.publish("a", {}, id="before")
        server.pause()
        with pytest.raises(IngressUnreachable):
            publisher.publish("a", {}, id="late")
        assert publisher._connection._socket is None
        server.resume()
        found = publisher.publish("a", {}, id="after")
    with server.client() as client:
        assert client.xrange(KEY, found.stream_id, found.stream_id)[0][1][b"i"] == b"after"


def test_a_cancelled_task_leaves_no_answer_behind(tmp_path, redis_servers):
    """When a task is cancelled while the server hangs, the next announcement gets its own answer, not the late one."""
    server = redis_servers()

    async def run() -> Any:
        async with AsyncPublisher(activation_file(tmp_path, server.url)) as publisher:
            await publisher.publish("a", {}, id="before")
            server.pause()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(publisher.publish("a", {}, id="cancelled"), 0.1)
            assert publisher._connection._streams is None
            server.resume()
            return await publisher.publish("a", {}, id="after")

    found = asyncio.run(run())
    with server.client() as client:
        assert client.xrange(KEY, found.stream_id, found.stream_id)[0][1][b"i"] == b"after"


def test_a_cancelled_task_lets_go_of_the_spool(tmp_path, redis_servers):
    """When a task is cancelled while it sends what is kept, another process can send it at once."""
    server = redis_servers()
    file = activation_file(tmp_path, server.url)

    async def run() -> int:
        async with AsyncPublisher(file, spool=tmp_path / "spool", timeout_s=30, attempts=1) as publisher:
            server.kill()
            assert (await publisher.publish("a", {}, id="kept")).spooled
            server.start()
            server.pause()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(publisher.flush(), 0.2)
            server.resume()
            with Publisher(file, spool=tmp_path / "spool") as other:
                return other.flush()

    assert asyncio.run(run()) == 1
    assert [entry.message_id for entry in entries(server)] == ["kept"]
