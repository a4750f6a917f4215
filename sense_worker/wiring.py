"""The composition root: builds what a process needs from the settings, once (DESIGN §2)."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Protocol

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from runtime_core.errors import AuditUnavailable, HcpError, LedgerBusy, LedgerLost, SettingsError
from sense_worker.doorbell import Doorbell
from sense_worker.drain import Drain
from sense_worker.home import OPENING_FOLDER, audit_log, chain_name, sink_kinds
from sense_worker.logs import log
from sense_worker.open_sinks import OpenSinks
from sense_worker.opening import Marks
from sense_worker.ports import Ports
from sense_worker.retry import Schedule
from sense_worker.storage.authorities import Authorities
from sense_worker.storage.authority import SqlAuthoritySource
from sense_worker.storage.engine import Database
from sense_worker.storage.ledger import Ledger
from sense_worker.vault import Vault

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_core.audit_files import Head
    from sense_worker.settings import Settings
    from sinks.registry import Registry

REDIS_TIMEOUT_S = 5.0
"""How long an answer may take before the connection counts as lost; a blocking read adds its block time."""


def redis_client(settings: Settings, *, block_s: float = 0.0) -> redis.Redis:
    """Return a client of its own for one purpose; `block_s` is the longest blocking read it will do.

    The client's own retries are off: each loop has its pauses, and a retried XADD or LPUSH is a duplicate. Protocol 2
    keeps replies in one shape on Redis 7.0 and later and on Valkey.
    """
    if settings.redis_url is None:
        raise SettingsError("SENSE_REDIS_URL", "is not set", "run `sense-worker up`, or set it")
    return redis.Redis.from_url(
        settings.redis_url,
        socket_timeout=REDIS_TIMEOUT_S + block_s,
        socket_connect_timeout=REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )


def build_ports(settings: Settings, registry: Registry | None = None) -> Ports:
    """Return the ports of this process; to be called after the fork."""
    vault = Vault.load(settings)
    kinds = sink_kinds(settings) if registry is None else registry
    database = Database(settings.database_url, on_lost=end_lost)
    beside = settings.requests_url != settings.database_url
    requests = Database(settings.requests_url, on_lost=end_lost) if beside else database
    rotated: deque[Head] = deque()
    return Ports(
        database=database,
        requests=requests,
        ledger=Ledger(database),
        authorities=Authorities(database, SqlAuthoritySource(database, kinds, vault)),
        audit=audit_log(settings, vault, rotated.append),
        sinks=OpenSinks(kinds, vault, Marks(settings.home / OPENING_FOLDER), settings.crash_limit),
        schedule=Schedule(settings.retry_schedule_s, settings.retry_jitter),
        crash_limit=settings.crash_limit,
        freshness_s=settings.freshness_s,
        lease_slack_s=settings.lease_slack_s,
        rotated=rotated,
        chain=chain_name(settings),
    )


def end_hung(lane: str) -> None:
    """End this process, whose sink does not answer: it is started again, and what it had claimed runs alone then."""
    log().error("process ends: its sink does not answer", lane=lane)
    os._exit(1)


def end_lost(error: LedgerLost) -> None:
    """End this process at once, whose ledger nobody else can read: nothing more is acknowledged into it.

    What it knows of the old file (versions, snapshots) must not be taken for the new one's, so it does not go on.
    """
    log().error("process ends: its ledger is gone", error=str(error))
    os._exit(1)


class LaneDrain(Protocol):
    """Drains one lane until it is empty or its turn is over: `Drain` of deliveries, `ExecDrain` of requests."""

    def run(self, lane: str, bell: Doorbell, linger_s: float, /) -> None: ...

    def finish(self) -> None: ...


class PoolProcess:
    """A pool child's drain: what it needs is built on the first doorbell after the fork, and kept.

    `make` returns the drain over the ports of this process.
    """

    def __init__(
        self, settings: Settings, send: Callable[[str], object], make: Callable[[Settings, Ports], LaneDrain]
    ) -> None:
        self._settings = settings
        self._send = send
        self._make = make
        self._pid = 0
        self._ports: Ports | None = None
        self._built: tuple[LaneDrain, Doorbell] | None = None

    def run(self, lane: str) -> None:
        """Drain one lane until it is empty or its turn is over."""
        try:
            drain, bell = self._build()
            drain.run(lane, bell, self._settings.linger_s)
        except (HcpError, RedisError) as error:
            # Nothing is lost: rows claimed are taken over when their lease runs out, and the sweep rings again.
            log().warning("drain broken off", lane=lane, error=f"{type(error).__name__}: {error}")
            if not isinstance(error, LedgerBusy | AuditUnavailable | RedisError):
                self._forget()

    def finish(self) -> None:
        """Wait for what the drain of this process has under way; it runs no further."""
        if self._built is not None and self._pid == os.getpid():
            self._built[0].finish()

    def _build(self) -> tuple[LaneDrain, Doorbell]:
        if self._built is None or self._pid != os.getpid():
            settings, self._pid = self._settings, os.getpid()
            self._ports = build_ports(settings)
            bell = Doorbell(redis_client(settings, block_s=settings.linger_s), self._send)
            self._built = self._make(settings, self._ports), bell
        return self._built

    def _forget(self) -> None:
        """Let go of what was built: a fault of what was read then (a key, a setting) may be mended at the next ring."""
        if self._ports is not None:
            self._ports.close()
        self._ports = self._built = None


def delivery_drain(_settings: Settings, ports: Ports) -> LaneDrain:
    """Return the drain of deliveries; a sink that does not answer ends its process."""
    return Drain(ports, on_hung=end_hung)
