"""The ledger of Execute: requests, claims with leases, fenced settlement (DESIGN §8).

A write runs at most once: `begin_write` marks the row, durably and under the lease, before the adapter is entered, and
a marked row whose lease ran out is never claimed again. A read that was cut off runs again.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from sense_worker.storage.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa

    from sense_worker.storage.engine import Database

PENDING, RUNNING, DONE = "pending", "running", "done"
_OPEN = "state IN ('pending', 'running')"
"""Stands, word for word, in every WHERE over a lane: SQLite takes the partial index only for its own condition."""


class ExecRecord(NamedTuple):
    """A row of `sense_exec` as intake inserts it."""

    id: bytes
    tenant: str
    session_id: str
    principal: str
    project: str | None
    message_id: str
    signed_at: str
    idempotency_key: str | None
    request_hash: bytes
    lane: str
    pack_id: str
    verb_key: str
    sealed: bytes
    state: str
    write: bool
    alias_of: bytes | None
    attempt: int
    lease: str | None
    due_at: int
    accepted_at: int
    deadline_at: int

    def claimed(self, lease: str, until: int) -> tuple[ExecRecord, ClaimedExec]:
        """Return the row as it is born under a lease of this process, and the claim."""
        one = ClaimedExec(
            *(self.id, self.tenant, self.session_id, self.principal, self.message_id, self.signed_at),
            *(self.pack_id, self.verb_key, self.sealed, self.deadline_at, False),
            *(self.idempotency_key is not None, lease),
        )
        return self._replace(state=RUNNING, attempt=1, lease=lease, due_at=until), one


class Waiting(NamedTuple):
    """A request that gets an answer without having run: under the key of another, or cancelled before its start."""

    id: bytes
    tenant: str
    session_id: str
    message_id: str
    signed_at: str
    pack_id: str
    verb_key: str
    sealed: bytes


class ExecKnown(NamedTuple):
    """What the ledger holds of a request that came before."""

    id: bytes
    tenant: str
    principal: str
    idempotency_key: str | None
    request_hash: bytes
    state: str
    reply: bytes | None

    @property
    def key(self) -> tuple[str, str, str | None]:
        """Under which it is one request, whatever its message id: a key is its principal's own."""
        return self.tenant, self.principal, self.idempotency_key


class ClaimedExec(NamedTuple):
    """A request under this process's lease."""

    id: bytes
    tenant: str
    session_id: str
    principal: str
    message_id: str
    signed_at: str
    pack_id: str
    verb_key: str
    sealed: bytes
    deadline_at: int
    lapsed_write: bool
    """A process died in the middle of its write: it is not run, its outcome is unknown."""
    keyed: bool
    """It has an idempotency key: others may wait for its result."""
    lease: str


class ExecSettlement(NamedTuple):
    """How a request ended; written only where the lease is still ours (fencing)."""

    claimed: ClaimedExec
    ok: bool
    error: str | None
    reply: bytes
    """Sealed at rest."""
    began: bool
    """Something may have run: only then its idempotency key is used up."""


_COLUMNS = ExecRecord._fields
_CLAIMED = (
    "id, tenant, session_id, principal, message_id, signed_at, pack_id, verb_key, sealed, deadline_at, write, "
    "idempotency_key IS NOT NULL"
)
_KNOWN = "id, tenant, principal, idempotency_key, request_hash, state, reply"
_WAITING = "id, tenant, session_id, message_id, signed_at, pack_id, verb_key, sealed"


class ExecLedger:
    """Every statement on requests. Methods run inside the transaction of the connection they get."""

    def __init__(self, database: Database) -> None:
        self._kind = database.kind

    def known(self, connection: sa.Connection, records: Sequence[ExecRecord]) -> list[ExecKnown]:
        """Return what is there under the id or the idempotency key of one of the records."""
        if not records:
            return []
        rows = Rows(connection, self._kind)
        marks = ", ".join("?" * len(records))
        by_id = f"SELECT {_KNOWN} FROM sense_exec WHERE id IN ({marks})"  # noqa: S608 - our own constants
        # Locked: else the first may be settled before the row that will wait for its result can be seen.
        lock = " FOR SHARE" if self._kind == "postgresql" else ""
        by_key = f"SELECT {_KNOWN} FROM sense_exec WHERE tenant = ? AND principal = ? AND idempotency_key = ?{lock}"  # noqa: S608
        # By key first: to wait for a lock may take until one that the other query saw running has ended.
        queries: list[tuple[str, Sequence[object]]] = [
            (by_key, (one.tenant, one.principal, one.idempotency_key))
            for one in records
            if one.idempotency_key is not None
        ]
        queries.append((by_id, [record.id for record in records]))
        found: dict[bytes, ExecKnown] = {}
        for sql, parameters in queries:
            for row in rows.query(sql, parameters):
                reply = None if row[6] is None else bytes(row[6])
                one = ExecKnown(bytes(row[0]), row[1], row[2], row[3], bytes(row[4]), row[5], reply)
                found[one.id] = one
        return list(found.values())

    def insert(self, connection: sa.Connection, records: Sequence[ExecRecord]) -> None:
        """Insert requests; one whose id or idempotency key is there already is left out."""
        Rows(connection, self._kind).insert("sense_exec", _COLUMNS, records)

    def claim(self, connection: sa.Connection, lane: str, limit: int, lease_micros: int, now: int) -> list[ClaimedExec]:
        """Take up to `limit` requests of a lane, the oldest first; those whose lease ran out come again."""
        rows = Rows(connection, self._kind)
        lock = " FOR UPDATE SKIP LOCKED" if self._kind == "postgresql" else ""
        due = rows.query(
            f"SELECT {_CLAIMED} FROM sense_exec WHERE lane = ? AND {_OPEN} AND due_at <= ? "  # noqa: S608
            f"ORDER BY due_at LIMIT ?{lock}",
            (lane, now, limit),
        )
        claimed = [
            ClaimedExec(
                *(bytes(row[0]), row[1], row[2], row[3], row[4], row[5], row[6], row[7], bytes(row[8])),
                *(row[9], bool(row[10]), bool(row[11]), secrets.token_hex(8)),
            )
            for row in due
        ]
        rows.execute_many(
            "UPDATE sense_exec SET state = 'running', attempt = attempt + 1, lease = ?, due_at = ? WHERE id = ?",
            [(one.lease, now + lease_micros, one.id) for one in claimed],
        )
        return claimed

    def begin_write(self, connection: sa.Connection, request: bytes, lease: str) -> bool:
        """Mark that a write is about to begin; False where the lease is no longer ours."""
        touched = Rows(connection, self._kind).execute(
            "UPDATE sense_exec SET write = ? WHERE id = ? AND lease = ? AND state = 'running'", (True, request, lease)
        )
        return touched == 1

    def renew(self, connection: sa.Connection, claims: Sequence[ClaimedExec], due_at: int) -> None:
        """Keep what is running from lapsing."""
        Rows(connection, self._kind).execute_many(
            "UPDATE sense_exec SET due_at = ? WHERE id = ? AND lease = ? AND state = 'running'",
            [(due_at, one.id, one.lease) for one in claims],
        )

    def settle(self, connection: sa.Connection, settlements: Sequence[ExecSettlement], now: int) -> None:
        """Write how requests ended, where the lease is still ours; the sealed request goes.

        Where nothing began the idempotency key is free again: a denial is no result to keep.
        """
        Rows(connection, self._kind).execute_many(
            "UPDATE sense_exec SET state = 'done', sealed = NULL, lease = NULL, ok = ?, error = ?, reply = ?, "
            "settled_at = ?, idempotency_key = CASE WHEN ? THEN idempotency_key END "
            "WHERE id = ? AND lease = ? AND state = 'running'",
            [(one.ok, one.error, one.reply, now, one.began, one.claimed.id, one.claimed.lease) for one in settlements],
        )

    def settle_aliases(
        self, connection: sa.Connection, settlements: Sequence[ExecSettlement], now: int
    ) -> list[tuple[ExecSettlement, Waiting]]:
        """Give the results to the requests that wait under the same idempotency key; returns those."""
        rows = Rows(connection, self._kind)
        found = []
        for one in settlements:
            if not one.claimed.keyed:
                continue
            query = f"SELECT {_WAITING} FROM sense_exec WHERE alias_of = ? AND state = 'pending'"  # noqa: S608
            found += [(one, _waiting(row)) for row in rows.query(query, (one.claimed.id,))]
            rows.execute(
                "UPDATE sense_exec SET state = 'done', sealed = NULL, ok = ?, error = ?, reply = ?, settled_at = ? "
                "WHERE alias_of = ? AND state = 'pending'",
                (one.ok, one.error, one.reply, now, one.claimed.id),
            )
        return found

    def lock_keys(self, connection: sa.Connection, tenants: Sequence[str]) -> None:
        """Keep two readers from accepting one idempotency key at once; SQLite has one writer anyway."""
        if self._kind == "postgresql":
            for tenant in sorted(set(tenants)):
                Rows(connection, self._kind).query("SELECT pg_advisory_xact_lock(hashtextextended(?, 8))", (tenant,))

    def unstarted(self, connection: sa.Connection, request: bytes) -> list[Waiting]:
        """Return a request that has not started, locked, and those that wait under its key; none where it has."""
        rows = Rows(connection, self._kind)
        lock = " FOR UPDATE" if self._kind == "postgresql" else ""
        query = f"SELECT {_WAITING} FROM sense_exec WHERE {{}} = ? AND state = 'pending'{lock}"  # noqa: S608
        own = rows.query(query.format("id"), (request,))
        return [_waiting(row) for row in own and own + rows.query(query.format("alias_of"), (request,))]

    def cancel(self, connection: sa.Connection, ended: Sequence[tuple[Waiting, bytes]], error: str, now: int) -> None:
        """End requests that have not started, each with its reply, sealed at rest; their key is free again."""
        Rows(connection, self._kind).execute_many(
            "UPDATE sense_exec SET state = 'done', sealed = NULL, ok = ?, error = ?, reply = ?, settled_at = ?, "
            "idempotency_key = NULL WHERE id = ?",
            [(False, error, reply, now, one.id) for one, reply in ended],
        )

    def due_lanes(self, connection: sa.Connection, now: int) -> list[str]:
        """Return the lanes with a request to claim."""
        query = f"SELECT DISTINCT lane FROM sense_exec WHERE {_OPEN} AND due_at <= ?"  # noqa: S608 - our own constants
        found = Rows(connection, self._kind).query(query, (now,))
        return [row[0] for row in found]

    def forget(self, connection: sa.Connection, replies_before: int, rows_before: int, limit: int) -> int:
        """Let go of replies whose time is over, and of rows past retention; returns how many rows were touched."""
        rows = Rows(connection, self._kind)
        done = "state = 'done' AND settled_at < ?"
        replies = rows.execute(
            f"UPDATE sense_exec SET reply = NULL WHERE id IN (SELECT id FROM sense_exec WHERE {done} "  # noqa: S608
            "AND reply IS NOT NULL LIMIT ?)",
            (replies_before, limit),
        )
        gone = rows.execute(
            f"DELETE FROM sense_exec WHERE id IN (SELECT id FROM sense_exec WHERE {done} LIMIT ?)",  # noqa: S608
            (rows_before, limit),
        )
        return max(replies, gone)


def _waiting(row: tuple[Any, ...]) -> Waiting:
    return Waiting(bytes(row[0]), row[1], row[2], row[3], row[4], row[5], row[6], bytes(row[7]))
