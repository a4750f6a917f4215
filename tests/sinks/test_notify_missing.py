"""A worker without Apprise: what its other sinks get is delivered, what notify should get waits with the reason."""

from __future__ import annotations

import importlib.util

import pytest

from sense_worker import open_sinks
from sense_worker.drain import Drain, Work
from sense_worker.storage.engine import Database
from sinks.memory import Memory
from sinks.notify import Notify
from sinks.protocol import Host, SinkBase
from sinks.registry import Registry
from tests.intake_bench import IntakeBench

LANES = ("t-red/other", "t-red/people")


class Other(SinkBase):
    """A sink of another kind."""

    kind = "other"

    def deliver(self, batch):
        return Memory.of("other").take(batch)


@pytest.mark.case("C52")
def test_deliveries_of_a_kind_whose_extra_is_missing_are_held_and_go_on(tmp_path, sqlite_url, monkeypatch):
    """Held, with the way out, none lost and no try used up; with Apprise installed they go on by themselves."""
    monkeypatch.setattr(open_sinks, "REOPEN_S", 0.0)
    Memory.forget()
    registry = Registry(Host(services=("json",)))
    registry.register(Other)
    bench = IntakeBench(tmp_path, Database(sqlite_url), registry)
    bench.rows.grant("ana")
    bench.rows.sink("other", "other", audience="principal:ana")
    bench.rows.sink("people", "notify", {"urls": ["json://h"]}, audience="principal:ana")
    bench.rows.route("ana", sink="other")
    bench.rows.route("ana", sink="people")
    bench.record(bench.entry())
    drain = Drain(bench.ports)

    with monkeypatch.context() as without:
        without.setattr(importlib.util, "find_spec", lambda name: None)
        works = [drain.claim(lane) for lane in LANES]

    assert [isinstance(work, Work) for work in works] == [True, False]
    for batch in works[0].batches:
        drain.hand_over(works[0].opened, batch, works[0].claimed_at)
    assert len(Memory.of("other").deliveries) == 1
    held = "sink cannot be opened: sink kind notify: needs Apprise (pip install 'sense-worker[notify]')"
    rows = bench.query("SELECT state, attempt, reason FROM sense_delivery WHERE lane = ?", LANES[1])
    assert rows == [("held", 0, held)]

    monkeypatch.setattr(Notify, "open", lambda self: None)
    assert isinstance(drain.claim(LANES[1]), Work)
    bench.close()
