"""Run one claimed request in this process: from the sealed row through EXEC_STEPS to its result envelope."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from runtime_core import errors
from runtime_core.audit import AuditRecord
from runtime_core.envelope import ResultEnvelope
from runtime_core.errors import AuditUnavailable, LedgerBusy
from runtime_core.execution import ExecFacts, execute
from sense_worker.drain import RECHECK_S
from sense_worker.exec.replies import encoded
from sense_worker.exec.rest import open_rest
from sense_worker.logs import log
from sense_worker.storage.exec_ledger import ExecLedger
from sinks.raised import origin

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from typing import Self

    from runtime_core.authority import Authority
    from runtime_core.runtime import Runtime
    from sense_worker.exec.rest import Opened
    from sense_worker.ports import Ports
    from sense_worker.storage.exec_ledger import ClaimedExec
    from sense_worker.vault import Vault

RESULT_LIMIT = 1024 * 1024
"""Bytes of an encoded result envelope; a larger one is told as an error."""


class Done(NamedTuple):
    """A request that has ended in this process."""

    claimed: ClaimedExec
    envelope: ResultEnvelope
    encoded: bytes
    """The envelope as it is sealed."""
    began: bool
    """Its adapter was entered, or may have been."""
    write: bool
    """A write began: it is answered only after its row says that it is done."""
    secret: bytes | None
    """Of the request, where it was opened."""
    answered: bool = False
    """Its client has its answer already."""

    @classmethod
    def failed(
        cls, claimed: ClaimedExec, error: str, *, began: bool, write: bool = False, secret: bytes | None = None
    ) -> Self:
        """Return the end of a request without a result."""
        envelope = ResultEnvelope(False, claimed.pack_id, claimed.verb_key, None, error)
        return cls(claimed, envelope, encoded(envelope), began, write, secret)

    @property
    def waited_for(self) -> bool:
        """Whether its row must say that it is done before its client hears of it.

        A write's row keeps it from running twice; one with an idempotency key is what the next who asks is told.
        """
        return self.write or self.claimed.keyed


class Cancellations:
    """The events that end what runs in this process, by request id; an adapter looks its own up."""

    def __init__(self) -> None:
        self._events: dict[str, threading.Event] = {}

    def of(self, request_id: str) -> threading.Event | None:
        """Return the event of a request; None for one that does not run here."""
        return self._events.get(request_id)

    @contextmanager
    def running(self, request_id: str, event: threading.Event) -> Iterator[None]:
        """Know the event while the block runs."""
        self._events[request_id] = event
        try:
            yield
        finally:
            del self._events[request_id]


class Runner:
    """Runs requests; threads share it."""

    def __init__(self, ports: Ports, runtime: Runtime, vault: Vault, cancellations: Cancellations) -> None:
        self._ports = ports
        self._cancellations = cancellations
        self._vault = vault
        self._ledger = ExecLedger(ports.requests)
        self._ahead = 0
        """Microseconds by which the database's clock is ahead of this host's: deadlines are told by the former."""
        self._writing: set[bytes] = set()
        self._runtime = runtime._replace(now=self._now)

    def saw_clock(self, now: int) -> None:
        """Note the database's clock."""
        self._ahead = now - time.time_ns() // 1000

    def writes(self, claimed: ClaimedExec) -> bool:
        """Tell whether a write of the request has begun in this process."""
        return claimed.id in self._writing

    def run(
        self,
        claimed: ClaimedExec,
        cancelled: threading.Event,
        authority: Authority,
        claimed_at: float,
        opened: Opened | None = None,
    ) -> Done | None:
        """Run a request and return how it ended; None where that must not be told, and its lease is left to run out.

        `authority` is what stood at the claim, at a moment of this process's monotonic clock: a run that starts more
        than 100 ms later, and a later step of a composite, reads it again (as deliveries do, DESIGN §6.4). `opened` is
        the request where it is at hand.
        Never raises: what nobody expected is an error of this request alone, told without its text.
        """
        try:
            with self._cancellations.running(claimed.id.hex(), cancelled):
                return self._run(claimed, cancelled, authority, claimed_at, opened or open_rest(self._vault, claimed))
        except AuditUnavailable:
            return None
        except Exception as error:  # noqa: BLE001 - its text may hold args
            what = {"request": claimed.id.hex(), "error": type(error).__name__, "at": origin(error)}
            log().error("command failed unexpectedly", **what)
            if self.writes(claimed):
                return None
            return Done.failed(claimed, "failed: internal", began=not isinstance(error, LedgerBusy))
        finally:
            self._writing.discard(claimed.id)

    def _run(
        self, claimed: ClaimedExec, cancelled: threading.Event, authority: Authority, claimed_at: float, opened: Opened
    ) -> Done:
        unrun = self._unrun(claimed, cancelled)
        if unrun is not None:
            self._runtime.audit.append([_unrun_record(claimed, unrun)])
            lapsed = claimed.lapsed_write
            return Done.failed(claimed, unrun, began=lapsed, write=lapsed, secret=opened.secret)
        facts = ExecFacts(
            *(claimed.tenant, claimed.session_id, opened.project, opened.envelope),
            *(claimed.id.hex(), claimed.deadline_at),
        )

        def newest(tenant: str) -> Authority:
            fresh = time.monotonic() - claimed_at <= RECHECK_S
            return authority if fresh else self._runtime.authority(tenant)

        runtime = self._runtime._replace(authority=newest, may_begin=lambda _: self._may_begin(claimed))
        call = execute(runtime, facts)
        envelope = call.envelope()
        body = encoded(envelope)
        if len(body) > RESULT_LIMIT:
            envelope = envelope._replace(ok=False, result=None, error=errors.OVER_OUTPUT.format(RESULT_LIMIT))
            body = encoded(envelope)
        began = call.refused is None or call.began
        return Done(claimed, envelope, body, began, self.writes(claimed), opened.secret)

    def _unrun(self, claimed: ClaimedExec, cancelled: threading.Event) -> str | None:
        """Tell why a request is not started: a process died in its write, or nobody waits for it any more."""
        if claimed.lapsed_write:
            return errors.INTERRUPTED.text()
        if cancelled.is_set():
            return errors.CANCELLED
        return errors.DEADLINE_PASSED if claimed.deadline_at <= self._now() else None

    def _may_begin(self, claimed: ClaimedExec) -> bool:
        """Mark the write in its row, under the lease; a composite with several writes has marked it once."""
        if self.writes(claimed):
            return True
        with self._ports.requests.write() as connection:
            ours = self._ledger.begin_write(connection, claimed.id, claimed.lease)
        if ours:
            self._writing.add(claimed.id)
        return ours

    def _now(self) -> int:
        return time.time_ns() // 1000 + self._ahead


def _unrun_record(claimed: ClaimedExec, reason: str) -> AuditRecord:
    return AuditRecord(
        action="exec.end" if claimed.lapsed_write else "exec",
        ok=False,
        tenant=claimed.tenant,
        principal=claimed.principal,
        pack_id=claimed.pack_id,
        key=claimed.verb_key,
        operation="write" if claimed.lapsed_write else None,
        subject=claimed.id.hex(),
        reason=reason,
    )
