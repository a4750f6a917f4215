"""A running worker whose audit cannot be written: nothing is claimed, health says so, and a repair is enough (C61)."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

import pytest

from runtime_core.audit_verify import verify
from sense_worker.health import check_health
from sense_worker.intake.health import HEALTH_KEY
from sense_worker.publisher import Announcement
from sense_worker.storage import tables
from sense_worker.storage.engine import Database
from sense_worker.wire import stream_of
from tests.live.worlds import FILED, World, until, write_plugin
from tests.runtime_core.chains import immutable, small_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

DRAINED = "sense:drain:t-red/filed"
MEANWHILE = 30
"""Events whose lines take more than what is left of the audit file's last page on a full disk."""


class Audited:
    """A world whose home lies apart from its database and its plugins, with a worker, and a sink through the pool."""

    def __init__(self, folder: Path, home: Path, redis_url: str, database: Database) -> None:
        plugins = write_plugin(folder / "plugins", "filed", FILED)
        env = {"SENSE_INTAKE": "1", "SENSE_CONCURRENCY": "1", "PYTHONPATH": str(plugins)}
        home.mkdir()
        self.world = World(home, redis_url, database, **env)
        self.file = folder / "filed"
        self.world.rows.sink("filed", "filed", {"file": str(self.file)}, audience="principal:ana")
        self.world.route()
        self.world.rows.route("ana", sink="filed")
        self.publisher = self.world.publisher(attempts=20)
        self.arrived = 0

    def __enter__(self) -> Self:
        """Start the worker and wait until both sinks have had an event."""
        self.world.worker()
        self.publish("before")
        self.settle()
        return self

    def __exit__(self, *_raised: object) -> None:
        """End it."""
        self.world.close()

    def publish(self, *names: str) -> None:
        """Publish events."""
        self.publisher.publish_many([Announcement("new_item", {}, id=name) for name in names])
        self.arrived += len(names)

    def settle(self) -> None:
        """Wait until both sinks have all that was published."""
        until(lambda: self.world.states() == {"delivered": 2 * self.arrived}, 60, "all arrived")

    def owe(self, name: str) -> None:
        """Leave a delivery of an event undone, by pausing its sink."""
        self.world.rows.change(tables.SinkRow, {"name": "filed"}, paused_at=1)
        self.publish(name)
        until(lambda: self.world.states().get("held") == 1, what="a delivery is held")
        self.world.rows.change(tables.SinkRow, {"name": "filed"}, paused_at=None)

    def make_due(self) -> None:
        """Make what is owed due now, and forget that a drain ever ran."""
        with self.world.database.write() as connection:
            connection.exec_driver_sql("UPDATE sense_delivery SET state = 'pending', due_at = 1 WHERE state = 'held'")
        with self.world.client() as client:
            client.delete(DRAINED)

    def reader(self) -> dict[str, Any]:
        """Return what the reader says of itself."""
        with self.world.client() as client:
            return dict(json.loads(client.hvals(HEALTH_KEY)[0]))

    def drained(self) -> bool:
        """Say whether a drain began to work on the sink's lane."""
        with self.world.client() as client:
            return bool(client.exists(DRAINED))

    def survives(self, name: str, fault: Callable[[], AbstractContextManager[Path]]) -> None:
        """Let a fault come while a delivery is due and events arrive: what cannot be audited waits until it is over."""
        world = self.world
        self.owe(f"{name}-owed")
        with fault() as audit:
            self.make_due()
            self.publish(*(f"{name}-{number}" for number in range(MEANWHILE)))
            until(lambda: self.reader()["state"] == "audit unavailable", what="the reader says what keeps it")
            until(self.drained, what="a drain was woken for what is owed")
            tried = self.reader()["at"]
            until(lambda: self.reader()["at"] > tried, what="the reader tried again")
            findings = {one.name: one.ok for one in check_health(world.settings).findings}
            states = world.states()
            with world.client() as client:
                waiting = client.xlen(stream_of("t-red"))
            assert findings["audit"] is False
            assert states["pending"] >= 1
            assert "delivering" not in states
            assert states["delivered"] == len(audit.read_bytes().splitlines())
            assert waiting > 0

        self.settle()
        until(lambda: check_health(world.settings).ok, 60, "health is well again")
        assert len(self.file.read_text().splitlines()) == self.arrived
        report = verify(world.settings.audit_file, world.rows.vault.derive("audit"))
        assert (report.problems, report.lines) == ((), 2 * self.arrived)


@contextmanager
def moved(home: Path) -> Iterator[Path]:
    """Take the audit's folder away, and put it back."""
    kept = home.rename(home.with_name("kept"))
    yield kept / "audit.jsonl"
    kept.rename(home)


@contextmanager
def unchangeable(home: Path) -> Iterator[Path]:
    """Make the audit's file read-only, also for root."""
    with immutable(home / "audit.jsonl"):
        yield home / "audit.jsonl"


@contextmanager
def full(home: Path) -> Iterator[Path]:
    """Fill the file system of the home to the last page, and make room again."""
    filler = home / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4_096)):
            pass
    yield home / "audit.jsonl"
    filler.unlink()


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    """A ledger, which lies elsewhere than the audit."""
    database = Database(sqlite_url)
    yield database
    database.dispose()


@pytest.mark.long
@pytest.mark.case("C61")
def test_a_read_only_audit_and_one_whose_folder_is_gone_are_waited_for(tmp_path, redis_url, database):
    """Read-only, then with its folder away, nothing is claimed; each repair is enough, with no restart."""
    with Audited(tmp_path, tmp_path / "home", redis_url, database) as audited:
        for fault in (unchangeable, moved):
            audited.survives(fault.__name__, lambda fault=fault: fault(tmp_path / "home"))


@pytest.mark.case("C61")
def test_an_audit_on_a_full_disk_is_waited_for(tmp_path, redis_url, database):
    """On a full file system of 1 MiB, its log on it too, the worker claims nothing; when there is room it goes on."""
    with (
        small_disk(tmp_path / "disk") as disk,
        Audited(tmp_path, disk / "home", redis_url, database) as audited,
    ):
        audited.survives("full", lambda: full(disk / "home"))
