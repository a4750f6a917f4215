"""ExecDrain: claim → execute → answer → settle, until a lane is empty (DESIGN §8).

One thread owns the lane: it settles what has ended and claims what can start, both in one transaction, so that sixteen
requests at once cost a commit and not sixteen. Commands run in threads (`run.py`). A read is answered before it is
settled: if this process dies in between it runs again, and its client has its first answer. A write is answered after,
because its row is what keeps it from running twice.
"""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from runtime_core.errors import LedgerBusy
from sense_worker.exec.record import cancel_key
from sense_worker.exec.replies import encoded, push
from sense_worker.exec.rest import reply_to
from sense_worker.exec.run import Done
from sense_worker.storage.exec_ledger import ClaimedExec, ExecLedger, ExecSettlement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import redis

    from sense_worker.doorbell import Doorbell
    from sense_worker.exec.replies import Reply
    from sense_worker.exec.run import Runner
    from sense_worker.ports import Ports
    from sense_worker.vault import Vault

TURN_S = 5.0
"""A drain gives its Celery slot back after this long and what runs then, so that a stop is prompt."""
LEASE_S = 30.0
"""How long a request stays ours without a sign; renewed while it runs, so that only a dead process lapses."""
RENEW_S = 5.0
LOOK_S = 0.2
"""How often a running request is looked at: whether it is cancelled."""

News = Done | ClaimedExec | None
"""What the lane's thread hears: an end, an end that must not be told (it stays claimed), or the bell."""


class _Running(NamedTuple):
    claimed: ClaimedExec
    cancelled: threading.Event


class ExecDrain:
    """Drains exec lanes in this process, `width` commands at a time."""

    def __init__(
        self, ports: Ports, runner: Runner, vault: Vault, client: redis.Redis, *, width: int, keep_s: float
    ) -> None:
        self._ports = ports
        self._runner = runner
        self._vault = vault
        self._redis = client
        self._width = width
        self._keep_s = keep_s
        self._ledger = ExecLedger(ports.database)
        self._running: dict[bytes, _Running] = {}

    def run(self, lane: str, bell: Doorbell, linger_s: float) -> None:
        """Drain a lane until it is empty and no ring comes for `linger_s`, or its turn is over.

        Raises LedgerBusy and RedisError: what was claimed is taken over when its lease runs out.
        """
        bell.start(lane)
        news: queue.SimpleQueue[News] = queue.SimpleQueue()
        ends = time.monotonic() + TURN_S
        with _listening(bell, lane, news), ThreadPoolExecutor(self._width, thread_name_prefix="exec") as pool:
            heard: list[News] = [None]
            tended = time.monotonic()
            while True:
                claiming = time.monotonic() < ends
                if heard:
                    self._turn(lane, pool, news, heard, claiming=claiming)
                if not self._running and not claiming:
                    break
                heard = _next(news, LOOK_S if self._running else linger_s)
                if self._running:
                    tended = self._tend(lane, bell, tended)
                elif not heard:
                    if not bell.stop(lane):
                        return
                    bell.start(lane)
                    heard = [None]
        bell.stop(lane)
        bell.ring([lane])

    def _turn(
        self,
        lane: str,
        pool: ThreadPoolExecutor,
        news: queue.SimpleQueue[News],
        heard: Sequence[News],
        *,
        claiming: bool,
    ) -> None:
        """Answer and settle what has ended; claim and start what there is room for."""
        done = [one for one in heard if isinstance(one, Done)]
        self._push([self._reply(one) for one in done if not one.write])
        for one in heard:
            if one is not None:
                self._running.pop((one.claimed if isinstance(one, Done) else one).id, None)
        claims, aliased = self._until_settled(lane, done, claiming=claiming)
        self._push([*(self._reply(one) for one in done if one.write), *aliased])
        unwanted = self._unwanted(claims)
        for claimed in claims:
            running = self._running[claimed.id] = _Running(claimed, threading.Event())
            if claimed.id in unwanted:
                running.cancelled.set()
            pool.submit(self._execute, running, news)

    def _execute(self, running: _Running, news: queue.SimpleQueue[News]) -> None:
        done = self._runner.run(running.claimed, running.cancelled)
        news.put(running.claimed if done is None else done)

    def _until_settled(
        self, lane: str, done: Sequence[Done], *, claiming: bool
    ) -> tuple[list[ClaimedExec], list[Reply]]:
        """Settle and claim; a database that is away for a moment is asked again while the leases last."""
        pause, begun = 0.02, time.monotonic()
        while True:
            try:
                return self._settle_and_claim(lane, done, claiming=claiming)
            except LedgerBusy:
                if time.monotonic() - begun > LEASE_S:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 1.0)

    def _settle_and_claim(
        self, lane: str, done: Sequence[Done], *, claiming: bool
    ) -> tuple[list[ClaimedExec], list[Reply]]:
        settlements = [
            ExecSettlement(one.claimed, one.envelope.ok, one.envelope.error, self._vault.seal(encoded(one.envelope)))
            for one in done
        ]
        free = self._width - len(self._running) if claiming else 0
        with self._ports.database.write() as connection:
            now = self._ports.database.now(connection)
            self._ledger.settle(connection, settlements, now)
            waiting = self._ledger.settle_aliases(connection, settlements, now)
            claims = self._ledger.claim(connection, lane, free, int(LEASE_S * 1e6), now) if free else []
        self._runner.saw_clock(now)
        aliased = [reply_to(self._vault, row, self._vault.open(settlement.reply)) for settlement, row in waiting]
        return claims, aliased

    def _tend(self, lane: str, bell: Doorbell, tended: float) -> float:
        """Look after what runs: end what is cancelled, keep its lease; returns when this was last done in full."""
        unwanted = self._unwanted([one.claimed for one in self._running.values()])
        for running in self._running.values():
            force = unwanted.get(running.claimed.id)
            if force is not None and (force or not self._runner.writes(running.claimed)):
                running.cancelled.set()
        now = time.monotonic()
        if now - tended < RENEW_S:
            return tended
        with self._ports.database.write() as connection:
            due = self._ports.database.now(connection) + int(LEASE_S * 1e6)
            self._ledger.renew(connection, [one.claimed for one in self._running.values()], due)
        bell.at_work(lane)
        return now

    def _unwanted(self, claims: Sequence[ClaimedExec]) -> dict[bytes, bool]:
        """Return the requests that their clients have cancelled, and whether by force."""
        if not claims:
            return {}
        found = self._redis.mget([cancel_key(one.id.hex()) for one in claims])
        marks = zip(claims, found, strict=True)
        return {one.id: mark == b"force" for one, mark in marks if mark is not None}

    def _reply(self, one: Done) -> Reply:
        return reply_to(self._vault, one.claimed, encoded(one.envelope))

    def _push(self, replies: Sequence[Reply]) -> None:
        if replies:
            push(self._redis, replies, self._keep_s)


@contextmanager
def _listening(bell: Doorbell, lane: str, news: queue.SimpleQueue[News]) -> Iterator[None]:
    """Put the lane's rings among the news while the block runs."""
    stop = threading.Event()

    def listen() -> None:
        while not stop.is_set():
            if bell.wait(lane, LOOK_S):
                news.put(None)

    thread = threading.Thread(target=listen, name="exec-bell", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _next(news: queue.SimpleQueue[News], wait_s: float) -> list[News]:
    """Return all that is to hear, waiting for the first of it."""
    heard: list[News] = []
    try:
        heard.append(news.get(timeout=wait_s))
        while True:
            heard.append(news.get_nowait())
    except queue.Empty:
        return heard
