"""A sink gets data of the lands that its kind declares, and of no other (§4.3, DESIGN §6)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

import pytest

from sense_worker.drain import Drain
from sense_worker.storage.engine import Database
from sinks.memory import Memory
from sinks.protocol import SinkBase
from sinks.registry import Registry
from tests.intake_bench import IntakeBench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Drained(SinkBase):
    """Served by a drain; of whatever shape the land rules want."""

    kind: ClassVar[str] = "drained"
    partitioned: ClassVar[bool] = True

    def deliver(self, batch):
        return Memory.of(self.name).take(batch)


class AtOnce(Drained):
    """Handed over on arrival."""

    kind: ClassVar[str] = "at_once"
    local: ClassVar[bool] = True


class Bell:
    """A doorbell that nobody rings."""

    def __getattr__(self, name: str):
        return lambda *_: False


@pytest.fixture
def bench(tmp_path: Path, sqlite_url: str, request: pytest.FixtureRequest) -> Iterator[IntakeBench]:
    """Ana's routes of every land to a sink of a kind, which takes personal and brain, or one of them."""
    kind, lands = request.param
    Memory.forget()
    registry = Registry()
    registry.register(type("Kind", (kind,), {"lands": lands}))
    database = Database(sqlite_url)
    bench = IntakeBench(tmp_path, database, registry)
    bench.rows.sink("its", kind.kind, audience="principal:ana")
    yield bench
    bench.close()
    database.dispose()


@pytest.mark.spec("4.3.personal")
@pytest.mark.parametrize("bench", [(kind, ("brain",)) for kind in (Drained, AtOnce)], indirect=True)
def test_a_land_that_the_kind_does_not_take_is_denied(bench):
    """The refusal is that of the land; the sink is never shown the delivery, whoever hands over."""
    bench.granted(sink="its")
    bench.record(bench.entry())
    Drain(bench.ports).run("t-red/its", Bell(), 0.0)
    assert bench.query("SELECT state, reason FROM sense_delivery") == [("denied", "denied: privacy.land personal")]
    assert Memory.of("its").attempts == []


@pytest.mark.parametrize("bench", [(kind, ("personal",)) for kind in (Drained, AtOnce)], indirect=True)
def test_a_land_that_it_takes_arrives(bench):
    """Nothing else about the sink differs."""
    bench.granted(sink="its")
    (part,) = bench.recorded(bench.entry())
    for opened, batch in part.local:
        Drain(bench.ports).hand_over(opened, batch, time.monotonic())
    Drain(bench.ports).run("t-red/its", Bell(), 0.0)
    assert bench.query("SELECT state FROM sense_delivery") == [("delivered",)]
    assert [one.land for one in Memory.of("its").deliveries] == ["personal"]
