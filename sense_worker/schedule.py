"""The sweep: rings for what is due, finishes fan-outs, anchors the audit's head, prunes (DESIGN §6.6, §9).

Due times live in rows. One process per worker runs this; a lock in Redis lets one of all hosts ring at a time, and
each host anchors its own audit chain.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from runtime_core.errors import AuditUnavailable, LedgerBusy
from sense_worker.doorbell import Doorbell
from sense_worker.intake.record import Recorder
from sense_worker.logs import configure, log
from sense_worker.nursery import stop_on_signals, stop_with_parent
from sense_worker.ring import sender
from sense_worker.settings import Settings
from sense_worker.storage.anchors import keep_anchor
from sense_worker.storage.exec_ledger import ExecLedger
from sense_worker.storage.inbox import take_in
from sense_worker.wiring import build_ports, redis_client
from sinks.inbox_moves import due_owners

if TYPE_CHECKING:
    import threading

    import redis

    from sense_worker.ports import Ports

SWEEP_LOCK = "sense:sweep"
HELD_EVERY_S = 60.0
"""How often lanes with held deliveries are rung: their sink may be back without an operator's resume."""
LEFT_AFTER_MICROS = 60_000_000
"""A fan-out unfinished for this long has no reader at work on it: a slice takes well under a second."""
DUE_A_TURN = 1_000
"""Inbox items of which one turn takes in what is due for their principals; reading an inbox does so at once."""
PRUNE_EVERY_S = 600.0
PRUNE_EVENTS = 500
"""Events one transaction forgets, so that it holds SQLite's lock for milliseconds."""
DAY_MICROS = 86_400_000_000


class Sweep:
    """One turn after another of what nobody rings for."""

    def __init__(self, ports: Ports, client: redis.Redis, bell: Doorbell, settings: Settings) -> None:
        self._ports = ports
        self._redis = client
        self._bell = bell
        self._settings = settings
        self._exec = ExecLedger(ports.requests)
        self._recorder = Recorder(ports)
        self._held_at = 0.0
        self._anchor_at = 0.0
        self._prune_at = time.monotonic() + PRUNE_EVERY_S
        self._anchored = 0

    def run(self, stop: threading.Event) -> None:
        """Turn until stopped; what is away for a moment is tried again at the next turn, and said once."""
        said = ""
        while not stop.wait(self._settings.sweep_s):
            try:
                self.turn()
            except (LedgerBusy, AuditUnavailable, RedisError) as error:
                if said != type(error).__name__:
                    said = type(error).__name__
                    log().warning("sweep waits", error=f"{said}: {error}")
            else:
                said = ""
        with contextlib.suppress(LedgerBusy, AuditUnavailable):
            self.anchor()

    def turn(self) -> None:
        """Anchor; where this process is the one to do it ring for due rows, finish broken fan-outs and prune."""
        now = time.monotonic()
        if now >= self._anchor_at:
            self._anchor_at = now + self._settings.anchor_s
            self.anchor()
        if not self._redis.set(SWEEP_LOCK, b"1", nx=True, px=max(50, int(self._settings.sweep_s * 900))):
            return
        self.ring(held=now >= self._held_at)
        if now >= self._held_at:
            self._held_at = now + HELD_EVERY_S
            self.finish()
            self.wake()
        if now >= self._prune_at:
            self._prune_at = now if self.prune() else now + PRUNE_EVERY_S

    def ring(self, *, held: bool) -> list[str]:
        """Ring every lane with a due delivery, and those with held ones when `held`; returns the lanes."""
        with self._ports.database.read() as connection:
            moment = self._ports.database.now(connection)
            lanes = self._ports.ledger.due_lanes(connection, moment)
            if held:
                lanes += self._ports.ledger.due_lanes(connection, moment, held=True)
        with self._ports.requests.read() as connection:
            lanes += self._exec.due_lanes(connection, self._ports.requests.now(connection))
        self._bell.ring(lanes)
        return lanes

    def finish(self) -> None:
        """Finish fan-outs that broke off and whose entry is gone: a reader would have, from the entry."""
        with self._ports.database.read() as connection:
            before = self._ports.database.now(connection) - LEFT_AFTER_MICROS
        self._bell.ring(self._recorder.finish_left(before))

    def wake(self) -> None:
        """Let the inbox be true for who reads its tables: what was snoozed until now wakes, all is counted."""
        with self._ports.database.read() as connection:
            owners = due_owners(connection, self._ports.database.now(connection), DUE_A_TURN)
        take_in(self._ports.database, owners)

    def anchor(self) -> None:
        """Keep the audit's head in SQL, where it has moved."""
        head = self._ports.audit.head()
        if head.seq not in (0, self._anchored):
            with self._ports.database.write() as connection:
                rows = self._ports.ledger.rows(connection)
                keep_anchor(rows, self._ports.chain, head, self._ports.database.now(connection))
            self._anchored = head.seq

    def prune(self) -> bool:
        """Forget a batch of each tenant's events past retention; returns whether there may be more.

        One batch a turn, so that a long history neither keeps lanes from being rung nor a stop waiting.
        """
        with self._ports.database.read() as connection:
            tenants = self._ports.ledger.tenants(connection)
            now = self._ports.database.now(connection)
        before = now - self._settings.retention_days * DAY_MICROS
        replies_before = now - int(self._settings.exec_result_s * 1e6)
        with self._ports.requests.write() as connection:
            more = self._exec.forget(connection, replies_before, before, PRUNE_EVENTS) == PRUNE_EVENTS
        for tenant in tenants:
            with self._ports.database.write() as connection:
                more |= self._ports.ledger.forget(connection, tenant, before, PRUNE_EVENTS) == PRUNE_EVENTS
        return more


def main(_index: int, parent: int) -> None:
    """Sweep until SIGTERM, or until the worker that started this process is gone."""
    settings = Settings.load()
    configure(settings)
    stop = stop_on_signals()
    ports = build_ports(settings)
    stop_with_parent(stop, parent, lambda: None, 1.0)
    Sweep(ports, redis_client(settings), Doorbell(redis_client(settings), sender(settings)), settings).run(stop)
    ports.close()
