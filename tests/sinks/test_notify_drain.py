"""Notifications behind the real ledger, with an inbox beside them."""

from __future__ import annotations

import json
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from sense_worker.drain import Drain
from sense_worker.storage.engine import Database
from sinks.notify_text import MARK, characters, units
from sinks.protocol import Host
from sinks.registry import Registry
from tests.intake_bench import IntakeBench
from tests.sinks.receivers import ADDRESS, Answer, HttpReceiver
from tests.sinks.test_notify_process import LONG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 4_000
"""Of Mattermost, whose service Apprise speaks to on any host."""


@pytest.fixture
def bench(tmp_path: Path, sqlite_url: str) -> Iterator[IntakeBench]:
    """Ana, granted, on a host that lets notifications to loopback out."""
    registry = Registry(Host((ip_network(f"{ADDRESS}/32"),), ("mmost",)))
    bench = IntakeBench(tmp_path, Database(sqlite_url), registry)
    bench.rows.grant("ana")
    yield bench
    bench.close()


@pytest.mark.case("C54")
def test_a_long_payload_is_shortened_for_the_service_and_whole_in_the_inbox(bench: IntakeBench):
    """10,000 characters arrive once as what the service takes, with a mark; the same event's item has them all."""

    def within(_: str, body: bytes) -> Answer:
        return Answer(200 if units(json.loads(body)["text"]) <= LIMIT else 400)

    with HttpReceiver(within) as receiver:
        bench.rows.sink("people", "notify", {"urls": [f"mmost://{ADDRESS}:{receiver.port}/short"]}, "principal:ana")
        routes = [bench.rows.route("ana", sink=sink) for sink in ("people", "inbox")]
        bench.record(bench.entry(data={"text": LONG}))
        drain = Drain(bench.ports)
        for lane in ("t-red/people", "t-red/inbox"):
            work = drain.claim(lane)
            if lane == "t-red/people":
                drain.hand_over(work.opened, work.batches[0], work.claimed_at)
    assert bench.outcomes() == dict.fromkeys(routes, "delivered")
    ((_, body),) = receiver.requests
    text = json.loads(body)["text"]
    assert LIMIT - 60 < units(text) <= LIMIT
    assert text.endswith(MARK)
    plain = text.removesuffix(MARK).replace("\\", "")  # what Markdown needs counts, and is not read
    kept = list(characters(plain[plain.index("e\u0301") :]))
    assert kept == list(characters(LONG))[: len(kept)]
    ((whole,),) = bench.query("SELECT body FROM inbox_item")
    assert json.loads(bytes(whole))["data"] == {"text": LONG}
