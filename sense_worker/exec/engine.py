"""Engine: runs claimed requests in threads, answers them, and settles them in batches (DESIGN §8).

A drain feeds one with what it claims from a lane; a reader feeds one with the reads it has just recorded. One thread
owns what has ended: sixteen requests at once cost a commit and not sixteen. A read is answered before it is settled: if
this process dies in between it runs again, and its client has its first answer. So it may also wait a moment for others
to be settled with. A write is answered after, because its row is what keeps it from running twice; so is a request with
an idempotency key, because whoever asks next is told by its row.
"""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from redis.exceptions import RedisError

from runtime_core.errors import HcpError, LedgerBusy
from sense_worker.exec.record import LEASE_S, cancel_key
from sense_worker.exec.replies import push
from sense_worker.exec.rest import reply_to
from sense_worker.exec.run import Done
from sense_worker.logs import log
from sense_worker.storage.exec_ledger import ClaimedExec, ExecLedger, ExecSettlement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import redis

    from runtime_core.authority import Authority
    from sense_worker.exec.replies import Reply
    from sense_worker.exec.rest import Opened
    from sense_worker.exec.run import Runner
    from sense_worker.ports import Ports
    from sense_worker.storage.engine import Database
    from sense_worker.storage.exec_ledger import Waiting
    from sense_worker.vault import Vault

_T = TypeVar("_T")

RENEW_S = 5.0
LOOK_S = 0.2
"""How often a running request is looked at: whether it is cancelled."""

News = Done | ClaimedExec | None
"""What the owner hears: an end, an end that must not be told (it stays claimed), or (None) a call from outside."""


class _Running(NamedTuple):
    claimed: ClaimedExec
    opened: Opened | None
    cancelled: threading.Event


class Engine:
    """Runs up to `width` requests at a time in this process. `start` may be called by any thread, the rest by one."""

    def __init__(
        self,
        ports: Ports,
        relaxed: Database,
        runner: Runner,
        vault: Vault,
        client: redis.Redis,
        *,
        width: int,
        keep_s: float,
        settle_s: float = 0.0,
    ) -> None:
        self._ports = ports
        self._relaxed = relaxed
        self._runner = runner
        self._vault = vault
        self._redis = client
        self._width = width
        self._keep_s = keep_s
        self._settle_s = settle_s
        self._ledger = ExecLedger(ports.requests)
        self._lock = threading.Lock()
        self._running: dict[bytes, _Running] = {}
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(width, thread_name_prefix="exec")
        self._ended: list[Done] = []
        self._owed: list[Reply] = []
        self._ended_at = 0.0
        self._looked = self._tended = time.monotonic()

    @property
    def free(self) -> int:
        """How many requests can start now."""
        return self._width - len(self._running)

    @property
    def busy(self) -> bool:
        """Whether anything runs, or has ended and is not settled, or not answered."""
        return bool(self._running or self._ended or self._owed)

    def start(
        self,
        claims: Sequence[ClaimedExec],
        authorities: Mapping[str, Authority],
        now: int,
        unwanted: Collection[bytes] = (),
        opened: Mapping[bytes, Opened] | None = None,
    ) -> None:
        """Run claimed requests; `authorities` and the database's clock `now` are of the transaction that claimed.

        Those whose id is in `unwanted` were cancelled before their start; what is in `opened` need not be opened.
        """
        self._runner.saw_clock(now)
        claimed_at = time.monotonic()
        for one in claims:
            running = _Running(one, opened.get(one.id) if opened else None, threading.Event())
            if one.id in unwanted:
                running.cancelled.set()
            with self._lock:
                self._running[one.id] = running
            self._pool.submit(self._execute, running, authorities[one.tenant], claimed_at)

    def call(self) -> None:
        """Wake the owner."""
        self._news.put(None)

    def hear(self, wait_s: float) -> list[News]:
        """Return all that is to hear, waiting for the first of it while what has ended can wait."""
        heard: list[News] = []
        if self._ended:
            wait_s = min(wait_s, max(0.001, self._ended_at + self._settle_s - time.monotonic()))
        try:
            heard.append(self._news.get(timeout=wait_s))
            while True:
                heard.append(self._news.get_nowait())
        except queue.Empty:
            return heard

    def settle(self, heard: Sequence[News], lane: str | None) -> None:
        """Answer and settle what has ended; claim from `lane` what there is room for, in the same transaction.

        Without a lane reads that are answered wait for up to `settle_s` for others, to be settled with them. Raises
        LedgerBusy where the database was away for as long as a lease lasts, and RedisError.
        """
        done = [one for one in heard if isinstance(one, Done)]
        with self._lock:
            for one in heard:
                if one is not None:
                    self._running.pop((one.claimed if isinstance(one, Done) else one).id, None)
        if done and not self._ended:
            self._ended_at = time.monotonic()
        self._ended += done
        self._owe(self._reply(one) for one in done if not one.waited_for and not one.answered)
        with suppress(RedisError):  # what cannot be said now is owed, and what has ended is settled all the same
            self._pay()
        if lane is not None or self._pressing():
            done, self._ended = self._ended, []
            self._settle(done, lane)
        self._pay()

    def tend(self) -> bool:
        """Look after what runs: end what is cancelled, keep its lease. Returns whether leases were kept now."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return False
        self._looked = now
        running = list(self._running.values())
        unwanted = self._unwanted([one.claimed for one in running])
        for one in running:
            force = unwanted.get(one.claimed.id)
            if force is not None and (force or not self._runner.writes(one.claimed)):
                one.cancelled.set()
        if now - self._tended < RENEW_S:
            return False
        self._tended = now
        with self._relaxed.write() as connection:
            due = self._relaxed.now(connection) + int(LEASE_S * 1e6)
            self._ledger.renew(connection, [one.claimed for one in running], due)
        return True

    def close(self) -> None:
        """Wait for what runs; it is left to its lease."""
        self._pool.shutdown(wait=True)

    def _execute(self, running: _Running, authority: Authority, claimed_at: float) -> None:
        done = self._runner.run(running.claimed, running.cancelled, authority, claimed_at, running.opened)
        if done is not None and not done.waited_for and len(self._running) == 1:
            # Nothing else to answer with it in one trip: its client need not wait for the owner's turn.
            reply = self._reply(done)
            with suppress(RedisError):
                push(self._redis, [] if reply is None else [reply], self._keep_s)
                done = done._replace(answered=True)
        self._news.put(running.claimed if done is None else done)

    def _pressing(self) -> bool:
        """Whether what has ended must be settled now: a client waits for that, or the first has waited long enough."""
        if any(one.waited_for for one in self._ended):
            return True
        return bool(self._ended) and time.monotonic() - self._ended_at >= self._settle_s

    def _settle(self, done: Sequence[Done], lane: str | None) -> None:
        """Settle and claim, and start what was claimed. What stands after the commit is asked for by itself again."""
        answers, claims, now = _until_free(lambda: self._settled(done, lane))
        self._owe(answers)
        self._owe(self._reply(one) for one in done if one.waited_for)
        if not claims:
            return
        # Read after the claim: what was withdrawn before it holds for what starts now.
        authorities = _until_free(lambda: self._ports.authorities.newest({one.tenant for one in claims}))
        unwanted: dict[bytes, bool] = {}
        with suppress(RedisError):  # `tend` looks again
            unwanted = self._unwanted(claims)
        self.start(claims, authorities, now, unwanted)

    def _settled(self, done: Sequence[Done], lane: str | None) -> tuple[list[Reply | None], list[ClaimedExec], int]:
        """Write how requests ended and claim others; returns answers to those who wait for the same, claims, clock."""
        settlements = [
            ExecSettlement(one.claimed, one.envelope.ok, one.envelope.error, self._vault.seal(one.encoded), one.began)
            for one in done
        ]
        free = 0 if lane is None else self.free
        claims: list[ClaimedExec] = []
        # A power cut may undo the end of a read, which runs again, and a claim. The end of a write waits for the disk.
        database = self._ports.requests if any(one.write for one in done) else self._relaxed
        with database.write() as connection:
            now = database.now(connection)
            self._ledger.settle(connection, settlements, now)
            waiting = self._ledger.settle_aliases(connection, settlements, now)
            if lane is not None and free:
                claims = self._ledger.claim(connection, lane, free, int(LEASE_S * 1e6), now)
        return [self._sealed(row, self._vault.open(one.reply)) for one, row in waiting], claims, now

    def _unwanted(self, claims: Sequence[ClaimedExec]) -> dict[bytes, bool]:
        """Return the requests that their clients have cancelled, and whether by force."""
        if not claims:
            return {}
        found = self._redis.mget([cancel_key(one.id.hex()) for one in claims])
        marks = zip(claims, found, strict=True)
        return {one.id: mark == b"force" for one, mark in marks if mark is not None}

    def _reply(self, one: Done) -> Reply | None:
        return self._sealed(one.claimed, one.encoded, one.secret)

    def _sealed(self, row: ClaimedExec | Waiting, encoded: bytes, secret: bytes | None = None) -> Reply | None:
        """Seal an answer; None where no key opens the request: its client cannot be told."""
        try:
            return reply_to(self._vault, row, encoded, secret)
        except HcpError as error:
            log().error("request not answered", request=row.id.hex(), error=str(error))
            return None

    def _owe(self, replies: Iterable[Reply | None]) -> None:
        self._owed += [reply for reply in replies if reply is not None]

    def _pay(self) -> None:
        """Say what is owed; raises RedisError, and it stays owed."""
        if self._owed:
            push(self._redis, self._owed, self._keep_s)
            self._owed.clear()


def _until_free(ask: Callable[[], _T]) -> _T:
    """Ask a database that is away for a moment again, while the leases last."""
    pause, begun = 0.02, time.monotonic()
    while True:
        try:
            return ask()
        except LedgerBusy:
            if time.monotonic() - begun > LEASE_S:
                raise
            time.sleep(pause)
            pause = min(2 * pause, 1.0)
