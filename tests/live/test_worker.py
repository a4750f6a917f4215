"""A worker against servers that go away, streams that vanish and records that cannot be written."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.fernet import Fernet

from runtime_core.audit_verify import verify
from runtime_core.errors import IngressFull
from sense_worker.health import check_health
from sense_worker.intake.health import HEALTH_KEY
from sense_worker.publisher import Announcement
from sense_worker.storage.engine import Database
from tests.live.worlds import FILED, World, until, write_plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.redis_servers import RedisServer

STREAM = "sense:t-red:events"
ONE = {"SENSE_INTAKE": "1", "SENSE_CONCURRENCY": "1"}


@pytest.fixture
def server(redis_servers: Callable[..., RedisServer]) -> RedisServer:
    """A Redis that the test may hurt."""
    return redis_servers()


@pytest.fixture
def world(tmp_path: Path, server: RedisServer, sqlite_url: str) -> Iterator[World]:
    """A world on that Redis, with one granted route to the inbox."""
    database = Database(sqlite_url)
    world = World(tmp_path, server.url, database, **ONE)
    world.route()
    yield world
    world.close()
    database.dispose()


def inbox(world: World) -> int:
    """Return how many items there are."""
    return int(world.query("SELECT count(*) FROM inbox_item")[0][0])


def publish(world: World, *numbers: int) -> None:
    """Publish events through a publisher that makes a few attempts."""
    with world.publisher(attempts=20) as publisher:
        publisher.publish_many([Announcement("new_item", {"n": n}, id=f"m-{n}") for n in numbers])


def warnings(world: World) -> list[dict[str, object]]:
    """Return the log records of the worker that are warnings or errors, those of Celery's own start left out."""
    lines = (line for worker in world.workers for line in worker.log.read_text().splitlines() if line.startswith("{"))
    records = [json.loads(line) for line in lines]
    return [one for one in records if one["level"] in ("warning", "error") and one.get("source") != "py.warnings"]


@pytest.mark.case("C01")
def test_a_flushed_database_costs_nothing_but_what_was_on_it(world, server):
    """After FLUSHALL under a running worker, three new events arrive without a restart, the old one not again."""
    world.worker()
    publish(world, 0)
    until(lambda: inbox(world) == 1)
    with server.client() as client:
        client.flushall()

    publish(world, 1, 2, 3)
    until(lambda: inbox(world) == 4)

    assert world.query("SELECT sum(repeats) FROM sense_event") == [(0,)]
    assert len(warnings(world)) < 20


@pytest.mark.long
@pytest.mark.case("C38")
def test_a_server_that_restarts_and_stalls_is_only_waited_for(world, server):
    """Three restarts of Redis and a stall later, twenty events arrive once each, with a bounded log."""
    world.worker()
    publish(world, 0)
    until(lambda: inbox(world) == 1)
    for _ in range(3):
        server.restart()
    server.pause()
    world.rows.principal("ben")  # the world goes on while Redis stalls
    server.resume()

    publish(world, *range(1, 21))
    until(lambda: inbox(world) == 21, 60)

    assert world.states() == {"delivered": 21}
    assert len(warnings(world)) < 60


@pytest.mark.parametrize("back", ["the file", pytest.param("a backup", marks=pytest.mark.long)])
def test_an_event_is_not_acknowledged_into_a_ledger_that_nobody_can_read(world, tmp_path, back):
    """The database's file is moved away: its processes end and say so, health is bad, events wait for a file.

    Put back, or a backup in its place, the work goes on without a restart of the worker.
    """
    world.worker()
    publish(world, 0)
    until(lambda: inbox(world) == 1)
    world.database.dispose()
    file = Path(str(world.database.url.database))
    kept = file.rename(tmp_path / "kept.db")

    with world.client() as client, world.publisher(attempts=20) as publisher:
        published = publisher.publish("new_item", {"n": 1}, id="m-1")
        until(lambda: "its ledger is gone" in world.workers[0].log.read_text(), what="the log says so")
        findings = {one.name: one.ok for one in check_health(world.settings).findings}
        assert findings["database"] is False
        assert [one.decode() for one, _ in client.xrange(STREAM)] == [published.stream_id]
    if back == "a backup":
        with sqlite3.connect(kept) as source, sqlite3.connect(tmp_path / "backup.db") as target:
            source.backup(target)
        kept = tmp_path / "backup.db"
    kept.rename(file)

    world.database = Database(str(world.settings.database_url))
    until(lambda: inbox(world) == 2, 60)


@pytest.mark.long
def test_the_greatest_id_keeps_nobody_from_announcing_for_long(world):
    """Somebody wrote it: the publisher hears what is the matter, and a worker sets the stream right by itself."""
    greatest = f"{2**64 - 1}-{2**64 - 1}"
    with world.client() as client, world.publisher() as publisher:
        client.xadd(STREAM, {"b": "x"}, id=greatest)
        with pytest.raises(IngressFull, match=f"{STREAM}: somebody wrote the greatest id into it"):
            publisher.publish("new_item", {"n": 1}, id="m-1")
        world.worker()
        until(lambda: not client.xinfo_stream(STREAM)["last-generated-id"].startswith(b"18446744073709551615"))
        publisher.publish("new_item", {"n": 1}, id="m-1")

    until(lambda: inbox(world) == 1)
    assert world.query("SELECT stream_id, word FROM sense_dead_entry") == [(greatest, "unknown_credential")]


@pytest.mark.long
def test_a_key_that_is_put_right_needs_no_restart_of_the_worker(world):
    """Under a wrong key file nothing can be opened: events wait, health says why; with the right one they arrive."""
    right = world.env.pop("SENSE_SECRET_KEYS")
    file = world.home / "secret.keys"
    file.touch(0o600)
    file.write_text(Fernet.generate_key().decode())
    world.worker()
    publish(world, 0)

    def state() -> str:
        with world.client() as client:
            return " ".join(json.loads(text)["state"] for text in client.hvals(HEALTH_KEY))

    until(lambda: "sealed secret: no key opens it" in state(), what="health says why")
    assert world.query("SELECT count(*) FROM sense_event") == [(0,)]
    file.write_text(right)

    until(lambda: world.states() == {"delivered": 1}, 60)
    assert world.query("SELECT count(*) FROM sense_dead_entry") == [(0,)]


@pytest.mark.case("C61")
def test_while_the_audit_cannot_be_written_nothing_is_claimed_and_health_says_so(world):
    """With a folder in the audit's place events wait on the stream; after the repair they arrive with no restart."""
    audit = world.settings.audit_file
    world.worker()
    publish(world, 0)
    until(lambda: inbox(world) == 1)
    kept = audit.rename(audit.with_suffix(".kept"))
    audit.mkdir()

    publish(world, 1, 2)
    until(lambda: not check_health(world.settings).ok, what="health is bad")
    findings = {one.name: one.ok for one in check_health(world.settings).findings}
    assert inbox(world) == 1
    assert findings["audit"] is False
    audit.rmdir()
    kept.rename(audit)
    until(lambda: inbox(world) == 3, what="the events arrived after the repair")

    report = verify(audit, world.rows.vault.derive("audit"))
    assert report.problems == ()
    assert report.lines == 3


@pytest.mark.long
@pytest.mark.case("C43")
def test_a_refused_entry_waits_while_its_record_cannot_be_written(world):
    """With the table of dead entries away a bad entry stays pending; after the repair it is recorded once."""
    world.worker()
    publish(world, 0)
    until(lambda: inbox(world) == 1)
    with world.database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE sense_dead_entry RENAME TO moved_away")
    with world.client() as client:
        client.xadd("sense:t-red:events", {"other": "x"})
        until(lambda: "ledger busy" in str(client.hvals("sense:health")), what="health says what it waits for")
        assert client.xpending("sense:t-red:events", "sense")["pending"] == 1
    with world.database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE moved_away RENAME TO sense_dead_entry")

    until(lambda: world.query("SELECT word FROM sense_dead_entry") == [("no_body",)])
    publish(world, 1)
    until(lambda: inbox(world) == 2)

    with world.client() as client:
        assert client.xlen("sense:t-red:events") == 0


@pytest.mark.case("C04")
@pytest.mark.case("C37")
def test_an_orderly_stop_leaves_nothing_behind_and_the_next_worker_goes_on(world):
    """SIGTERM ends with exit 0; no reader is registered any more; what comes meanwhile arrives after the next start."""
    worker = world.worker()
    publish(world, 0)
    until(lambda: inbox(world) == 1)
    assert worker.stop() == 0
    with world.client() as client:
        assert client.xinfo_consumers("sense:t-red:events", "sense") == []
    publish(world, 1)

    world.worker()
    until(lambda: inbox(world) == 2)

    assert world.states() == {"delivered": 2}


@pytest.mark.case("C64")
@pytest.mark.case("C04")
def test_a_reader_that_dies_is_started_again_and_its_entries_are_taken_over(world):
    """A reader killed by itself is replaced by the worker; events go on arriving."""
    world.worker()
    publish(world, 0)
    until(lambda: inbox(world) == 1)
    with world.client() as client:
        name = client.xinfo_consumers("sense:t-red:events", "sense")[0]["name"].decode()
    world.workers[0].kill_process(int(name.split(":")[1]))

    publish(world, 1)
    until(lambda: inbox(world) == 2)

    assert [one["event"] for one in warnings(world)] == ["process ended and is started again"]


def test_a_delivery_to_a_remote_sink_goes_through_the_pool(world, tmp_path):
    """A sink that is not local is rung for and drained by a child of Celery's pool."""
    plugins = write_plugin(tmp_path / "plugins", "filed", FILED)
    file = tmp_path / "filed"
    world.rows.sink("filed", "filed", {"file": str(file)}, audience="principal:ana")
    world.rows.route("ana", sink="filed")
    world.worker(PYTHONPATH=str(plugins))

    publish(world, *range(10))
    until(lambda: file.exists() and len(file.read_text().splitlines()) == 10)

    until(lambda: world.states() == {"delivered": 20})
