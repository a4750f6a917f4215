"""Health, judged by finished work: a process that lives and does nothing is not healthy (C64, DESIGN §9)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import redis
import sqlalchemy as sa

from runtime_core.audit_chain import ChainedAudit
from runtime_core.errors import HcpError
from sense_worker.exec.wire import stream_of_exec
from sense_worker.intake.health import EXEC_HEALTH_KEY, FUTURE_ID_MICROS, HEALTH_KEY
from sense_worker.open_sinks import UNOPENED
from sense_worker.server import NO_EVICTION, connect, server_facts
from sense_worker.storage.engine import Database
from sense_worker.storage.ledger import Ledger
from sense_worker.storage.migrate import check_schema
from sense_worker.up_file import discover_redis_url
from sense_worker.vault import Vault
from sense_worker.waiting import oldest_entry, streams_ahead

if TYPE_CHECKING:
    from collections.abc import Callable

    from sense_worker.settings import Settings

WAITING_S = 60.0
"""How long an entry or a due delivery may wait: a sweep rings every second, a takeover happens within seconds."""
HELD_SHOWN = 3
"""Lanes that a finding names at most."""
NO_READER = "no reader"
ALL, EVENTS, COMMANDS = "all", "events", "commands"
_PASSED_OVER = {
    ALL: ("exec reader",),  # whoever runs no exec worker is well as long as nobody queues a command
    EVENTS: ("exec reader", "commands"),
    COMMANDS: ("reader", "stream", "deliveries"),
}
# The states as the partial index has them.
_DUE = sa.text(
    "SELECT lane, state, :now - due_at FROM sense_delivery "
    "WHERE state IN ('pending', 'retrying', 'delivering', 'held') AND due_at <= :now ORDER BY due_at LIMIT 1"
)

_DUE_EXEC = sa.text("SELECT min(due_at) FROM sense_exec WHERE state IN ('pending', 'running') AND due_at <= :now")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `text` is one line for people."""

    name: str
    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Health:
    """All that was looked at; `ok` when every finding is."""

    ok: bool
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Pulses:
    """What the readers say of themselves, reduced to the newest; moments by Redis's clock."""

    finished_at: int
    """When a reader last finished a turn; 0 where none ever did."""
    state: str
    """Of the reader heard last: `ok`, or what keeps it from finishing."""
    future_id: bool


def check_health(settings: Settings, *, of: str = ALL, waiting_s: float = WAITING_S) -> Health:
    """Look at everything an event or a request passes: server, readers, stream, ledger, lanes, audit.

    `of` is ALL, or for the health of one worker EVENTS or COMMANDS: what the other serves is not looked at then, so
    that one dead worker restarts no living one. Raises nothing of theirs.
    """
    look = _Look(settings, waiting_s)
    judges = {
        "redis": look.server,
        "reader": look.reader,
        "exec reader": look.exec_reader,
        "database": look.database,
        "stream": look.stream,
        "deliveries": look.deliveries,
        "commands": look.commands,
        "audit": look.audit,
    }
    findings = tuple(_found(name, judge) for name, judge in judges.items() if name not in _PASSED_OVER[of])
    look.close()
    return Health(all(finding.ok for finding in findings), findings)


def read_pulses(client: redis.Redis, key: str = HEALTH_KEY) -> Pulses:
    """Return what the readers wrote last, those of events or (EXEC_HEALTH_KEY) of requests. Raises redis.RedisError."""
    fields: list[dict[str, Any]] = [json.loads(text) for text in client.hvals(key)]
    newest = max(fields, key=lambda field: field["at"], default={"state": NO_READER})
    return Pulses(
        finished_at=max((int(field["finished_at"]) for field in fields), default=0),
        state=str(newest["state"]),
        future_id=bool(newest.get("future_id")),
    )


def redis_micros(client: redis.Redis) -> int:
    """Return Redis's clock in microseconds. Raises redis.RedisError."""
    seconds, micros = client.time()
    return int(seconds) * 1_000_000 + int(micros)


def _found(name: str, judge: Callable[[], tuple[bool, str]]) -> Finding:
    try:
        ok, text = judge()
    except redis.RedisError as error:
        ok, text = False, f"cannot be asked: {error}"
    except HcpError as error:
        ok, text = False, str(error)
    except Exception as error:  # noqa: BLE001 - a driver's own error is a finding like any other
        ok, text = False, f"cannot be asked: {type(error).__name__}: {error}".splitlines()[0]
    return Finding(name, ok, text)


class _Look:
    """Each method judges one thing: whether it is well, and a line that says so."""

    def __init__(self, settings: Settings, waiting_s: float) -> None:
        self._settings = settings
        self._waiting_s = waiting_s
        self._url = discover_redis_url(settings)
        self._database: Database | None = None

    def server(self) -> tuple[bool, str]:
        if self._url is None:
            return False, "SENSE_REDIS_URL is not set and no `sense-worker up` runs on this home"
        facts = server_facts(self._url)
        if facts.policy != NO_EVICTION:
            return False, f"maxmemory-policy is {facts.policy}: it may drop accepted events (set {NO_EVICTION})"
        if not facts.append_only:
            return False, "append-only is off: a crash of it loses accepted events (set appendonly yes)"
        return True, f"version {facts.version}, append-only, {NO_EVICTION}"

    def reader(self) -> tuple[bool, str]:
        return self._read_lately(HEALTH_KEY, "sense-worker worker")

    def exec_reader(self) -> tuple[bool, str]:
        return self._read_lately(EXEC_HEALTH_KEY, "sense-worker worker --commands")

    def _read_lately(self, key: str, program: str) -> tuple[bool, str]:
        with self._client() as client:
            pulses, now = read_pulses(client, key), redis_micros(client)
        if not pulses.finished_at and pulses.state != NO_READER:
            return False, f"no reader finished a turn yet, state {pulses.state}"
        if not pulses.finished_at:
            return False, f"no worker ever read here (run `{program}`)"
        age_s = (now - pulses.finished_at) / 1e6
        # A turn may block for block_ms before it finishes with nothing.
        limit_s = 3 * self._settings.heartbeat_s + self._settings.block_ms / 1000
        if age_s > limit_s:
            return False, f"the last finished turn was {age_s:.0f} s ago, state {pulses.state} (limit {limit_s:g} s)"
        if pulses.future_id:
            return False, "a stream id lies over 5 s ahead of Redis's clock: somebody writes ids of their own"
        return True, f"a turn finished {max(age_s, 0):.1f} s ago"

    def database(self) -> tuple[bool, str]:
        database = self._opened()
        check_schema(database)
        return True, f"{database.kind}, schema current"

    def stream(self) -> tuple[bool, str]:
        database = self._opened()
        with database.read() as connection:
            tenants = list(connection.scalars(sa.text("SELECT id FROM sense_tenant")))
        with self._client() as client:
            oldest, now = oldest_entry(client, tenants), redis_micros(client)
            ahead = streams_ahead(client, tenants, now + FUTURE_ID_MICROS)
        if ahead:
            way_out = "a worker makes it anew once it is empty; see `docs/operate.md`, Health"
            return False, f"the last id of {ahead[0]} lies in the future: somebody wrote an id of their own ({way_out})"
        if oldest is None:
            return True, "nothing waits"
        age_s = (now - oldest.micros) / 1e6
        text = f"the oldest entry of {oldest.stream} waits {max(age_s, 0):.0f} s"
        return age_s <= self._waiting_s, text if age_s <= self._waiting_s else f"{text} (limit {self._waiting_s:g} s)"

    def deliveries(self) -> tuple[bool, str]:
        database = self._opened()
        with database.read() as connection:
            now = database.now(connection)
            due = connection.execute(_DUE, {"now": now}).first()
            held = Ledger(database).held_for(connection)
        # No bad health: it would have a probe start the worker again and again for one sink, which mends nothing.
        unopened = [f"; lane {lane} is held: {reason}" for lane, reason in held if reason.startswith(UNOPENED)]
        more = len(unopened) - HELD_SHOWN
        shown = "".join(unopened[:HELD_SHOWN]) + (f"; and {more} lanes more" if more > 0 else "")
        if due is None:
            return True, f"nothing is due{shown}"
        lane, state, late = due
        text = f"the oldest due delivery is {state} in lane {lane}, {late / 1e6:.0f} s late{shown}"
        return late <= self._waiting_s * 1e6, text

    def commands(self) -> tuple[bool, str]:
        with self._opened().read() as connection:
            tenants = list(connection.scalars(sa.text("SELECT id FROM sense_tenant")))
        requests = Database(self._settings.requests_url)
        try:
            check_schema(requests)
            with requests.read() as connection:
                now = requests.now(connection)
                due = connection.execute(_DUE_EXEC, {"now": now}).scalar()
        finally:
            requests.dispose()
        with self._client() as client:
            pulses, redis_now = read_pulses(client, EXEC_HEALTH_KEY), redis_micros(client)
            oldest = oldest_entry(client, tenants, stream_of_exec)
        waits = max(0 if due is None else now - due, 0 if oldest is None else redis_now - oldest.micros) / 1e6
        if waits > self._waiting_s:
            way_out = "run `sense-worker worker --commands`"
            return False, f"the oldest request waits {waits:.0f} s, readers say {pulses.state} ({way_out})"
        return True, "nothing waits" if not waits else f"the oldest request waits {waits:.0f} s"

    def audit(self) -> tuple[bool, str]:
        key = Vault.load(self._settings).derive("audit")
        log = ChainedAudit(self._settings.audit_file, key, clock=lambda: 0)  # a probe writes no moment
        try:
            log.probe()
        finally:
            log.close()
        return True, f"{self._settings.audit_file} can be written"

    def close(self) -> None:
        if self._database is not None:
            self._database.dispose()

    def _client(self) -> redis.Redis:
        if self._url is None:
            raise redis.ConnectionError("no server is known")
        return connect(self._url, timeout_s=5)

    def _opened(self) -> Database:
        if self._database is None:
            self._database = Database(self._settings.database_url)
        return self._database
