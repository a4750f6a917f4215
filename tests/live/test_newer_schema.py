"""A rolling upgrade: this release works on the schema of the next one, which added what it does not know (C58)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sense_worker.drain import Drain, Work
from sense_worker.operator import Operator
from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import HEAD, VERSION_TABLE, check_schema, migrate, schema_step
from sense_worker.storage.schema import DEAD_ENTRY, DELIVERY, EVENT, GRANT, REVISION, ROUTE, SESSION, SINK
from sinks.memory import Memory
from sinks.protocol import Retry, SinkBase
from sinks.registry import Registry
from tests.intake_bench import IntakeBench
from tests.live.worlds import World, until
from tests.provision import SURFACE, write_pack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NEWER = f"{int(HEAD) + 1:04}"
GROWN = (EVENT, DELIVERY, DEAD_ENTRY, GRANT, ROUTE, SESSION, SINK, REVISION)


def upgrade(database: Database) -> None:
    """Bring the schema one step further than this release knows, by what a step may do: it only adds."""
    with database.write() as connection:
        for table in GROWN:
            connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN coming TEXT")
            connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN counted INTEGER NOT NULL DEFAULT 7")
        connection.exec_driver_sql("CREATE TABLE sense_coming (id TEXT PRIMARY KEY)")
        connection.exec_driver_sql(f"CREATE INDEX sense_coming_event ON {EVENT.name} (coming)")
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '{NEWER}'")


class Once(SinkBase):
    """A sink that is not local, whose first answer is a Retry."""

    kind = "once"

    def deliver(self, batch):
        return Memory.of("once").take(batch)


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """A recorder and a drain of this release, on both databases, made before the upgrade."""
    Memory.forget()
    registry = Registry.load()
    registry.register(Once)
    bench = IntakeBench(tmp_path, database, registry, SENSE_RETRY_SCHEDULE_S="0", SENSE_RETRY_JITTER="0")
    bench.rows.grant("ana")
    bench.rows.route("ana")
    bench.rows.sink("once", "once", audience="principal:ana")
    bench.rows.route("ana", sink="once")
    yield bench
    bench.close()


@pytest.mark.case("C58")
def test_everything_is_done_on_a_schema_one_step_newer(bench, tmp_path):
    """Upgraded under a running process: events, refusals, retries, changes and pruning go on, and leave it newer."""
    bench.record(bench.entry())
    upgrade(bench.database)
    Memory.of("once").outcomes = [Retry("later")]

    assert bench.record(bench.entry(), bench.entry(body=b"[1]")) == {"accepted": 1, "malformed": 1}
    for _ in range(4):
        work = Drain(bench.ports).claim("t-red/once")
        for batch in work.batches if isinstance(work, Work) else []:
            Drain(bench.ports).hand_over(work.opened, batch, work.claimed_at)
    made = Operator.initialize(bench.settings, tenant="t-red")
    with Operator.open(bench.settings, session_file=bench.settings.home / made.session_file) as operator:
        operator._ring = lambda _lanes: None
        operator.install_pack(write_pack(tmp_path / "pack", {**SURFACE, "title": "Next"}))
        operator.add_principal("ben")
        operator.add_grant("ben", "sense.enable", pack="mail")
        operator.add_route("mail", "new_item", "inbox", owner="ben")
        listed = len(operator.list_deliveries()), len(operator.list_dead()), operator.show_pack("mail").title
    check_schema(bench.database)
    migrate(bench.database)

    assert listed == (4, 1, "Next")
    assert bench.query("SELECT state, count(*) FROM sense_delivery GROUP BY state") == [("delivered", 4)]
    assert bench.query("SELECT coming, counted FROM sense_event") == [(None, 7), (None, 7)]
    with bench.database.write() as connection:
        assert schema_step(connection) == NEWER
        assert bench.ports.ledger.forget(connection, "t-red", 2**61, 500) == 2


@pytest.mark.case("C58")
@pytest.mark.long
def test_a_worker_starts_on_a_schema_one_step_newer(tmp_path, redis_url, postgresql_url):
    """A process of the release before starts while the database is upgraded already, and delivers."""
    database = Database(postgresql_url)
    world = World(tmp_path, redis_url, database, SENSE_INTAKE="1", SENSE_CONCURRENCY="1")
    try:
        world.route()
        upgrade(database)
        world.worker()
        with world.publisher() as publisher:
            publisher.publish("new_item", {"n": 1}, id="m-1")

        until(lambda: world.states() == {"delivered": 1}, 60, "it arrived")
    finally:
        world.close()
        database.dispose()
