"""A webhook behind the real ledger: stopped and resumed, rotated while deliveries wait, silent about its address."""

from __future__ import annotations

import base64
import logging
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from runtime_core.errors import UsageError
from sense_worker.drain import Drain, Work
from sense_worker.explain import explain
from sense_worker.logs import configure
from sense_worker.operator import Operator
from sense_worker.storage.engine import Database
from sinks.registry import Registry
from sinks.webhook_options import new_secret
from tests.intake_bench import IntakeBench
from tests.sinks.test_webhook_reach import INTERNAL, answers
from tests.sinks.webhook_receiver import HOST, SECRET, Receiver, case, said

if TYPE_CHECKING:
    from collections.abc import Iterator

LANE = "t-red/hook"
CASES: list[dict[str, Any]] = case("C53-addresses.json")
MARKS = sorted({mark for one in CASES for mark in one["secret"]})


class Bench(IntakeBench):
    """Ana, granted, with routes to webhooks; and an operator of the tenant."""

    def __init__(self, home: Path, database: Database) -> None:
        retries = {"SENSE_RETRY_SCHEDULE_S": "300,300", "SENSE_RETRY_JITTER": "0"}
        super().__init__(home, database, Registry(HOST), SENSE_LOG_LEVEL="debug", **retries)
        self.rows.grant("ana")
        file = Path(Operator.initialize(self.settings, tenant="t-red").session_file)
        self.operator = Operator.open(self.settings, session_file=file, registry=Registry(HOST))

    def hook(self, url: str, name: str = "hook", **options: Any) -> Any:
        """Add a webhook for ana, and her route to it."""
        row = self.operator.add_sink(name, "webhook", options={"url": url, **options}, audience="principal:ana")
        self.rows.route("ana", sink=name)
        return row

    def events(self, count: int) -> None:
        """Record so many events."""
        self.record(*(self.entry(data={"n": number}) for number in range(count)))

    def turn(self, lane: str = LANE) -> int:
        """Claim once and hand over what was claimed; returns how many batches that were."""
        drain = Drain(self.ports)
        work = drain.claim(lane)
        if not isinstance(work, Work):
            return 0
        for batch in work.batches:
            drain.hand_over(work.opened, batch, work.claimed_at)
        return len(work.batches)

    def states(self) -> list[tuple[Any, ...]]:
        """Return how many deliveries are in each state, for each reason."""
        return self.query("SELECT state, reason, count(*) FROM sense_delivery GROUP BY state, reason ORDER BY state")

    def close(self) -> None:
        self.operator.close()
        super().close()


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[Bench]:
    """On both databases."""
    bench = Bench(tmp_path, database)
    yield bench
    bench.close()


@pytest.fixture
def lite(tmp_path: Path, sqlite_url: str) -> Iterator[Bench]:
    """On SQLite alone, where it is about the sink."""
    bench = Bench(tmp_path, Database(sqlite_url))
    yield bench
    bench.close()
    bench.database.dispose()


@pytest.mark.case("C42")
def test_410_switches_the_sink_off_until_it_is_resumed(bench: Bench):
    """What was answered 410 is dead; the others are held with reason and moment; resumed, they arrive."""
    with Receiver(lambda _: said(410)) as receiver:
        bench.hook(receiver.url, in_flight=1)
        bench.events(5)
        assert [bench.turn(), bench.turn()] == [2, 0]
        gone = f"127.0.0.1:{receiver.port} answered 410: it is gone"
        dead = len(receiver.received)  # 1, or 2 where the second call was out by then
        assert bench.states() == [("dead", f"rejected: {gone}", dead), ("held", f"sink disabled: {gone}", 5 - dead)]
        shown = bench.operator.show_sink("hook")
        assert (shown.disabled_reason, abs((shown.disabled_at or 0) / 1e6 - time.time()) < 60) == (gone, True)

        receiver.answer = lambda _: said(204)
        bench.operator.resume_sink("hook")
        while bench.turn():
            pass
        assert [(state, count) for state, _, count in bench.states()] == [("dead", dead), ("delivered", 5 - dead)]
    assert len(receiver.received) == 5


@pytest.mark.case("C42")
def test_a_refusal_for_good_is_dead_at_once(lite: Bench):
    """Each 4xx that deserves no retry ends its delivery at the first attempt, with the status as reason."""
    statuses = [one["status"] for one in case("C42-status.json") if one["then"].startswith("dead-letter")]
    statuses.remove(410)
    left = iter(statuses)
    with Receiver(lambda _: said(next(left))) as receiver:
        lite.hook(receiver.url, in_flight=1)
        lite.events(len(statuses))
        while lite.turn():
            pass
    rows = lite.query("SELECT state, attempt, reason FROM sense_delivery ORDER BY reason")
    place = f"rejected: 127.0.0.1:{receiver.port}"
    assert rows == [("dead", 1, f"{place} answered {status}") for status in sorted(statuses)]
    assert len(receiver.received) == len(statuses) > 3


@pytest.mark.case("C41")
def test_a_delay_that_is_asked_for_is_in_the_row(lite: Bench):
    """Nobody sleeps through Retry-After: the row says when it is due; what makes no sense follows the schedule."""
    afters = iter(["120", "soon", "99999"])
    with Receiver(lambda _: said(503, ("Retry-After", next(afters)))) as receiver:
        lite.hook(receiver.url, in_flight=1)
        lite.events(3)
        begun = time.monotonic()
        while lite.turn():
            pass
    assert time.monotonic() - begun < 20
    dues = sorted(due / 1e6 - time.time() for (due,) in lite.query("SELECT due_at FROM sense_delivery"))
    assert dues == [pytest.approx(120, abs=20), pytest.approx(300, abs=20), pytest.approx(3600, abs=20)]


def verifies(receiver: Receiver, count: int, *secrets: str) -> list[list[bool]]:
    """Tell for each of the newest requests which secrets verify it."""

    def by(secret: str, one: Any) -> bool:
        try:
            Verifier(secret).verify(one.body, {**one.headers, "webhook-timestamp": one.headers["webhook-timestamp"]})
        except WebhookVerificationError:
            return False
        return True

    return [[by(secret, one) for secret in secrets] for one in receiver.received[-count:]]


@pytest.mark.case("C51")
def test_a_secret_is_rotated_while_deliveries_wait(lite: Bench, monkeypatch: pytest.MonkeyPatch, capfd, caplog):
    """During the overlap either secret verifies, afterwards the new one alone; twice in a row works. None is leaked."""
    configure(lite.settings)
    ahead = 0.0
    monkeypatch.setattr("sinks.webhook.time", SimpleNamespace(time=lambda: time.time() + ahead))
    monkeypatch.setattr("standardwebhooks.webhooks.timedelta", lambda **_: timedelta(days=1))
    with Receiver() as receiver:
        first = lite.hook(receiver.url, in_flight=1).secret
        lite.events(5)
        second = lite.operator.rotate_sink("hook", overlap_s=3600).secret
        assert lite.turn() == 2
        assert verifies(receiver, 2, first, second) == [[True, True]] * 2
        ahead = 3601.0
        while lite.turn():
            pass
        assert verifies(receiver, 3, first, second) == [[False, True]] * 3

        ahead = 0.0
        third = lite.operator.rotate_sink("hook", overlap_s=600)
        fourth = lite.operator.rotate_sink("hook", overlap_s=1200).secret
        receiver.answer = lambda _: said(400)
        lite.events(3)
        lite.turn()
        assert verifies(receiver, 1, first, second, third.secret, fourth) == [[True] * 4]
        ahead = 700.0
        while lite.turn():
            pass
        assert verifies(receiver, 1, first, second, third.secret, fourth) == [[True, False, True, True]]
        lite.operator.rotate_sink("hook", overlap_s=0)
    printed = capfd.readouterr()
    told = [printed.out, printed.err, caplog.text, str(lite.operator.show_sink("hook")), str(lite.states())]
    assert_nowhere(lite, [first, second, third.secret, fourth], *told)
    assert repr(third).count("secret") == 0
    assert third.overlap_ends_at is not None


def assert_nowhere(bench: Bench, secrets: list[str], *told: str) -> None:
    """Look for secrets, and what is in them, in every file under the home, in every text and in what was told."""
    keys = [secret.removeprefix("whsec_") for secret in secrets]
    files = [path.read_bytes() for path in bench.settings.home.rglob("*") if path.is_file()]
    files += [Path(str(bench.database.url.database)).read_bytes()]
    for key in keys:
        assert not any(key.encode() in content for content in files)
        assert [text for text in told if key in text] == []


@pytest.mark.case("C53")
def test_an_address_shows_its_host_and_nothing_else(lite: Bench, monkeypatch: pytest.MonkeyPatch, capfd, caplog):
    """Refused, hanging, a 400 that says the address, an internal target: the marked parts stand nowhere."""
    configure(lite.settings)
    addresses = [one["url"] for one in CASES if one["url"].startswith("https://")]
    echo = said(400, ("X-Echo", addresses[0]), body=" ".join(addresses).encode())
    with Receiver(lambda _: echo) as answering, Receiver() as hanging:
        hanging.answer = lambda _: lambda _: hanging.over.wait(5)
        places = {"refused": "127.0.0.1:1", "hangs": f"127.0.0.1:{hanging.port}", "400": f"127.0.0.1:{answering.port}"}
        told: list[str] = []
        for why, place in places.items():
            for number, address in enumerate(addresses):
                url = address.replace("https://", "http://").replace("hook.test", place)
                name = f"{why}-{number}"
                lite.hook(url, name, total_s=0.1, link="https://app.example/{id}")
                told += [str(lite.operator.show_sink(name)), str(lite.operator.test_sink(name))]
        lite.events(1)
        for name in [f"{why}-{number}" for why in places for number in range(len(addresses))]:
            assert lite.turn(f"t-red/{name}") == 1
    found = dict(lite.query("SELECT lane, reason FROM sense_delivery"))
    for number in range(len(addresses)):
        assert found[f"t-red/refused-{number}"] == "127.0.0.1:1 not reached: Connection refused"
        assert found[f"t-red/hangs-{number}"] == f"127.0.0.1:{hanging.port} gave no whole answer within 0.1 s"
        assert found[f"t-red/400-{number}"] == f"rejected: 127.0.0.1:{answering.port} answered 400"
    for one in CASES:
        with pytest.raises(UsageError) as caught:
            lite.operator.add_sink("internal", "webhook", options={"url": one["url"].replace("hook.test", "10.0.0.5")})
        told.append(f"{caught.value!r} {caught.value} {caught.value.__cause__}")
        assert caught.value.__suppress_context__
    ((event,),) = lite.query("SELECT id FROM sense_event")
    printed = capfd.readouterr()
    told += [str(explain(lite.database, "t-red", bytes(event).hex())), printed.out, printed.err, caplog.text]
    told += [str(lite.operator.list_sinks())]
    assert sum("http://127.0.0.1:1/***" in text for text in told) == len(addresses)
    assert_nowhere(lite, MARKS, *told)


@pytest.mark.case("C53")
def test_an_address_whose_target_is_refused_at_delivery_is_not_shown(
    lite: Bench, monkeypatch: pytest.MonkeyPatch, capfd, caplog
):
    """Public when it was added, internal when delivered to: up to its dead record the host is told, nothing else."""
    configure(lite.settings)
    addresses = [one["url"] for one in CASES if one["url"].startswith("https://")]
    answers(monkeypatch, *[["1.1.1.1"]] * len(addresses), ["10.0.0.5"])
    for number, address in enumerate(addresses):
        lite.hook(address, f"target-{number}")
    lite.events(1)
    lanes = [f"t-red/target-{number}" for number in range(len(addresses))]
    for _ in range(3):
        assert [lite.turn(lane) for lane in lanes] == [1] * len(lanes)
        with lite.database.write() as connection:
            connection.exec_driver_sql("UPDATE sense_delivery SET due_at = 1 WHERE state = 'retrying'")
    why = f"hook.test not reached: {INTERNAL}"
    rows = lite.query("SELECT lane, state, attempt, reason FROM sense_delivery ORDER BY lane")
    assert [(lane, state) for lane, state, _, _ in rows] == [(lane, "dead") for lane in lanes]
    assert [reason.endswith(why) for *_, reason in rows] == [True] * len(lanes)
    lines = [one for one in lite.audited() if one["action"] == "sense.deliver"]
    assert [one["reason"].endswith(why) for one in lines] == [True] * 3 * len(lanes)
    ((event,),) = lite.query("SELECT id FROM sense_event")
    printed = capfd.readouterr()
    assert logging.getLogger("sinks").isEnabledFor(logging.DEBUG)
    told = [str(explain(lite.database, "t-red", bytes(event).hex())), str(rows), str(lite.operator.list_sinks())]
    assert_nowhere(lite, MARKS, *told, str(lines), printed.out, printed.err, caplog.text)


def test_a_host_that_allows_no_network_says_so(lite: Bench):
    """A row that is not allowed where it is asked about shows a fault there, with the way out."""
    with Receiver() as receiver:
        lite.hook(receiver.url)
        file = lite.settings.home / "t-red.session"
        with Operator.open(lite.settings, session_file=file, registry=Registry()) as other:
            fault = other.show_sink("hook").fault
    assert fault is not None
    assert fault.startswith("options.url: its address is internal; the operator may name its network in SENSE_SINK")


def test_a_sink_is_the_same_again_whatever_its_secret_is(lite: Bench):
    """Added again without a secret it is the same, also after a rotation; with another secret it is a conflict."""
    made = lite.hook("https://1.1.1.1/x")
    key = base64.b64decode(str(made.secret).removeprefix("whsec_"))
    assert (len(key), str(made.secret) in repr(made)) == (32, False)
    lite.operator.rotate_sink("hook", overlap_s=60)
    again = lite.operator.add_sink("hook", "webhook", options={"url": "https://1.1.1.1/x"}, audience="principal:ana")
    assert again.secret is None
    with pytest.raises(Exception, match="exists with another kind, audience or options"):
        lite.operator.add_sink(
            "hook", "webhook", options={"url": "https://1.1.1.1/x", "secret": new_secret()}, audience="principal:ana"
        )
    given = lite.operator.add_sink("own", "webhook", options={"url": "https://1.1.1.1/x", "secret": SECRET})
    assert given.secret is None
