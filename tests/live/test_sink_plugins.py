"""Sink plugins that end or hang processes, on a real worker: it goes on, and so does every other sink (C52)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from sense_worker.storage.engine import Database
from tests.live.worlds import World, until
from tests.sinks.sites import Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.case("C52"), pytest.mark.long]

HARMFUL = """
    import os
    import threading

    from sinks import Delivered, OneByOne


    class Sink(OneByOne):
        kind = "{kind}"
        deadline_s = 2.0
        partitioned = True
        local = {local}

        def open(self):
            {open}

        def deliver_one(self, delivery):
            {deliver}
            return Delivered()
"""
WAIT = "threading.Event().wait()"
EXIT = "os._exit(5)"
SINKS: dict[str, tuple[str, str]] = {
    "exits": ("held", "sink cannot be opened: kind: 'exits' is left out"),
    "hangs": ("held", "sink cannot be opened: kind: 'hangs' is left out"),
    "opendies": ("held", "sink cannot be opened: its process ended 3 times while it was opened"),
    "openhangs": ("held", "sink cannot be opened: open did not return within 10 s"),
    "readerhangs": ("held", "sink cannot be opened: open did not return within 10 s"),
    "dies": ("dead", "crashed: its process died 3 times"),
    "good": ("delivered", ""),
}
"""What becomes of the delivery of each, and why."""


@pytest.fixture
def world(tmp_path: Path, redis_url: str, sqlite_url: str) -> Iterator[World]:
    """A world whose workers find these plugins."""
    site = Site(tmp_path / "site")
    site.folder.mkdir()
    site.install("zz-exits", "exits = zz_exits:Sink", f"import os; {EXIT}")
    site.install("zz-hangs", "hangs = zz_hangs:Sink", f"import threading; {WAIT}")
    for kind, local, opens, delivers in (
        ("opendies", False, EXIT, "pass"),
        ("openhangs", False, WAIT, "pass"),
        ("readerhangs", True, WAIT, "pass"),
        ("dies", False, "pass", EXIT),
        ("good", False, "pass", "pass"),
    ):
        source = HARMFUL.format(kind=kind, local=local, open=opens, deliver=delivers)
        site.install(f"zz-{kind}", f"{kind} = zz_{kind}:Sink", source)
    home = tmp_path / "home"
    home.mkdir()
    database = Database(sqlite_url)
    world = World(home, redis_url, database, PYTHONPATH=str(site.folder))
    yield world
    world.close()
    database.dispose()


def fates(world: World) -> dict[str, tuple[str, str]]:
    """Return state and reason of each sink's delivery."""
    found: dict[str, tuple[str, str]] = {}
    for lane, state, reason in world.query("SELECT lane, state, reason FROM sense_delivery"):
        found[lane.partition("/")[2]] = (state, (reason or "").partition(": sink plugin")[0])
    return found


def test_harmful_plugins_cost_their_own_deliveries_alone(world: World):
    """What exits or hangs at import, in `open` or in `deliver` is held or dead with its reason; the others arrive."""
    for kind in SINKS:
        world.rows.sink(kind, kind)
        world.rows.route("ana", "new_item", kind)
    world.rows.grant("ana", "new_item")
    worker = world.worker()
    publisher = world.publisher()
    publisher.publish("new_item", {"n": 1})
    until(lambda: fates(world) == SINKS, 90, "each delivery's fate")
    publisher.publish("new_item", {"n": 2})
    good = "SELECT count(*) FROM sense_delivery WHERE lane = 't-red/good' AND state = 'delivered'"
    until(lambda: world.query(good) == [(2,)], 20, "a second delivery to the good sink")
    assert worker.process.poll() is None
    log = worker.log.read_text()
    assert "sink plugin exits of zz-exits 1.0: its import ends the process, with exit code 5" in log
    assert "sink plugin hangs of zz-hangs 1.0: its import does not end" in log
    begun = time.monotonic()
    worker.stop()
    assert time.monotonic() - begun < 30
