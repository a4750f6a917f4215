"""A receiver that hangs keeps nobody else's deliveries waiting, and its own backlog is bounded and seen (C44)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from sense_worker.intake.health import HEALTH_KEY
from sense_worker.publisher import Announcement, Publisher
from sense_worker.storage.engine import Database
from tests.live.worlds import World, until
from tests.provision import Rows
from tests.sinks.webhook_receiver import SECRET, Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_FLIGHT = 8
TENANTS = ("t-x", "t-y", "t-z")


class Hooked(World):
    """Three tenants, each with ana, a webhook and a publisher."""

    def tenant(self, name: str, url: str) -> Publisher:
        """Make a tenant whose events go to `url`; return its publisher."""
        rows = Rows(self.database, self.rows.vault, name)
        rows.principal("ana")
        rows.pack()
        secret = rows.activation(f"a-{name}", "ana")
        rows.grant("ana")
        options = {"url": url, "secret": SECRET, "in_flight": IN_FLIGHT, "total_s": 30.0}
        rows.sink("hook", "webhook", options, audience="principal:ana")
        rows.route("ana", sink="hook")
        file = self.home / f"{name}.json"
        file.touch(0o600)
        facts = {"v": 1, "tenant": name, "principal": "ana", "activation_id": f"a-{name}", "pack_id": "mail"}
        file.write_text(json.dumps({**facts, "secret": secret.decode(), "redis_url": self.settings.redis_url}))
        self.publishers.append(Publisher(file))
        return self.publishers[-1]


@pytest.fixture
def slots(request) -> str:
    """How many drains run at once: one, which a hanging call would hold for good, where the test asks for no number."""
    return str(getattr(request, "param", 1))


@pytest.fixture
def world(tmp_path, redis_url, sqlite_url, slots) -> Iterator[Hooked]:
    """A world on SQLite."""
    database = Database(sqlite_url)
    env = {"SENSE_INTAKE": "1", "SENSE_CONCURRENCY": slots, "SENSE_SINK_NETWORKS": "127.0.0.0/8"}
    made = Hooked(tmp_path, redis_url, database, **env)
    yield made
    made.close()
    database.dispose()


@pytest.fixture
def receivers() -> Iterator[dict[str, Receiver]]:
    """Of X, which answers nothing, and of Y and Z, which answer at once."""
    hanging = Receiver(lambda _: lambda _connection: hanging.over.wait(60))
    found = {"t-x": hanging, "t-y": Receiver(), "t-z": Receiver()}
    with hanging, found["t-y"], found["t-z"]:
        yield found


def flow(world: Hooked, receivers: dict[str, Receiver]) -> dict[str, float]:
    """Start the worker, announce 200 events in turn, and return when each of Y's and Z's was announced, by its id."""
    publishers = {name: world.tenant(name, receivers[name].url) for name in TENANTS}
    world.worker()
    with world.client() as client:
        until(lambda: client.exists(HEALTH_KEY), 60, "the reader reads")
    publishers["t-y"].publish("new_item", {}, id="warm")
    publishers["t-z"].publish("new_item", {}, id="warm")
    until(
        lambda: standing(world, "t-y") == standing(world, "t-z") == {"delivered": 1}, 60, "both lanes were drained once"
    )
    announced: dict[str, float] = {}
    for number in range(50):
        for name in ("t-x", "t-y", "t-x", "t-z"):
            told = Announcement("new_item", {"n": number}, id=f"m-{name}-{number}-{len(announced)}")
            (receipt,) = publishers[name].publish_many([told])
            if name != "t-x":
                announced[receipt.event_id] = time.monotonic()
    return announced


def standing(world: Hooked, tenant: str) -> dict[str, int]:
    found = world.query("SELECT state, count(*) FROM sense_delivery WHERE tenant = ? GROUP BY state", tenant)
    return {str(state): int(count) for state, count in found}


@pytest.mark.case("C44")
def test_two_receivers_get_all_while_a_third_hangs(world, receivers):
    """Of 200 events the 100 of Y and Z arrive while X holds what is in flight there; its others wait and are seen."""
    flow(world, receivers)

    until(lambda: standing(world, "t-y") == standing(world, "t-z") == {"delivered": 51}, 60, "all of Y and Z")

    stuck = standing(world, "t-x")
    assert stuck.get("delivered", 0) == 0
    assert len(receivers["t-x"].received) <= IN_FLIGHT
    assert stuck["delivering"] <= 2 * IN_FLIGHT
    assert sum(stuck.values()) == 100


@pytest.mark.long
@pytest.mark.case("C44")
@pytest.mark.parametrize("slots", [4], indirect=True)
def test_ninety_five_of_a_hundred_arrive_within_two_seconds(world, receivers):
    """The literal bound: from publication to settlement at most 2 s for 95 of Y's and Z's 100."""
    announced = flow(world, receivers)
    late: dict[str, float] = {}

    def all_settled() -> bool:
        rows = world.query("SELECT event_id FROM sense_delivery WHERE tenant <> 't-x' AND state = 'delivered'")
        for event in announced.keys() & {bytes(row[0]).hex() for row in rows}:
            late.setdefault(event, time.monotonic() - announced[event])
        return len(late) == len(announced)

    until(all_settled, 60, "all of Y and Z")
    assert sorted(late.values())[94] <= 2.0
