"""The ledger: events and deliveries, claims with leases, fenced settlement (DESIGN §6).

Rows are the truth; streams, doorbells and Celery only say that there may be something to do. All moments come from
the database's clock, passed in as `now`, except `accepted_at`, which is the arrival on the stream.
"""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.errors import ROUTE_GONE
from sense_worker.storage.records import (
    AcceptedEvent,
    AttemptRecord,
    Claimed,
    DeadRecord,
    DeliveryRecord,
    EventRecord,
)
from sense_worker.storage.rows import Rows
from sense_worker.storage.states import REPLAYABLE, SETTLED, State, in_list, predecessors

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa

    from sense_worker.storage.engine import Database
    from sense_worker.storage.records import Settlement

NEVER = 2**62
"""`due_at` of a row that nothing but a release makes due again."""

STARVED_MICROS = 60_000_000
"""Rows of a lapsed lease yield to fresh ones (they may kill their process again), for one minute at most."""

_EVENT_COLUMNS = EventRecord._fields
_DELIVERY_COLUMNS = DeliveryRecord._fields
_DEAD_COLUMNS = DeadRecord._fields
_LIVE = f"state IN ({in_list(State.PENDING, State.RETRYING, State.DELIVERING, State.HELD)})"
"""Stands, word for word, in every WHERE over a lane: SQLite takes the partial index only for its own condition."""
_LANES = (
    f"WITH RECURSIVE lanes(lane) AS (SELECT min(lane) FROM sense_delivery WHERE {_LIVE} UNION ALL "  # noqa: S608
    f"SELECT (SELECT min(lane) FROM sense_delivery WHERE {_LIVE} AND lane > lanes.lane) FROM lanes "
    "WHERE lanes.lane IS NOT NULL)"
)
"""Every lane with a delivery that is not settled: a loose index scan, whatever the backlog."""
_CLAIM = (
    "SELECT d.event_id, d.route_id, d.state, d.attempt, d.crashes, d.alone, d.lane, d.owner, e.tenant, e.pack_id, "  # noqa: S608 - our own constants
    "e.ref, e.activation_id, e.publisher, e.project, e.subject, e.occurred_at, e.accepted_at, e.body "
    f"FROM sense_delivery d JOIN sense_event e ON e.id = d.event_id WHERE d.lane = ? AND d.{_LIVE}"
)
_KNOWN = "SELECT id, body_digest, stream_id, unfinished_land IS NOT NULL FROM sense_event"
_EVENT_TYPES = {
    "id": "bytea[]",
    "body": "bytea[]",
    "body_digest": "bytea[]",
    "generation": "bigint[]",
    "signed_at": "bigint[]",
    "accepted_at": "bigint[]",
}


class Known(NamedTuple):
    """What the ledger already holds under an event's id."""

    id: bytes
    body_digest: bytes
    stream_id: str
    unfinished: bool
    """Candidate routes still have no row: a fan-out of several transactions is under way, or was cut short."""


class Ledger:
    """Every statement that changes events, deliveries and attempts, each inside the transaction of its connection."""

    def __init__(self, database: Database) -> None:
        self._kind = database.kind

    def rows(self, connection: sa.Connection, *, fresh: bool = False, mostly_new: bool = False) -> Rows:
        """Return the bulk writer of this transaction (see `Rows`)."""
        return Rows(connection, self._kind, fresh=fresh, mostly_new=mostly_new)

    def insert_events(self, connection: sa.Connection, records: Sequence[EventRecord]) -> dict[bytes, Known]:
        """Insert events that are not there yet; returns what was there before, by id. Ids must be distinct."""
        if not records:
            return {}
        rows = self.rows(connection)
        if self._kind == "sqlite":
            # One writer at a time (BEGIN IMMEDIATE): what is not seen now cannot come before our commit.
            known = self.known(connection, [record.id for record in records])
            rows.insert("sense_event", _EVENT_COLUMNS, [record for record in records if record.id not in known])
            return known
        columns = list(zip(*records, strict=True))
        casts = ", ".join(f"?::{_EVENT_TYPES.get(name, 'text[]')}" for name in _EVENT_COLUMNS)
        names = ", ".join(_EVENT_COLUMNS)
        inserted = rows.query(
            f"INSERT INTO sense_event ({names}) SELECT * FROM unnest({casts}) "  # noqa: S608 - our own names
            "ON CONFLICT (id) DO NOTHING RETURNING id",
            [list(column) for column in columns],
        )
        if len(inserted) == len(records):
            return {}
        new = {bytes(row[0]) for row in inserted}
        return self.known(connection, [record.id for record in records if record.id not in new])

    def known(self, connection: sa.Connection, ids: Sequence[bytes]) -> dict[bytes, Known]:
        """Return what is held under each of these ids; an id of no accepted event has no place in it."""
        if not ids:
            return {}
        found = self.rows(connection).query(f"{_KNOWN} WHERE id IN ({', '.join('?' * len(ids))})", ids)
        return {one.id: one for one in map(_known, found)}

    def known_by_entry(self, connection: sa.Connection, tenant: str, stream_id: str, arrival: int) -> Known | None:
        """Return the event that an entry was accepted as, for an entry that cannot say its event's id any more."""
        rows = self.rows(connection)
        where = "WHERE tenant = ? AND accepted_at = ? AND stream_id = ?"  # the index of recent events finds it
        found = rows.query(f"{_KNOWN} {where}", (tenant, arrival, stream_id))
        # Arrival was bounded where somebody wrote an id of their own: that one is looked for among all of the tenant's.
        found = found or rows.query(f"{_KNOWN} WHERE tenant = ? AND stream_id = ?", (tenant, stream_id))
        return _known(found[0]) if found else None

    def unfinished(self, connection: sa.Connection, event: bytes) -> tuple[AcceptedEvent, str] | None:
        """Return an event whose fan-out is unfinished, with the land that chooses the rest; None once it is complete.

        Its row is locked until the transaction ends: two readers that finish one event take turns.
        """
        lock = " FOR UPDATE" if self._kind == "postgresql" else ""
        columns = ", ".join(AcceptedEvent._fields)
        found = self.rows(connection).query(
            f"SELECT {columns}, unfinished_land FROM sense_event "  # noqa: S608 - our own names
            f"WHERE id = ? AND unfinished_land IS NOT NULL{lock}",
            (event,),
        )
        if not found:
            return None
        key, *facts, body, land = found[0]
        return AcceptedEvent._make((bytes(key), *facts, bytes(body))), land

    def left_unfinished(self, connection: sa.Connection, before: int, limit: int) -> list[tuple[str, bytes]]:
        """Return tenant and id of events accepted before a moment whose fan-out is unfinished, the oldest first."""
        found = self.rows(connection).query(
            "SELECT tenant, id FROM sense_event WHERE unfinished_land IS NOT NULL AND accepted_at < ? "
            "ORDER BY accepted_at LIMIT ?",
            (before, limit),
        )
        return [(row[0], bytes(row[1])) for row in found]

    def routes_with_row(self, connection: sa.Connection, event: bytes) -> set[str]:
        """Return the routes that have a delivery of this event."""
        found = self.rows(connection).query("SELECT route_id FROM sense_delivery WHERE event_id = ?", (event,))
        return {row[0] for row in found}

    def finish(self, connection: sa.Connection, event: bytes, receipt: str | None) -> None:
        """Note that every candidate has its row; belongs into the transaction of the last slice."""
        self.rows(connection).execute(
            "UPDATE sense_event SET unfinished_land = NULL, receipt = ? WHERE id = ?", (receipt, event)
        )

    def note_repeat(self, connection: sa.Connection, event: bytes, stream_id: str) -> bool:
        """Count a repeat once per stream entry; returns False for a redelivery of one that was counted."""
        return bool(
            self.rows(connection).execute(
                "UPDATE sense_event SET repeats = repeats + 1, last_repeat = ? "
                "WHERE id = ? AND repeats < 32767 AND (last_repeat IS NULL OR last_repeat <> ?)",
                (stream_id, event, stream_id),
            )
        )

    def insert_deliveries(self, connection: sa.Connection, records: Sequence[DeliveryRecord]) -> None:
        """Insert deliveries that cannot be there: of events that this transaction inserted or holds as unfinished."""
        self.rows(connection, fresh=True).insert("sense_delivery", _DELIVERY_COLUMNS, records)

    def insert_dead(self, connection: sa.Connection, records: Sequence[DeadRecord]) -> None:
        """Keep refused entries; one that is there already stays as it is (C43)."""
        self.rows(connection).insert("sense_dead_entry", _DEAD_COLUMNS, records)

    def claim(
        self,
        connection: sa.Connection,
        lane: str,
        *,
        calls: int,
        batch: int,
        lease_micros: int,
        now: int,
        company: bool,
    ) -> list[list[Claimed]] | None:
        """Take due deliveries of a lane, as at most `calls` batches of at most `batch`, each under its own lease.

        A row whose lease ran out comes alone: only a death while alone counts as its own (DESIGN §6.5), and not where
        the process has calls of others out (`company`). `calls` is the lane's concurrency; batches under a live lease
        anywhere are counted against it, and None says that there are as many already.
        """
        rows = self.rows(connection)
        if self._kind == "postgresql":
            rows.query("SELECT pg_advisory_xact_lock(hashtextextended(?, 7))", (lane,))
        running = rows.query(
            f"SELECT count(DISTINCT lease) FROM sense_delivery "  # noqa: S608 - our own constants
            f"WHERE lane = ? AND {_LIVE} AND state = 'delivering' AND due_at > ?",
            (lane, now),
        )[0][0]
        free = calls - int(running)
        if free <= 0:
            return None
        due = self._due(rows, lane, free * batch, now)
        fresh = list(itertools.takewhile(lambda row: row[2] != State.DELIVERING, due))
        alone = not fresh and not company
        chunks = [fresh[at : at + batch] for at in range(0, len(fresh), batch)] if fresh else [due[:1]] if due else []
        claims = [_lease(chunk, alone=alone) for chunk in chunks]
        for was, claim in zip(chunks, claims, strict=True):
            # A batch is all fresh, or one row of a lapsed lease: what the first one's numbers gain, each one's do.
            one = claim[0]
            gained = (one.attempt - was[0][3], one.crashes - was[0][4])
            rows.execute(
                "UPDATE sense_delivery SET state = 'delivering', attempt = attempt + ?, crashes = crashes + ?, "  # noqa: S608
                f"alone = ?, due_at = ?, lease = ? WHERE {self._among(claim)}",
                (*gained, alone, now + lease_micros, one.lease, *self._keys(claim)),
            )
        return claims

    def _due(self, rows: Rows, lane: str, limit: int, now: int) -> list[tuple[Any, ...]]:
        """Return due rows, the longest due first; those of a lapsed lease where there is nothing else, or starved.

        Two queries, each in the order of the index: one that sorts them apart would sort a whole backlog.
        """
        lock = " FOR UPDATE OF d SKIP LOCKED" if self._kind == "postgresql" else ""
        order = f"ORDER BY d.due_at LIMIT ?{lock}"
        fresh = f"{_CLAIM} AND d.due_at <= ? AND (d.state <> 'delivering' OR d.due_at <= ?) {order}"
        lapsed = f"{_CLAIM} AND d.due_at <= ? AND d.state = 'delivering' {order}"
        return rows.query(fresh, (lane, now, now - STARVED_MICROS, limit)) or rows.query(lapsed, (lane, now, 1))

    def settle(self, connection: sa.Connection, settlements: Sequence[Settlement], now: int, by: str) -> int:
        """Write how attempts ended, where the lease is still ours; returns how many were (the rest is another's).

        Those of one lease that end alike take one statement. An attempt row is kept wherever the delivery's own row
        will not tell: anything but a first attempt that settled at once (DESIGN §6.3).
        """
        rows = self.rows(connection)
        alike: dict[tuple[Any, ...], list[Claimed]] = {}
        for one in settlements:
            alike.setdefault((one.claimed.lease, *one[1:]), []).append(one.claimed)
        statements: dict[str, list[tuple[Any, ...]]] = {}
        for (lease, state, reason, step, grant, digest, receipt, due_at, give_back), claims in alike.items():
            settled = now if state in SETTLED else None
            sql = (
                "UPDATE sense_delivery SET state = ?, attempt = attempt - ?, due_at = ?, lease = NULL, reason = ?, "  # noqa: S608
                "step = ?, grant_id = ?, digest = ?, receipt = ?, settled_at = ? "
                f"WHERE lease = ? AND state IN ({in_list(*predecessors(State(state)))}) AND {self._among(claims)}"
            )
            values = (state, int(give_back), due_at, reason, step, grant, digest, receipt, settled, lease)
            statements.setdefault(sql, []).append((*values, *self._keys(claims)))
        touched = sum(rows.execute_many(sql, many) for sql, many in statements.items())
        ended = (
            AttemptRecord(
                *(one.claimed.event_id, one.claimed.route_id, one.claimed.attempt, one.state),
                *(one.step, one.reason, by, now),
            )
            for one in settlements
            if not one.give_back and not (one.claimed.attempt == 1 and one.state in SETTLED)
        )
        self.note_attempts(connection, list(ended))
        return touched

    def _among(self, claims: Sequence[Claimed]) -> str:
        """Return the condition that a delivery is one of these, for `_keys`: one statement changes all that is alike.

        On SQLite a row takes half of the 11 µs of a statement of its own, and the interpreter is not let go of for
        each. There it is SELECT, for of VALUES alone no index is looked into. On PostgreSQL two texts that the server
        takes apart: psycopg makes an array element by element, which took a tenth of a drain's CPU. No id has a comma.
        """
        if self._kind == "postgresql":
            keys = "unnest(string_to_array(?, ','), string_to_array(?, ',')) AS keys(event_id, route_id)"
            return f"(event_id, route_id) IN (SELECT decode(event_id, 'hex'), route_id FROM {keys})"  # noqa: S608
        keys = ", ".join(["(?, ?)"] * len(claims))
        return f"(event_id, route_id) IN (SELECT column1, column2 FROM (VALUES {keys}))"  # noqa: S608 - marks only

    def _keys(self, claims: Sequence[Claimed]) -> Sequence[object]:
        if self._kind == "postgresql":
            return ",".join(one.event_id.hex() for one in claims), ",".join(one.route_id for one in claims)
        return [value for one in claims for value in (one.event_id, one.route_id)]

    def note_attempts(self, connection: sa.Connection, records: Sequence[AttemptRecord]) -> None:
        """Add lines to what is told of deliveries, each after the last one of its own."""
        self.rows(connection).execute_many(
            "INSERT INTO sense_attempt (event_id, route_id, seq, attempt, state, step, reason, by, at) "
            "SELECT ?, ?, coalesce(max(seq), 0) + 1, ?, ?, ?, ?, ?, ? FROM sense_attempt "
            "WHERE event_id = ? AND route_id = ?",
            [(*one, one.event_id, one.route_id) for one in records],
        )

    def replay(self, connection: sa.Connection, event: bytes, route: str, now: int) -> int:
        """Begin a dead or denied delivery anew: its tries and deaths are counted from here. Returns how many it was."""
        return self.rows(connection).execute(
            "UPDATE sense_delivery SET state = 'pending', due_at = ?, settled_at = NULL, grant_id = NULL, attempt = 0, "  # noqa: S608
            "crashes = 0, alone = ?, lease = NULL, reason = NULL, step = NULL "
            f"WHERE event_id = ? AND route_id = ? AND state IN ({in_list(*REPLAYABLE)})",
            (now, False, event, route),
        )

    def cancel_route(self, connection: sa.Connection, lane: str, route: str, now: int) -> int:
        """Cancel what waits for a route that is gone; returns how many. What a sink has in hand is left to it."""
        waiting = in_list(*(state for state in predecessors(State.CANCELLED) if state != State.DELIVERING))
        return self.rows(connection).execute(
            "UPDATE sense_delivery SET state = 'cancelled', reason = ?, step = NULL, settled_at = ? "  # noqa: S608
            f"WHERE lane = ? AND {_LIVE} AND route_id = ? AND state IN ({waiting})",
            (ROUTE_GONE, now, lane, route),
        )

    def hold_lane(self, connection: sa.Connection, lane: str, reason: str, *, renamed: bool = False) -> int:
        """Hold what is due in a lane whose sink cannot take it now; returns how many deliveries.

        `renamed`: what is held for its sink already gets this reason too, which costs a look at each.
        """
        rows = self.rows(connection)
        if renamed:
            rows.execute(
                f"UPDATE sense_delivery SET reason = ? WHERE lane = ? AND {_LIVE} AND due_at = ? "  # noqa: S608
                "AND state = 'held' AND reason <> ?",
                (reason, lane, NEVER, reason),
            )
        waiting = in_list(State.PENDING, State.RETRYING, State.HELD)
        return rows.execute(
            f"UPDATE sense_delivery SET state = 'held', due_at = ?, step = 'sink', reason = ? "  # noqa: S608
            f"WHERE lane = ? AND {_LIVE} AND state IN ({waiting}) AND due_at < ?",
            (NEVER, reason, lane, NEVER),
        )

    def release_lane(self, connection: sa.Connection, lane: str, now: int) -> int:
        """Make what was held for its sink due again; returns how many deliveries."""
        return self.rows(connection).execute(
            "UPDATE sense_delivery SET state = 'pending', due_at = ?, step = NULL, reason = NULL "  # noqa: S608
            f"WHERE lane = ? AND {_LIVE} AND state = 'held' AND due_at = ?",
            (now, lane, NEVER),
        )

    def tenants(self, connection: sa.Connection) -> list[str]:
        """Return every tenant, in name order."""
        return [row[0] for row in self.rows(connection).query("SELECT id FROM sense_tenant ORDER BY id")]

    def forget(self, connection: sa.Connection, tenant: str, before: int, limit: int) -> int:
        """Delete up to `limit` events of a tenant older than a moment, all settled, and as many dead entries.

        Returns the larger of the two counts. Inbox items stay: they are their principals', not the ledger's.
        """
        rows = self.rows(connection)
        old = rows.query(
            "SELECT id FROM sense_event e WHERE tenant = ? AND accepted_at < ? AND NOT EXISTS "  # noqa: S608 - our own constants
            f"(SELECT 1 FROM sense_delivery d WHERE d.event_id = e.id AND d.{_LIVE}) ORDER BY accepted_at LIMIT ?",
            (tenant, before, limit),
        )
        ids = [(bytes(row[0]),) for row in old]
        for table, column in (("sense_attempt", "event_id"), ("sense_delivery", "event_id"), ("sense_event", "id")):
            rows.execute_many(f"DELETE FROM {table} WHERE {column} = ?", ids)  # noqa: S608 - our own names
        dead = rows.execute(
            "DELETE FROM sense_dead_entry WHERE (stream, stream_id) IN "
            "(SELECT stream, stream_id FROM sense_dead_entry WHERE tenant = ? AND at < ? ORDER BY at LIMIT ?)",
            (tenant, before, limit),
        )
        return max(len(ids), dead)

    def held_for(self, connection: sa.Connection) -> list[tuple[str, str]]:
        """Return each lane that is held for its sink, with the reason of one of its deliveries."""
        found = self.rows(connection).query(
            f"{_LANES} SELECT lane, (SELECT reason FROM sense_delivery d WHERE d.lane = lanes.lane "  # noqa: S608
            f"AND d.{_LIVE} AND d.due_at = ? AND d.state = 'held' LIMIT 1) FROM lanes WHERE lane IS NOT NULL",
            (NEVER,),
        )
        return [(lane, reason) for lane, reason in found if reason is not None]

    def due_lanes(self, connection: sa.Connection, now: int, *, held: bool = False) -> list[str]:
        """Return the lanes with a due delivery (or, with `held`, any that is held), by a loose index scan."""
        exists = "d.state = 'held'" if held else "d.due_at <= ?"
        found = self.rows(connection).query(
            f"{_LANES} SELECT lane FROM lanes WHERE lane IS NOT NULL AND EXISTS "  # noqa: S608
            f"(SELECT 1 FROM sense_delivery d WHERE d.lane = lanes.lane AND d.{_LIVE} AND {exists})",
            () if held else (now,),
        )
        return [row[0] for row in found]


def _known(row: tuple[Any, ...]) -> Known:
    return Known(bytes(row[0]), bytes(row[1]), row[2], bool(row[3]))


def _lease(chunk: Sequence[tuple[Any, ...]], *, alone: bool) -> list[Claimed]:
    """Number the attempts of one batch. A death in company gives the attempt back; one alone counts as a crash."""
    lease = secrets.token_hex(8)
    claimed = []
    for event, route, state, attempt, crashes, was_alone, *rest in chunk:
        lapsed = state == State.DELIVERING
        number = attempt if lapsed else attempt + 1
        died_alone = 1 if lapsed and was_alone else 0
        *facts, body = rest
        columns = (bytes(event), route, lease, number, alone, crashes + died_alone, *facts, bytes(body))
        claimed.append(Claimed._make(columns))
    return claimed
