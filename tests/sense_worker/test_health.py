"""Health: each finding turns bad for its own cause and for no other, on a real server and both databases."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert

from sense_worker.health import COMMANDS, EVENTS, check_health
from sense_worker.intake.health import EXEC_HEALTH_KEY, HEALTH_KEY
from sense_worker.server import connect
from sense_worker.settings import Settings
from sense_worker.storage import tables
from sense_worker.storage.engine import Database
from sense_worker.storage.ledger import NEVER
from sense_worker.up_file import discover_redis_url, remove_up_file, write_up_file
from sense_worker.vault import Vault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import redis

    from tests.redis_servers import RedisServer

STREAM = "sense:acme:events"
LATE = 61_000_000
"""Microseconds: just over the minute that something may wait."""


class Runtime:
    """A home where everything is well: a reader just finished a turn, nothing waits."""

    def __init__(self, home: Path, redis_url: str, database_url: str) -> None:
        env = {"HCP_HOME": str(home), "SENSE_REDIS_URL": redis_url, "SENSE_DATABASE_URL": database_url}
        self.settings = Settings.load(env)
        home.mkdir(exist_ok=True)
        Vault.create(home)
        self.redis: redis.Redis = connect(redis_url, timeout_s=5)
        self.database = Database(database_url)
        with self.database.write() as connection:
            connection.execute(insert(tables.Tenant).values(id="acme", authority_version=1, created_at=1))
        self.pulse()

    def now(self) -> int:
        seconds, micros = self.redis.time()
        return seconds * 1_000_000 + micros

    def pulse(self, name: str = "reader", ago_s: float = 0, **fields: Any) -> None:
        at = int(self.now() - ago_s * 1e6)
        field = {"at": at, "finished_at": at, "state": "ok", "future_id": False, "entries": 0, **fields}
        self.redis.hset(HEALTH_KEY, name, json.dumps(field))

    def delivery(self, state: str, late: int, **values: Any) -> None:
        with self.database.write() as connection:
            at = self.database.now(connection) - late
            row = {"event_id": bytes(16), "route_id": "rte_1", "tenant": "acme", "lane": "acme/log", "owner": "ana"}
            values = {"state": state, "due_at": at, "created_at": at, **values}
            connection.execute(insert(tables.DeliveryRow).values(**row, **values))

    def bad(self) -> dict[str, str]:
        """Return the text of each finding that is not well; measured seconds, which pass meanwhile, as N."""
        health = check_health(self.settings)
        bad = {finding.name: re.sub(r" 6\d s ", " N s ", finding.text) for finding in health.findings if not finding.ok}
        assert health.ok == (not bad)
        return bad


@pytest.fixture
def runtime(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Runtime]:
    made = Runtime(tmp_path / "home", redis_url, database_url)
    yield made
    made.redis.close()
    made.database.dispose()


def test_all_is_well(runtime: Runtime) -> None:
    """Every part of the way of an event is looked at, and each finding says what was seen."""
    health = check_health(runtime.settings)

    assert health.ok
    assert [finding.name for finding in health.findings] == [
        "redis",
        "reader",
        "database",
        "stream",
        "deliveries",
        "commands",
        "audit",
    ]
    assert all(finding.text and finding.text.isprintable() for finding in health.findings)


@pytest.mark.case("C64")
def test_a_reader_that_lives_without_finishing_is_bad(runtime: Runtime) -> None:
    """It still says that it lives, but its last finished turn is too long ago: the text says what keeps it."""
    now = runtime.now()
    runtime.pulse(at=now, finished_at=now - LATE, state="audit unavailable")

    assert runtime.bad() == {"reader": "the last finished turn was N s ago, state audit unavailable (limit 16 s)"}


def test_one_reader_that_finishes_is_enough(runtime: Runtime) -> None:
    """What a killed reader left behind in the hash does not count beside a living one."""
    runtime.pulse("killed", ago_s=3600, state="ledger busy")

    assert runtime.bad() == {}


def test_no_reader_at_all_is_bad(runtime: Runtime) -> None:
    """Without any reader nothing is finished."""
    runtime.redis.delete(HEALTH_KEY)

    assert runtime.bad() == {"reader": "no worker ever read here (run `sense-worker worker`)"}


def test_a_reader_that_never_finished_says_what_keeps_it(runtime: Runtime) -> None:
    """A worker under a wrong key is there: the finding names its trouble, not that nobody ever read."""
    runtime.redis.delete(HEALTH_KEY)
    runtime.pulse(finished_at=0, state="sealed secret: no key opens it")

    assert runtime.bad() == {"reader": "no reader finished a turn yet, state sealed secret: no key opens it"}


def test_an_id_from_the_future_is_bad(runtime: Runtime) -> None:
    """A reader that saw one turns health bad (DESIGN §4)."""
    runtime.pulse(future_id=True)

    assert list(runtime.bad()) == ["reader"]


@pytest.mark.parametrize("ahead_ms", [60_000, 2**63])
def test_a_stream_whose_last_id_lies_in_the_future_is_bad(runtime: Runtime, ahead_ms: int) -> None:
    """Also when it is empty: at the greatest id nobody could announce, and the finding says what becomes of it."""
    entry = f"{runtime.now() // 1000 + ahead_ms}-0"
    runtime.redis.xdel(STREAM, runtime.redis.xadd(STREAM, {"b": "x"}, id=entry))

    text = runtime.bad()["stream"]

    assert text.startswith(f"the last id of {STREAM} lies in the future: somebody wrote an id of their own")


@pytest.mark.parametrize("read", [False, True])
def test_an_entry_that_waits_over_a_minute_is_bad(runtime: Runtime, *, read: bool) -> None:
    """Unread or read and not finished: the oldest decides."""
    runtime.redis.xgroup_create(STREAM, "sense", mkstream=True)
    runtime.redis.xadd(STREAM, {"b": "old"}, id=f"{(runtime.now() - LATE) // 1000}-0")
    runtime.redis.xadd(STREAM, {"b": "new"})
    if read:
        runtime.redis.xreadgroup("sense", "reader", {STREAM: ">"})

    assert runtime.bad() == {"stream": f"the oldest entry of {STREAM} waits N s (limit 60 s)"}


def test_an_entry_that_waits_for_a_moment_is_well(runtime: Runtime) -> None:
    """Fresh entries, finished entries, and streams without their group or key are no reason to worry."""
    finished = f"{(runtime.now() - LATE) // 1000}-0"
    runtime.redis.xadd(STREAM, {"b": "x"}, id=finished)
    runtime.redis.xgroup_create(STREAM, "sense", id="0")
    runtime.redis.xreadgroup("sense", "reader", {STREAM: ">"})
    runtime.redis.xack(STREAM, "sense", finished)
    runtime.redis.xadd(STREAM, {"b": b"\xff\x00"})

    assert runtime.bad() == {}


def test_a_stream_without_its_group_counts_from_its_beginning(runtime: Runtime) -> None:
    """Nobody made the group yet: everything on the stream is unread."""
    runtime.redis.xadd(STREAM, {"b": "old"}, id=f"{(runtime.now() - LATE) // 1000}-0")

    assert list(runtime.bad()) == ["stream"]


@pytest.mark.parametrize("state", ["pending", "retrying", "delivering"])
def test_a_due_delivery_nobody_takes_is_bad(runtime: Runtime, state: str) -> None:
    """Over a minute late, be it due or under a lease that ran out."""
    runtime.delivery(state, LATE)

    assert runtime.bad() == {"deliveries": f"the oldest due delivery is {state} in lane acme/log, N s late"}


@pytest.mark.parametrize(("state", "late"), [("pending", 50_000_000), ("retrying", -LATE), ("delivered", LATE)])
def test_what_is_not_late_or_settled_is_well(runtime: Runtime, state: str, late: int) -> None:
    """Due a moment ago, due later, or done."""
    runtime.delivery(state, late)

    assert runtime.bad() == {}


@pytest.mark.parametrize(("reason", "named"), [("sink cannot be opened: options.url: …", True), ("sink paused", False)])
def test_a_sink_that_cannot_be_opened_is_named_and_no_bad_health(runtime: Runtime, reason: str, named: bool) -> None:
    """A probe that starts the worker again would mend nothing; what an operator paused is no news."""
    runtime.delivery("held", 0, due_at=NEVER, reason=reason)

    health = check_health(runtime.settings)
    (text,) = (finding.text for finding in health.findings if finding.name == "deliveries")
    assert text == "nothing is due" + (f"; lane acme/log is held: {reason}" if named else "")
    assert health.ok


def test_a_server_that_may_lose_events_is_bad(
    tmp_path: Path, sqlite_url: str, redis_servers: Callable[..., RedisServer]
) -> None:
    """Not append-only, or evicting: what it accepted may be gone."""
    runtime = Runtime(tmp_path / "home", redis_servers().url, sqlite_url)

    runtime.redis.config_set("appendonly", "no")
    without_log = runtime.bad()
    runtime.redis.config_set("maxmemory-policy", "allkeys-lru")
    evicting = runtime.bad()

    assert without_log == {"redis": "append-only is off: a crash of it loses accepted events (set appendonly yes)"}
    assert evicting == {
        "redis": "maxmemory-policy is allkeys-lru: it may drop accepted events (set noeviction)",
    }


def test_a_server_that_is_away_is_bad(
    tmp_path: Path, sqlite_url: str, redis_servers: Callable[..., RedisServer]
) -> None:
    """What needs the server says so; the rest is still judged."""
    server = redis_servers()
    runtime = Runtime(tmp_path / "home", server.url, sqlite_url)
    server.kill()

    assert list(runtime.bad()) == ["redis", "reader", "stream", "commands"]


def test_a_database_without_tables_is_bad(tmp_path: Path, redis_url: str, sqlite_url: str) -> None:
    """The finding says how to get the tables."""
    runtime = Runtime(tmp_path / "home", redis_url, sqlite_url)
    settings = runtime.settings.model_copy(update={"database_url": f"sqlite:///{tmp_path / 'none.db'}"})

    found = {finding.name: finding.text for finding in check_health(settings).findings if not finding.ok}

    assert sorted(found) == ["commands", "database", "deliveries", "stream"]
    assert "sense-worker init" in found["database"]


def test_an_audit_that_cannot_be_written_is_bad(runtime: Runtime) -> None:
    """A folder in the place of the file: no line can be appended."""
    runtime.settings.audit_file.mkdir()

    assert list(runtime.bad()) == ["audit"]


def test_keys_that_are_gone_are_bad(runtime: Runtime) -> None:
    """Without the keys no audit line can be sealed."""
    runtime.settings.key_file.unlink()

    assert list(runtime.bad()) == ["audit"]


class TestUpFile:
    """How commands on a home find the server of its `up`."""

    def test_it_is_found_while_it_answers(self, tmp_path: Path, redis_servers: Callable[..., RedisServer]) -> None:
        """The file of a living server is believed, that of a dead one is not; the setting comes first."""
        server = redis_servers()
        settings = Settings.load({"HCP_HOME": str(tmp_path)})
        named = Settings.load({"HCP_HOME": str(tmp_path), "SENSE_REDIS_URL": "redis://127.0.0.1:1/0"})
        nothing = discover_redis_url(settings)
        write_up_file(tmp_path, server.url)
        written = (discover_redis_url(settings), discover_redis_url(named))
        mode = (tmp_path / "up.json").stat().st_mode & 0o777
        server.kill()
        dead = discover_redis_url(settings)
        remove_up_file(tmp_path)

        assert nothing is None
        assert written == (server.url, "redis://127.0.0.1:1/0")
        assert mode == 0o600
        assert dead is None
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": 1}', '{"redis_url": 5}', '{"redis_url": "x://"}'])
    def test_a_file_that_says_nothing_is_nothing(self, tmp_path: Path, text: str) -> None:
        """Whatever stands in it, the answer is a server or None."""
        (tmp_path / "up.json").write_text(text)

        assert discover_redis_url(Settings.load({"HCP_HOME": str(tmp_path)})) is None


def test_a_request_that_nobody_takes_is_bad(runtime: Runtime) -> None:
    """A request that waits on the stream longer than the limit turns health bad, naming the worker that is missing."""
    long_ago = int(runtime.redis.time()[0]) * 1000 - 600_000
    runtime.redis.xadd("sense:acme:exec", {"v": "1"}, id=f"{long_ago}-0")

    assert list(runtime.bad()) == ["commands"]
    assert "sense-worker worker --commands" in runtime.bad()["commands"]


@pytest.mark.case("C64")
def test_each_worker_is_judged_by_its_own_work(runtime):
    """A dead reader of events leaves the health of the exec worker good, and the other way round."""

    def bad(part: str) -> list[str]:
        return [one.name for one in check_health(runtime.settings, of=part).findings if not one.ok]

    assert (bad(EVENTS), bad(COMMANDS)) == ([], ["exec reader"])
    runtime.redis.hset(EXEC_HEALTH_KEY, "reader", runtime.redis.hget(HEALTH_KEY, "reader"))
    assert (bad(EVENTS), bad(COMMANDS)) == ([], [])
    runtime.pulse(ago_s=100)
    runtime.delivery("pending", LATE)

    assert (bad(EVENTS), bad(COMMANDS)) == (["reader", "deliveries"], [])
