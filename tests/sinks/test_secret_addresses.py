"""Addresses that are secrets: whatever a receiver does, the marked parts stand nowhere (C53)."""

from __future__ import annotations

import json
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.errors import UsageError
from sense_worker.drain import Drain
from sense_worker.explain import explain
from sense_worker.logs import configure
from sinks import redis_server
from sinks.protocol import Host, Retry
from sinks.registry import Registry
from tests.intake_bench import IntakeBench
from tests.sinks.deliveries import delivery
from tests.sinks.receivers import ADDRESS, Answer, Hanging, HttpReceiver
from tests.sinks.redis_stand_ins import Listener, saying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sinks.protocol import Outcome

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "cases" / "C53-addresses.json").read_text())
HTTP = [case for case in CASES if case["url"].startswith("https://")]
MARKS = [mark for case in CASES for mark in case["secret"]]
INTERNAL = "localhost"
"""Passes what is looked at when a sink is added, for ::1 is allowed; leads to 127.0.0.1, which is not."""
CLOSED = f"{ADDRESS}:1"
HOST = Host((ip_network(f"{ADDRESS}/32"), ip_network("::1/128")), ("json",))


@pytest.fixture
def bench(tmp_path: Path, sqlite_url: str) -> Iterator[IntakeBench]:
    """A recorder and a drain with the sinks' kinds, as a host would allow them."""
    from sense_worker.storage.engine import Database

    database = Database(sqlite_url)
    bench = IntakeBench(tmp_path, database, Registry(HOST), SENSE_RETRY_SCHEDULE_S="300", SENSE_LOG_LEVEL="debug")
    bench.rows.grant("ana")
    yield bench
    bench.close()


def delivered(bench: IntakeBench, options: dict[str, dict[str, Any]], kind: str) -> dict[str, tuple[str, str]]:
    """Hand one event to a sink for each of the options; returns state and reason of each."""
    for name, given in options.items():
        bench.rows.sink(name, kind, given, audience="principal:ana")
        bench.rows.route("ana", sink=name)
    bench.record(bench.entry(data={"n": 1}))
    drain = Drain(bench.ports)
    for name in options:
        work = drain.claim(f"t-red/{name}")
        assert work is not None
        drain.hand_over(work.opened, work.batches[0], work.claimed_at)
    rows = bench.query("SELECT lane, state, reason FROM sense_delivery")
    return {lane.removeprefix("t-red/"): (state, reason) for lane, state, reason in rows}


def assert_no_mark(bench: IntakeBench, *texts: str) -> None:
    """Look through every file beneath the home folder, what was printed and logged, and what `explain` tells."""
    ((event,),) = bench.query("SELECT id FROM sense_event")
    told = str(explain(bench.database, "t-red", bytes(event).hex()))
    files = [(path.name, path.read_bytes()) for path in bench.settings.home.rglob("*") if path.is_file()]
    assert any(name == "audit.jsonl" and b"deliver" in content for name, content in files)
    for mark in MARKS:
        assert [name for name, content in files if mark.encode() in content] == []
        assert all(mark not in text for text in (told, *texts))


@pytest.mark.case("C53")
def test_a_notification_shows_host_and_cause_and_nothing_else(bench, capfd, caplog):
    """Four faults for each address of the fixture: refused, hanging, 400 with the address in its body, internal."""
    configure(bench.settings)
    echoes = b"\n".join(case["url"].encode() for case in CASES)
    with Hanging() as hanging, HttpReceiver(lambda path, body: Answer(400, echoes)) as receiver:
        whys = {
            CLOSED: "is not reached: Connection refused",
            f"{ADDRESS}:{hanging.port}": "gave no answer in time",
            f"{ADDRESS}:{receiver.port}": "answered 400",
            INTERNAL: "not reached: its address is internal; the operator may name its network in SENSE_SINK_NETWORKS",
        }
        options = {"urls": [_at(case["url"], place) for place in whys for case in HTTP], "title": "t", "body": "b"}
        (state, reason), outcome = delivered(bench, {"people": options}, "notify")["people"], again(bench)
        printed = capfd.readouterr()

    names = [f"json://{place} (urls.{{}}) {why}" for place, why in whys.items() for _ in HTTP]
    assert outcome == Retry("; ".join(name.format(at) for at, name in enumerate(names)))
    assert (state, reason) == ("retrying", outcome.reason[:500])
    assert len(receiver.requests) == 2 * len(HTTP)
    assert_no_mark(bench, printed.out, printed.err, caplog.text)


def again(bench: IntakeBench) -> Outcome:
    """Hand another delivery to the sink that is open; its outcome is not shortened."""
    with bench.database.read() as connection:
        authority = bench.ports.authorities.current(connection, ["t-red"])["t-red"]
        opened = bench.ports.sinks.get(bench.ports.ledger.rows(connection), authority, "people")
    (outcome,) = opened.sink.deliver([delivery(2)])
    return outcome


def _at(url: str, place: str) -> str:
    """Return the address as one of the service json at another place, which waits 0.2 s for an answer."""
    address = url.replace("https://", "json://").replace("hook.test", place)
    bare, hash_, fragment = address.partition("#")
    return f"{bare}{'&' if '?' in bare else '?'}rto=0.2&cto=1{hash_}{fragment}"


@pytest.mark.case("C53")
def test_a_redis_shows_host_and_cause_and_nothing_else(bench, capfd, caplog, monkeypatch):
    """Refused, hanging, an error that repeats the password: the reason names host and port alone."""
    configure(bench.settings)
    monkeypatch.setattr(redis_server, "ANSWER_S", 0.2)
    said = b"-ERR unknown command 'AUTH', with args beginning with: 'MARK-redis'\r\n"
    with Hanging() as hanging, Listener(saying(said)) as server:
        places = {"closed": CLOSED, "hangs": f"{ADDRESS}:{hanging.port}", "answers": f"127.0.0.1:{server.port}"}
        options = {
            name: {"url": f"redis://:MARK-redis@{place}/0", "stream": "app:events"} for name, place in places.items()
        }
        found = delivered(bench, options, "redis_stream")
        printed = capfd.readouterr()

    whys = {"closed": "does not answer: Connection refused", "hangs": "does not answer in time"}
    for name, place in places.items():
        why = whys.get(name, "refused the write: ERR")
        assert found[name] == ("retrying", f"stream app:events: redis://{place} {why}")
    assert_no_mark(bench, printed.out, printed.err, caplog.text)


@pytest.mark.case("C53")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["secret"][0])
@pytest.mark.parametrize("kind", ["notify", "redis_stream"])
def test_a_refused_address_is_not_shown(kind, case):
    """What a kind does not take, for its form, its service or where it leads, is refused by the option's name."""
    registry = Registry(HOST)
    addresses = [case["url"], case["url"].partition("://")[2]]
    if kind == "notify":
        addresses += [_at(case["url"], "10.0.0.5")] if case in HTTP else []
    elif case["url"].startswith("redis://"):
        addresses = [case["url"].replace("redis", "rediz", 1), f"{case['url']}?password=MARK-redis"]
    for address in addresses:
        options = {"urls": [address]} if kind == "notify" else {"url": address, "stream": "app:events"}
        with pytest.raises(UsageError) as caught:
            registry.build(kind, "s", options)
        assert str(caught.value).startswith("options.url")
        text = f"{caught.value} {caught.value.__cause__} {registry.fault(kind, options)}"
        assert [mark for mark in MARKS if mark in text] == []


@pytest.mark.case("C53")
def test_what_may_be_shown_of_an_address_is_its_host_or_its_service():
    """The options as they are listed: a server by host and port, a notification by its service."""
    registry = Registry(HOST)
    redis: Any = registry.build(
        "redis_stream", "s", {"url": "redis://:MARK-redis@127.0.0.1:1/0", "stream": "app:events"}
    )
    notify: Any = registry.build("notify", "s", {"urls": ["json://user:MARK-pass@127.0.0.2/x"]})
    for sink, shown in ((redis, "redis://127.0.0.1:1/***"), (notify, "json://***")):
        text = f"{sink.options!r} {sink.options}"
        assert shown in text
        assert "MARK" not in text
