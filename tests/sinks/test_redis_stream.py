"""`redis_stream`: entries on the host's own stream, bounded by refusal, once within a window."""

from __future__ import annotations

import json
import os
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.errors import UsageError
from sinks import redis_server
from sinks.protocol import Delivered, Rejected, Retry
from sinks.registry import Registry
from tests.certificates import self_signed
from tests.sinks.deliveries import delivery
from tests.sinks.redis_stand_ins import Listener, passing, saying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.redis_servers import RedisServer

STREAM = "app:events"


@pytest.fixture
def opened() -> Iterator[Callable[..., Any]]:
    """Return a function that builds and opens a sink; all are closed at the end."""
    sinks: list[Any] = []

    def build(url: str, **options: Any) -> Any:
        sink = Registry().build("redis_stream", "app", {"url": url, "stream": STREAM, **options})
        sink.open()
        sinks.append(sink)
        return sink

    yield build
    for sink in sinks:
        sink.close()


def refused(options: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        Registry().build("redis_stream", "app", options)
    return str(caught.value)


def entries(server: RedisServer, stream: str = STREAM) -> list[dict[str, str]]:
    with server.client(decode_responses=True) as client:
        return [fields for _, fields in client.xrange(stream)]


def numbers(server: RedisServer, stream: str = STREAM) -> list[int]:
    return [json.loads(fields["data"])["number"] for fields in entries(server, stream)]


def test_an_entry_has_the_delivery_s_fields(opened, redis_server, redis_url):
    """Every field of a delivery is a text of its own; what it does not have is left out; `data` is JSON."""
    sink = opened(redis_url)

    outcomes = sink.deliver([delivery(1, data={"å": "🧭\n"}), delivery(2, project=None, subject=None, attempt=3)])

    with redis_server.client() as client:
        ids = [stream_id.decode() for stream_id, _ in client.xrange(STREAM)]
    assert outcomes == [Delivered(f"{STREAM} {stream_id}") for stream_id in ids]
    first, second = entries(redis_server)
    assert json.loads(first.pop("data")) == {"å": "🧭\n"}
    assert first == {
        "id": delivery(1).id,
        "event_id": delivery(1).event_id,
        "tenant": "acme",
        "principal": "ana",
        "publisher": "ben",
        "project": "apollo",
        "pack_id": "git",
        "ref": "commit.created",
        "land": "brain",
        "subject": "main",
        "occurred_at": "2026-06-01T13:59:59+02:00",
        "accepted_at": "2026-06-01T12:00:00.000001Z",
        "attempt": "1",
    }
    assert {"project", "subject"}.isdisjoint(second)
    assert second["attempt"] == "3"


def test_a_full_stream_refuses_and_is_never_trimmed(opened, redis_server, redis_url):
    """What finds no room is a Retry that says so; entries that wait for a reader stay, and room is used in order."""
    sink = opened(redis_url, limit=3)
    with redis_server.client() as client:
        foreign = client.xadd(STREAM, {"of": "somebody else"})

        first = sink.deliver([delivery(number) for number in range(4)])
        again = sink.deliver([delivery(3)])
        client.xdel(STREAM, foreign)
        later = sink.deliver([delivery(2), delivery(3)])

    full = Retry("stream is full (3 of 3)")
    assert [type(one) for one in first[:2]] == [Delivered, Delivered]
    assert (first[2:], again) == ([full, full], [full])
    assert isinstance(later[0], Delivered)
    assert later[1] == full
    assert numbers(redis_server) == [0, 1, 2]


def test_an_id_is_added_once_within_the_window(opened, redis_server, redis_url):
    """A delivery that comes again adds nothing, from another process or in one batch; after the window it does."""
    one, other = opened(redis_url, once_s=60), opened(redis_url, once_s=60)
    one.deliver([delivery(1)])

    again = other.deliver([delivery(1, attempt=2), delivery(2), delivery(2)])

    before = Delivered("was added before")
    assert (again[0], again[2]) == (before, before)
    assert numbers(redis_server) == [1, 2]
    mark = f"{STREAM}:id:{delivery(1).id}"
    with redis_server.client() as client:
        assert 0 < client.ttl(mark) <= 60
        client.delete(mark)  # as time would
    other.deliver([delivery(1, attempt=3)])
    assert numbers(redis_server) == [1, 2, 1]


def test_a_lost_answer_is_one_retry_and_one_entry(opened, redis_server, redis_url):
    """The client repeats nothing by itself: the server runs one script; the retry finds the entry there."""
    with Listener(passing(str(redis_server.socket), [b"XADD"])) as wire, redis_server.client() as client:
        sink = opened(wire.url)
        client.config_resetstat()

        lost = sink.deliver([delivery(1)])
        scripts = client.info("commandstats")["cmdstat_eval"]["calls"]
        found = sink.deliver([delivery(1, attempt=2)])

    assert lost == [Retry(f"stream {STREAM}: {wire.url} broke the connection off")]
    assert scripts == 1
    assert found == [Delivered("was added before")]
    assert numbers(redis_server) == [1]


def test_a_stream_for_each_principal_keeps_them_apart(opened, redis_server, redis_url):
    """With `{principal}` in the key each owner has a stream, with a bound of its own; only then may any land go in."""
    sink = opened(redis_url, stream="app:{principal}", limit=1)

    outcomes = sink.deliver([delivery(1), delivery(2, principal="cleo"), delivery(3)])

    assert [type(one) for one in outcomes] == [Delivered, Delivered, Retry]
    assert (numbers(redis_server, "app:ana"), numbers(redis_server, "app:cleo")) == ([1], [2])
    traits = [Registry().traits("redis_stream", {"url": redis_url, "stream": key}) for key in ("a", "a:{principal}")]
    assert [one.partitioned for one in traits] == [False, True]


def test_one_stream_s_fault_does_not_touch_the_others(opened, redis_server, redis_url):
    """Of two owners in one batch, the one whose key holds no stream is retried; the other is delivered."""
    sink = opened(redis_url, stream="app:{principal}")
    with redis_server.client() as client:
        client.set("app:ana", "text")

    outcomes = sink.deliver([delivery(1), delivery(2, principal="cleo"), delivery(3)])

    wrong = Retry(f"stream app:ana: {redis_url} holds another type of value there")
    assert (outcomes[0], type(outcomes[1]), outcomes[2]) == (wrong, Delivered, wrong)
    assert numbers(redis_server, "app:cleo") == [2]


def test_the_runtime_s_own_streams_are_refused(opened, redis_server, redis_url):
    """No sink writes to a key of the runtime: refused when it is added, and for an owner whose name would make one."""
    reason = refused({"url": redis_url, "stream": "sense:acme:events"})
    assert reason.startswith("options.stream: begins with sense:, which is the runtime's own")

    sink = opened(redis_url, stream="{principal}:acme:events")
    (outcome,) = sink.deliver([delivery(1, principal="sense")])

    assert outcome == Rejected("the stream of sense would be one of the runtime's own")
    with redis_server.client() as client:
        assert client.keys() == []


def test_a_body_that_is_no_event_is_rejected_alone(opened, redis_server, redis_url):
    """Such a delivery is dead; its neighbours are added."""
    outcomes = opened(redis_url).deliver([delivery(1), delivery(2, body=b"[]"), delivery(3)])
    reason = "the event does not become an entry: the body is no JSON object with an object `data`"
    assert outcomes[1] == Rejected(reason)
    assert numbers(redis_server) == [1, 3]


def test_a_server_that_takes_no_writes_is_waited_for(opened, redis_servers):
    """No right, full memory, a replica, a wrong password, a dead server: Retry with the cause, and then one entry."""
    server = redis_servers(
        "--user", "narrow", "on", ">MARK-redis", "~app:*", "+eval", "+xlen", "+exists", "+set", "+select"
    )
    sink = opened(f"unix://narrow:MARK-redis@{server.socket}?db=0")
    causes = []

    def told() -> None:
        (outcome,) = sink.deliver([delivery(1)])
        assert isinstance(outcome, Retry), outcome
        assert outcome.after is None
        causes.append(outcome.reason.removeprefix(f"stream {STREAM}: {server.url} "))

    told()  # it may not XADD
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "narrow", "+xadd", "-set")
        told()  # it could add, and leave no key
        client.execute_command("ACL", "SETUSER", "narrow", "+set")
        client.config_set("maxmemory", 1)
        told()
        client.config_set("maxmemory", 0)
        client.replicaof("127.0.0.1", "1")
        told()
        client.replicaof("NO", "ONE")
        client.execute_command("ACL", "SETUSER", "narrow", ">other", "<MARK-redis")
        client.execute_command("CLIENT", "KILL", "USER", "narrow")
        told()
        client.execute_command("ACL", "SETUSER", "narrow", ">MARK-redis")
    server.kill()
    told()
    server.start()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "narrow", "+xadd")

    assert causes == [
        "does not let this user write there",
        "does not let this user write there",
        "is at its memory limit",
        "is a replica that takes no writes",
        "refuses the name and password",
        "does not answer: Connection refused",
    ]
    (outcome,) = sink.deliver([delivery(1)])
    assert isinstance(outcome, Delivered)
    assert numbers(server) == [1]


def test_a_server_that_hangs_is_a_retry_within_the_deadline(opened, redis_servers, monkeypatch):
    """A paused server costs one wait, not one for each of the batch; what it had taken is not added again."""
    monkeypatch.setattr(redis_server, "ANSWER_S", 0.2)
    server = redis_servers()
    sink = opened(server.url)
    sink.deliver([delivery(0)])

    server.pause()
    hung = sink.deliver([delivery(number) for number in range(1, 4)])
    server.resume()
    sink.deliver([delivery(number, attempt=2) for number in range(1, 4)])

    assert hung == [Retry(f"stream {STREAM}: {server.url} does not answer in time")] * 3
    assert numbers(server) == [0, 1, 2, 3]


def test_a_server_without_tls_is_told_as_such(opened):
    """A `rediss` address that answers in plain text is a Retry that names TLS."""
    with Listener(saying(b"-ERR what\r\n")) as server:
        sink = opened(f"rediss://127.0.0.1:{server.port}")
        (outcome,) = sink.deliver([delivery(1)])
    assert isinstance(outcome, Retry)
    assert outcome.reason.startswith(f"stream {STREAM}: rediss://127.0.0.1:{server.port} is not reached over TLS: ")


def test_a_server_is_believed_by_its_authorities(opened, redis_server, redis_url, tmp_path):
    """Over TLS nothing is said to a server whose certificate nobody vouches for; `ca_file` names who does."""
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Listener(passing(str(redis_server.socket), []), context) as wire:
        (doubted,) = opened(wire.url).deliver([delivery(1)])
        (believed,) = opened(wire.url, ca_file=str(certificate)).deliver([delivery(2)])
    reason = f"stream {STREAM}: {wire.url} is not reached over TLS: CERTIFICATE_VERIFY_FAILED"
    assert doubted == Retry(reason)
    assert isinstance(believed, Delivered)
    assert numbers(redis_server) == [2]


def test_a_child_connects_anew(opened, redis_server, redis_url):
    """After a fork parent and child deliver over connections of their own (C56)."""
    sink = opened(redis_url)
    sink.deliver([delivery(0)])
    child = os.fork()
    if child == 0:
        (outcome,) = sink.deliver([delivery(1)])
        os._exit(0 if isinstance(outcome, Delivered) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sink.deliver([delivery(2)])
    assert numbers(redis_server) == [0, 1, 2]


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "http://127.0.0.1",
        "redis://:MARK-redis@h:99999",
        "redis://:MARK-redis@h/one",
        "redis://h/-1",
        "redis://h/0?password=MARK-redis",
        "redis://h/0#MARK-redis",
        "unix://h/s",
        "unix://MARK-redis",
        "redis://[MARK-redis",
    ],
)
def test_an_address_of_another_form_is_refused_without_showing_it(url):
    """The refusal names option and forms, and holds nothing of the URL."""
    text = refused({"url": url, "stream": STREAM})
    assert text.startswith(
        "options.url: is not redis://name:password@host:port/db, rediss://… or unix:///absolute/path"
    )
    assert "MARK" not in text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stream": ""}, "options.stream: string should have at least 1 character"),
        ({"stream": "a\nb"}, "options.stream: holds a control character"),
        ({"limit": 0}, "options.limit: input should be greater than or equal to 1"),
        ({"once_s": 0}, "options.once_s: input should be greater than or equal to 1"),
        ({"limit": "5"}, "options.limit: input should be a valid integer"),
        ({"ca_file": "ca.pem"}, "options.ca_file: is no absolute path"),
    ],
)
def test_options_are_checked(options, reason):
    """Each mistake is refused by name."""
    assert refused({"url": "redis://h", "stream": STREAM, **options}).startswith(reason)


def test_a_missing_file_of_authorities_is_told_when_it_opens(opened, tmp_path):
    """Deliveries are held rather than tried with a file that is not there."""
    with pytest.raises(UsageError, match=r"options\.ca_file: there is no such file"):
        opened("rediss://127.0.0.1:1", ca_file=str(tmp_path / "ca.pem"))
