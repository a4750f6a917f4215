"""Drain: claim → judge → hand over → audit → settle, until a lane is empty (DESIGN §6.4).

One transaction claims and judges, under the authority versions it reads: a delivery claimed after a revocation has
committed is denied. What is decided there (denied, cancelled, held, and everything of a transactional sink) is settled
there; the rest is handed to the sink outside any transaction and settled in a second one, fenced by its lease.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.exceptions import RedisError

from runtime_core import pipeline
from runtime_core.errors import AuditUnavailable, LedgerBusy
from sense_worker.attempts import sink_view
from sense_worker.judging import Judging
from sense_worker.logs import log
from sense_worker.sink_call import call_sink
from sense_worker.storage.engine import BUSY_TIMEOUT_S
from sense_worker.storage.lanes import split_lane
from sense_worker.storage.sinks import disable_sink
from sinks.declared import CONCURRENCY_LIMIT
from sinks.protocol import Delivered, Rejected
from sinks.raised import kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import sqlalchemy as sa

    from runtime_core.pipeline import Attempt
    from sense_worker.attempts import Judged
    from sense_worker.doorbell import Doorbell
    from sense_worker.open_sinks import OpenSink
    from sense_worker.ports import Ports
    from sense_worker.storage.records import Claimed
    from sinks.protocol import Outcome

TURN_S = 5.0
"""A drain gives its Celery slot back after this long, so that lanes take turns and a stop is prompt."""
PATIENCE_S = 0.5
"""A drain with nothing to start, whose calls give no sign for this long, gives its slot back: they end without it."""
RECHECK_S = 0.1
"""A hand-over that starts later than this after its claim reads the authority versions again (DESIGN §6.4)."""
HUNG_S = 2.0
"""A call that is out this long after its lease ran out is given up."""


class Work(NamedTuple):
    """Judged batches of one lane, claimed at a moment of this process's monotonic clock."""

    opened: OpenSink
    batches: list[list[Judged]]
    claimed_at: float

    @property
    def alone(self) -> bool:
        """A row that may end its process is among them; nothing else is (DESIGN §6.5)."""
        return any(one.claimed.alone for batch in self.batches for one in batch)


class Nothing(Enum):
    """Why a claim took nothing."""

    DUE = auto()
    """Nothing waits that could be handed over now; or the sink cannot be used, and all of it is held."""
    OPENING = auto()
    """The sink is being opened, and that takes a while."""
    FREE = auto()
    """As many calls as the sink allows are out, here or elsewhere; when one ends there is something to claim."""


class Drain:
    """Drains lanes in this process. `by` names it in the attempt rows.

    A slot of the pool is for claiming and judging. A call to a sink has a thread; one that takes long is left to it:
    it settles by itself and rings its lane, so that sinks that hang hold no slot of the others (C44).

    `on_hung` is called, from a thread of its own, with the lane of a sink that has not answered though the lease has
    run out: a thread cannot be ended, so a process that is to go on must end itself, or the call holds it for ever.
    """

    def __init__(self, ports: Ports, by: str = "drain", on_hung: Callable[[str], None] | None = None) -> None:
        self._ports = ports
        self._by = by
        self._judging = Judging(ports, by)
        self._on_hung = on_hung
        self._out: set[Future[None]] = set()
        self._held: dict[str, str] = {}
        """Of each lane that is held, the reason that its rows have."""
        # Who finds SQLite's file locked looks again after pauses of 1, 2, 5, 10 ms: the threads of one process, whose
        # transactions take 5, wait for each other here instead.
        one_writer = ports.database.kind == "sqlite"
        self._writing: AbstractContextManager[Any] = _OneAtATime() if one_writer else contextlib.nullcontext()

    def run(self, lane: str, bell: Doorbell, linger_s: float) -> None:
        """Drain a lane until it is empty and no ring comes for `linger_s`, or nothing moves, or its turn is over."""
        bell.start(lane)
        out: set[Future[None]] = set()
        # As many threads as a sink may have calls: a claimed batch that waits for one would outlive its lease.
        calls = ThreadPoolExecutor(CONCURRENCY_LIMIT, thread_name_prefix="deliver")
        try:
            again = self._turn(lane, bell, linger_s, calls, out)
        finally:
            calls.shutdown(wait=False)
            for future in out:
                future.add_done_callback(partial(self._came_back, lane, bell))
        if again:
            bell.stop(lane)
            bell.ring([lane])

    def finish(self) -> None:
        """Wait for the calls that are out, each at the longest until its lease has run out; for an orderly stop."""
        wait(set(self._out))

    def _turn(
        self, lane: str, bell: Doorbell, linger_s: float, calls: ThreadPoolExecutor, out: set[Future[None]]
    ) -> bool:
        """Take a turn and return whether the lane wants another one; `out` then holds the calls that are left."""
        ends = time.monotonic() + TURN_S
        limit = 1
        while time.monotonic() < ends:
            # With as many calls out as the sink allows a transaction would only say so.
            work = self.claim(lane) if len(out) < limit else Nothing.FREE
            if isinstance(work, Work):
                limit = work.opened.traits.concurrency
                out |= self._begun(calls, work)
                if work.alone:
                    wait(out)  # whatever else ran here would lose its calls with it
            elif work is Nothing.FREE and not out:
                bell.rest(lane)
                return False
            elif not out and not bell.wait(lane, linger_s) and not bell.stop(lane):
                return False
            if not out:
                continue
            done, rest = wait(out, timeout=PATIENCE_S, return_when=FIRST_COMPLETED)
            out &= rest
            for future in done:
                future.result()
            bell.at_work(lane)
            if not done and not isinstance(work, Work):
                # Where all calls are out, what rang meanwhile waits for the first that ends, which rings.
                return bell.stop(lane) and work is Nothing.DUE
        return True

    def _begun(self, calls: ThreadPoolExecutor, work: Work) -> set[Future[None]]:
        begun = {calls.submit(self.hand_over, work.opened, batch, work.claimed_at) for batch in work.batches}
        self._out |= begun
        for future in begun:
            future.add_done_callback(self._out.discard)
        return begun

    def _came_back(self, lane: str, bell: Doorbell, future: Future[None]) -> None:
        """A call that was left has ended: its lane is rung, for it may have kept others waiting."""
        error = future.exception()
        if error is not None:
            log().warning("hand-over broken off", lane=lane, error=f"{type(error).__name__}: {error}")
        with contextlib.suppress(RedisError):  # the sweep rings too
            bell.stop(lane)
            bell.ring([lane])

    def claim(self, lane: str) -> Work | Nothing:
        """Claim what the lane can start now and settle what is decided by judging.

        Raises LedgerBusy and AuditUnavailable: nothing was claimed then.
        """
        work = self._claimed(lane)
        if work is Nothing.OPENING:
            # Outside of the transaction. What takes longer yet stays due, and the sweep rings.
            self._ports.sinks.wait(*split_lane(lane))
            work = self._claimed(lane)
        return Nothing.DUE if work is Nothing.OPENING else work

    def _claimed(self, lane: str) -> Work | Nothing:
        self._ports.audit.probe()
        with self._writing, self._ports.database.write() as connection:
            found = self._claimed_within(connection, lane)
        if isinstance(found, str):
            self._held[lane] = found
            return Nothing.DUE
        if found is not Nothing.OPENING:
            self._held.pop(lane, None)
        return found

    def _claimed_within(self, connection: sa.Connection, lane: str) -> Work | Nothing | str:
        """Claim and judge in the transaction of `connection`; a text is the reason for which the lane is held."""
        ports = self._ports
        tenant, name = split_lane(lane)
        claimed_at, now = time.monotonic(), ports.database.now(connection)
        authority = ports.authorities.locked(connection, [tenant])[tenant]
        sink = authority.sink(name)
        opened = ports.sinks.get(ports.ledger.rows(connection), authority, name)
        if sink is None or isinstance(opened, str):
            reason = str(opened)
            ports.ledger.hold_lane(connection, lane, reason, renamed=self._held.get(lane) != reason)
            return reason
        if opened is None:
            return Nothing.OPENING
        ports.ledger.release_lane(connection, lane, now)
        traits = opened.traits
        claims = ports.ledger.claim(
            connection,
            lane,
            calls=traits.concurrency,
            batch=traits.batch_size,
            lease_micros=int((traits.deadline_s + ports.lease_slack_s) * 1e6),
            now=now,
            company=bool(self._out),
        )
        if claims is None:
            return Nothing.FREE
        batches = [self._judging.judge(connection, authority, sink, opened, claim, now) for claim in claims]
        return Work(opened, [batch for batch in batches if batch], claimed_at) if claims else Nothing.DUE

    def hand_over(self, opened: OpenSink, batch: Sequence[Judged], claimed_at: float) -> None:
        """Deliver one judged batch to its sink, record it and settle it where the lease is still ours.

        `claimed_at` is the monotonic moment of the claim. Nothing is done where the call might outlive the lease, and
        LedgerBusy or AuditUnavailable is raised where the outcome could not be recorded until it ran out: another
        drain then delivers, under the same id.
        """
        waited = time.monotonic() - claimed_at
        if waited > self._ports.lease_slack_s:
            lane = batch[0].claimed.lane
            log().warning("hand-over too late, left to its lease", lane=lane, waited_s=round(waited, 1))
            return
        if waited > RECHECK_S:
            batch = self._judging.judge_again(opened, batch)
        ends = claimed_at + opened.traits.deadline_s + self._ports.lease_slack_s
        outcomes: list[Outcome] = []

        def call(_admitted: Sequence[Attempt]) -> list[str | None]:
            with self._watched(batch[0].claimed.lane, ends):
                outcomes.extend(call_sink(opened.sink, [sink_view(one) for one in batch]))
            return [None if isinstance(outcome, Delivered) else outcome.reason for outcome in outcomes]

        attempts = pipeline.deliver([one.attempt for one in batch], call)
        closed = list(zip([one.claimed for one in batch], attempts, outcomes, strict=True))
        if closed:
            self._record(closed, ends)

    @contextlib.contextmanager
    def _watched(self, lane: str, ends: float) -> Iterator[None]:
        """Call `on_hung` where the block is not left until shortly after `ends`: nothing could be settled then."""
        if self._on_hung is None:
            yield
            return
        watch = threading.Timer(ends + HUNG_S - time.monotonic(), self._on_hung, (lane,))
        watch.daemon = True
        watch.start()
        try:
            yield
        finally:
            watch.cancel()

    def _record(self, closed: Sequence[tuple[Claimed, Attempt, Outcome]], ends: float) -> None:
        """Audit, then settle; both may be away for a moment, and there is time until the lease runs out."""
        ports = self._ports
        audited = False
        pause = 0.05
        while True:
            try:
                if not audited:
                    pipeline.audit([attempt for _, attempt, _ in closed], ports.audit)
                    audited = True
                with self._writing, ports.database.write() as connection:
                    now = ports.database.now(connection)
                    self._stop_sink(connection, closed, now)
                    settlements = [self._judging.settlement(*one, now) for one in closed]
                    ports.ledger.settle(connection, settlements, now, self._by)
                ports.anchor_rotated()
            except (AuditUnavailable, LedgerBusy):
                if time.monotonic() + pause > ends:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 2.0)
            else:
                return

    def _stop_sink(
        self, connection: sa.Connection, closed: Sequence[tuple[Claimed, Attempt, Outcome]], now: int
    ) -> None:
        """A sink that says stop is disabled; its other deliveries are held until an operator resumes it."""
        for claimed, _, outcome in closed:
            if isinstance(outcome, Rejected) and outcome.stop:
                rows = self._ports.ledger.rows(connection)
                disable_sink(connection, rows, claimed.lane, kept(outcome.reason), now)
                return


class _OneAtATime:
    """A lock as a context manager, waited for as long as SQLite waits for its own. Raises LedgerBusy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=BUSY_TIMEOUT_S):
            raise LedgerBusy("database", "another thread of this process writes", "it is tried again by itself")

    def __exit__(self, *_: object) -> None:
        self._lock.release()
