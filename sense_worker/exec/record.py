"""Record: a batch of request entries becomes rows in one transaction; refusals and known results are answered.

    admit → begin; lock the tenants' versions → what is known by id or idempotency key → insert the rest → audit; commit
    → replies, lanes to ring, reads to start here

Built like `intake.record.Recorder`, for the same loop: an entry leaves the stream after its row has committed. As a
delivery to a local sink is born under its reader's lease, so is an interactive read while the reader's engine has room:
it costs no doorbell, no claim and no hop to the pool. A known write goes to the pool, whose stop waits for it longer.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from runtime_core.audit import AuditRecord
from runtime_core.envelope import ResultEnvelope
from runtime_core.errors import CANCELLED
from sense_worker.exec.door import Asked, RefusedExec, Withdrawn, admit_exec, exec_id
from sense_worker.exec.replies import REFUSED, Reply, encoded, make_reply, push
from sense_worker.exec.rest import Opened, put_to_rest, reply_to
from sense_worker.intake.dead import dead_record
from sense_worker.intake.door import Turned
from sense_worker.intake.record import Recorded
from sense_worker.storage.exec_ledger import DONE, PENDING, ExecKnown, ExecLedger, ExecRecord
from sense_worker.storage.ledger import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import redis
    import sqlalchemy as sa

    from runtime_core.authority import Authority
    from sense_worker.exec.door import Sender
    from sense_worker.exec.engine import Engine
    from sense_worker.intake.stream import StreamEntry
    from sense_worker.ports import Ports
    from sense_worker.storage.engine import Database
    from sense_worker.storage.exec_ledger import ClaimedExec, Waiting
    from sense_worker.vault import Vault

LANES = {"interactive": "exec.interactive", "bulk": "exec.bulk"}
LEASE_S = 30.0
"""How long a request stays a process's own without a sign; renewed while it runs, so that only a dead one lapses."""
CANCEL_KEPT_S = 3_600
"""How long a wish to cancel is remembered for a request that has not been seen yet, or is running."""


class ExecRecorder:
    """Admits and records batches of requests in this process."""

    def __init__(
        self,
        ports: Ports,
        relaxed: Database,
        vault: Vault,
        client: redis.Redis,
        keep_s: float,
        engine: Engine | None = None,
    ) -> None:
        self._ports = ports
        self._relaxed = relaxed
        self._vault = vault
        self._redis = client
        self._keep_s = keep_s
        self._engine = engine
        self._ledger = ExecLedger(ports.requests)

    def record(self, entries: Sequence[StreamEntry], redis_now: int) -> list[Recorded]:
        """Record entries; raises LedgerBusy or AuditUnavailable with nothing done, to be called again."""
        tenants = {entry.tenant for entry in entries}
        work = self._admitted(entries, self._ports.authorities.newest(tenants), redis_now)
        # A read whose client waits is worth no disk: after a power cut there is nobody to answer. What is acknowledged
        # and left for later is.
        database = self._relaxed if work.all_start_here(self._engine) else self._ports.requests
        with database.write() as connection:
            now = self._write(connection, work, redis_now)
        if self._engine is not None and work.born:
            # Read again: what was withdrawn before these rows were committed holds for what starts now.
            claims, opened = [one for one, _ in work.born], {one.id: opened for one, opened in work.born}
            self._engine.start(claims, self._ports.authorities.newest(tenants), now, opened=opened)
        return [self._answer(work)]

    def bury(self, entry: StreamEntry, word: str, detail: str) -> Recorded:
        """Record one entry as dead without looking at it."""
        work = _Batch({})
        work.sort(RefusedExec(entry, word, detail))
        return self._answer(work)

    def _admitted(self, entries: Sequence[StreamEntry], authorities: Mapping[str, Authority], redis_now: int) -> _Batch:
        work = _Batch(authorities)
        for entry in entries:
            arrival = entry.arrival(redis_now)
            work.sort(admit_exec(entry, authorities[entry.tenant], arrival, self._ports.freshness_s))
        return work

    def _write(self, connection: sa.Connection, work: _Batch, redis_now: int) -> int:
        now = self._ports.requests.now(connection)
        new = self._new(connection, work, redis_now, now)
        self._ledger.insert(connection, [self._born(work, one, row, now) for one, row in new])
        for one in work.withdrawn:
            self._withdraw(connection, work, one, now)
        if work.records:
            self._ports.audit.append(work.records)
        return now

    def _keep_refused(self, work: _Batch) -> None:
        """Keep what was refused among the dead entries, with its audit lines; a repeat of this changes nothing."""
        turned = [Turned(one.entry, one.word, one.detail) for one in work.refused]
        with self._ports.database.write() as connection:
            now = self._ports.database.now(connection)
            self._ports.ledger.insert_dead(connection, [dead_record(one, now) for one in turned])
            self._ports.audit.append([_refuse_record(one) for one in work.refused])

    def _new(self, connection: sa.Connection, work: _Batch, redis_now: int, now: int) -> list[tuple[Asked, ExecRecord]]:
        """Return the rows to insert; what is known by id or key is answered, refused, or waits for the first one."""
        asked = {row.id: (one, row) for one in work.asked for row in [self._row(one, redis_now, now)]}
        rows = [row for _, row in asked.values()]
        keyed = [row.tenant for row in rows if row.idempotency_key is not None]
        if keyed:
            self._ledger.lock_keys(connection, keyed)
        known = {one.id: one for one in self._ledger.known(connection, rows)}
        by_key = {one.key: one for one in known.values() if one.idempotency_key is not None}
        new: list[tuple[Asked, ExecRecord]] = []
        for one, row in asked.values():
            key = (row.tenant, row.principal, row.idempotency_key)
            before = known.get(row.id) or by_key.get(key)
            if before is None:
                new.append((one, row))
                if row.idempotency_key is not None:
                    by_key[key] = _known(row)
            elif before.request_hash != row.request_hash:
                detail = "the idempotency key was used for another request"
                work.refused.append(RefusedExec(one.entry, "conflict", detail, one.sender))
            elif before.id == row.id or before.state == DONE:
                self._answer_known(work, one.sender, before)
            else:
                new.append((one, row._replace(idempotency_key=None, alias_of=before.id, due_at=NEVER)))
        work.accepted = len(new)
        return new

    def _born(self, work: _Batch, one: Asked, row: ExecRecord, now: int) -> ExecRecord:
        """Let an interactive read start in this process while there is room; the others are rung for."""
        if row.alias_of is not None:
            return row
        room = self._engine is not None and self._engine.free > len(work.born)
        if not room or row.lane != LANES["interactive"] or work.is_write(row.tenant, row.pack_id, row.verb_key):
            work.ring.add(row.lane)
            return row
        born, claimed = row.claimed(secrets.token_hex(8), now + int(LEASE_S * 1e6))
        work.born.append((claimed, Opened(one.sender.secret, row.project, one.envelope)))
        return born

    def _row(self, one: Asked, redis_now: int, now: int) -> ExecRecord:
        sender, request = one.sender, one.request
        # By Redis's clock on both sides: the client's may be minutes off.
        waited = max(0, redis_now - one.entry.micros)
        return ExecRecord(
            id=exec_id(one.entry.tenant, sender.session.id, sender.message_id),
            tenant=one.entry.tenant,
            session_id=sender.session.id,
            principal=sender.session.principal,
            project=request.project_id,
            message_id=sender.message_id,
            signed_at=sender.signed_at,
            idempotency_key=request.idempotency_key,
            request_hash=one.digest,
            lane=LANES[request.lane],
            pack_id=one.envelope.pack_id,
            verb_key=one.envelope.verb_key,
            sealed=put_to_rest(self._vault, sender.secret, one.plain),
            state=PENDING,
            write=False,
            alias_of=None,
            attempt=0,
            lease=None,
            due_at=now,
            accepted_at=now,
            deadline_at=now + request.timeout_ms * 1000 - waited,
        )

    def _answer_known(self, work: _Batch, sender: Sender, known: ExecKnown) -> None:
        """Answer with a result that is there; a request still under way is answered when it is done."""
        work.counts["redelivered"] = work.counts.get("redelivered", 0) + 1
        if known.reply is not None:
            work.replies.append(_reply(sender, self._vault.open(known.reply)))

    def _withdraw(self, connection: sa.Connection, work: _Batch, one: Withdrawn, now: int) -> None:
        """Cancel a request and those under its key, which are one with it; one that runs is left to its process."""
        request = exec_id(one.entry.tenant, one.sender.session.id, one.request.cancel)
        ended = [(row, encoded(_cancelled(row))) for row in self._ledger.unstarted(connection, request)]
        self._ledger.cancel(connection, [(row, self._vault.seal(answer)) for row, answer in ended], CANCELLED, now)
        work.replies += [reply_to(self._vault, row, answer) for row, answer in ended]
        work.records += [_cancel_record(one, row) for row, _ in ended]
        if not ended:
            work.cancelled.append((request, one.request.force))

    def _answer(self, work: _Batch) -> Recorded:
        """Push what can be answered now; the rows are committed, and a repeat pushes it again."""
        if work.refused:
            self._keep_refused(work)
        pipeline = self._redis.pipeline(transaction=False)
        for request, force in work.cancelled:
            pipeline.set(cancel_key(request.hex()), b"force" if force else b"1", ex=CANCEL_KEPT_S)
        if len(pipeline):
            pipeline.execute()
        for one in work.refused:
            if one.sender is not None:
                envelope = ResultEnvelope(ok=False, pack_id="", verb_key="", error=REFUSED.format(one.word))
                work.replies.append(_reply(one.sender, encoded(envelope)))
            work.counts[one.word] = work.counts.get(one.word, 0) + 1
        push(self._redis, work.replies, self._keep_s)
        return Recorded([], work.ring, {"accepted": work.accepted, **work.counts})


class _Batch:
    """What one transaction's entries are, and what they leave to do."""

    def __init__(self, authorities: Mapping[str, Authority]) -> None:
        self.authorities = authorities
        self.asked: list[Asked] = []
        self.withdrawn: list[Withdrawn] = []
        self.refused: list[RefusedExec] = []
        self.replies: list[Reply] = []
        self.cancelled: list[tuple[bytes, bool]] = []
        self.records: list[AuditRecord] = []
        self.born: list[tuple[ClaimedExec, Opened]] = []
        """Requests that start in this process once their rows have committed."""
        self.ring: set[str] = set()
        self.counts: dict[str, int] = {}
        self.accepted = 0

    def is_write(self, tenant: str, pack_id: str, verb_key: str) -> bool:
        """Tell whether the command is known to be a write: one that is not known ends before it could be."""
        revision = self.authorities[tenant].revision(pack_id)
        entry = None if revision is None else revision.pack.policy.verbs.get(verb_key)
        return entry is not None and entry.operation == "write"

    def all_start_here(self, engine: Engine | None) -> bool:
        """Tell whether everything in it can start in this process."""
        if engine is None or self.withdrawn or self.refused or engine.free < len(self.asked):
            return False
        return not any(
            one.request.lane != "interactive"
            or one.request.idempotency_key is not None
            or self.is_write(one.entry.tenant, one.envelope.pack_id, one.envelope.verb_key)
            for one in self.asked
        )

    def sort(self, one: Asked | Withdrawn | RefusedExec) -> None:
        """Put a verdict where it belongs."""
        if isinstance(one, Asked):
            self.asked.append(one)
        elif isinstance(one, Withdrawn):
            self.withdrawn.append(one)
        else:
            self.refused.append(one)


def cancel_key(request: str) -> str:
    """Return the key that says a request is not wanted any more."""
    return f"sense:cancel:{request}"


def _reply(sender: Sender, envelope: bytes) -> Reply:
    return make_reply(sender.session.tenant, sender.secret, sender.place, sender.message_id, envelope)


def _known(record: ExecRecord) -> ExecKnown:
    return ExecKnown(
        *(record.id, record.tenant, record.principal, record.idempotency_key, record.request_hash, record.state, None)
    )


def _cancelled(row: Waiting) -> ResultEnvelope:
    return ResultEnvelope(ok=False, pack_id=row.pack_id, verb_key=row.verb_key, error=CANCELLED)


def _cancel_record(one: Withdrawn, row: Waiting) -> AuditRecord:
    return AuditRecord(
        action="exec",
        ok=False,
        tenant=row.tenant,
        principal=one.sender.session.principal,
        pack_id=row.pack_id,
        key=row.verb_key,
        subject=row.id.hex(),
        reason=CANCELLED,
    )


def _refuse_record(one: RefusedExec) -> AuditRecord:
    sender = one.sender
    return AuditRecord(
        action="exec.refuse",
        ok=False,
        tenant=one.entry.tenant,
        principal=None if sender is None else sender.session.principal,
        subject=one.entry.id,
        reason=REFUSED.format(one.word),
    )
