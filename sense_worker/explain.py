"""Explain: why an event arrived or did not, from what the ledger recorded (DESIGN §1.2).

Every path on which an entry can end leaves a row this reads: an event with its deliveries or its receipt, a repeat
count, or a dead entry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runtime_core.errors import SENSE_REFUSALS, NotFound
from runtime_core.event import delivery_id, parse_delivery_id, parse_event_id
from runtime_core.pipeline import SENSE_STEPS
from sense_worker.intake.candidates import NO_ROUTE
from sense_worker.storage.lanes import split_lane
from sense_worker.storage.ledger import NEVER
from sense_worker.storage.rows import Rows
from sense_worker.storage.states import State
from sense_worker.ways_out import Wanted, way_out

if TYPE_CHECKING:
    from sense_worker.storage.engine import Database

STEPS = tuple(step.__name__ for step in SENSE_STEPS)
PASSED, NOT_REACHED, WAITS, RECORDED = "passed", "not reached", "waits", "recorded"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of §9.5 for one route: `passed`, `waits`, `not reached`, `recorded`, or the exact text that ended it."""

    name: str
    outcome: str


@dataclass(frozen=True, slots=True)
class AttemptMade:
    """One attempt that the delivery's own row does not tell."""

    attempt: int
    state: str
    step: str | None
    reason: str | None
    by: str
    at: int


@dataclass(frozen=True, slots=True)
class RouteReceipt:
    """What became of the event for one route."""

    delivery_id: str
    route_id: str
    owner: str
    sink: str
    state: str
    text: str | None
    clause: str | None
    """The clause that decided a refusal, or §9.4 where a grant allowed it."""
    grant_id: str | None
    digest: str | None
    """Of the pack revision that judged the last attempt."""
    attempt: int
    due_at: int | None
    """When it is tried next, in microseconds; None where nothing is due."""
    settled_at: int | None
    steps: tuple[Step, ...]
    attempts: tuple[AttemptMade, ...]
    way_out: str | None = None
    """What to do about `text`; None where nobody needs to, or nothing here would help."""


@dataclass(frozen=True, slots=True)
class RefusedEntry:
    """An entry that was refused at intake."""

    word: str
    text: str
    detail: str
    stream: str
    stream_id: str
    activation_id: str | None
    at: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """The receipt of one event, one of its deliveries, or one refused entry."""

    id: str
    tenant: str
    pack_id: str | None
    ref: str | None
    publisher: str | None
    project: str | None
    subject: str | None
    message_id: str | None
    stream_id: str | None
    accepted_at: int | None
    repeats: int
    without: dict[str, int]
    """Matching routes that got no Delivery, by text; `no route` where none matched."""
    complete: bool
    """Every candidate route has its row; False while a fan-out of several transactions is under way or cut short."""
    routes: tuple[RouteReceipt, ...]
    refusals: tuple[RefusedEntry, ...]
    """Refused entries: the one asked for, or those that conflicted with this event."""


def explain(database: Database, tenant: str, asked: str, owner: str | None = None) -> Explanation:
    """Explain an event id (32 hex digits), a delivery id (`<event>.<route>`) or the stream id of a refused entry.

    With `owner`, only what concerns that principal: its routes, and events it published. Raises NotFound where there
    is none of that id, or none that it may know of.
    """
    with database.read() as connection:
        rows = Rows(connection, database.kind)
        event = parse_event_id(asked)
        key, route = (event, None) if event is not None else parse_delivery_id(asked) or (None, None)
        if key is None:
            if owner is not None:
                raise _unknown(asked)
            return _refused(rows, tenant, asked)
        told = _accepted(rows, tenant, asked, key, route, owner)
    return told if owner is None else _own(told, owner)


def _own(told: Explanation, owner: str) -> Explanation:
    """Leave out what belongs to others: their routes, and what conflicted with an event of theirs."""
    routes = tuple(route for route in told.routes if route.owner == owner)
    published = told.publisher == owner
    if not published and not routes and not told.without.keys() - {NO_ROUTE}:
        raise _unknown(told.id)
    return replace(told, routes=routes, refusals=told.refusals if published else ())


def _without(receipt: str | None, owner: str | None) -> dict[str, int]:
    """Return the counts of a receipt: all of them, or with `owner` those that it may know."""
    told: dict[str, int] = {}
    for text, counts in json.loads(receipt or "{}").items():
        if isinstance(counts, int):
            known = counts if owner is None or text == NO_ROUTE else 0
        else:
            known = sum(counts.values()) if owner is None else counts.get(owner, 0)
        if known:
            told[text] = known
    return told


def _accepted(rows: Rows, tenant: str, asked: str, key: bytes, route: str | None, owner: str | None) -> Explanation:
    found = rows.query(
        "SELECT pack_id, ref, publisher, project, subject, message_id, stream_id, accepted_at, repeats, receipt, "
        "unfinished_land FROM sense_event WHERE id = ? AND tenant = ?",
        (key, tenant),
    )
    if not found:
        if route is not None:
            raise _unknown(asked)
        return _turned(rows, tenant, asked, key)
    pack_id, ref, publisher, project, subject, message_id, stream_id, accepted_at, repeats, receipt, rest = found[0]
    attempts = _attempts(rows, key)
    narrowed = "" if route is None else " AND route_id = ?"
    deliveries = rows.query(
        "SELECT route_id, owner, lane, state, reason, step, grant_id, digest, attempt, due_at, settled_at "  # noqa: S608
        f"FROM sense_delivery WHERE event_id = ?{narrowed} ORDER BY route_id",
        (key,) if route is None else (key, route),
    )
    if route is not None and not deliveries:
        raise _unknown(asked)
    return Explanation(
        *(asked, tenant, pack_id, ref, publisher, project, subject, message_id, stream_id, accepted_at, repeats),
        without=_without(receipt, owner),
        complete=rest is None,
        routes=tuple(
            _route_receipt(key, row, attempts.get(row[0], ()), Wanted(publisher, row[1], pack_id, ref, "", project))
            for row in deliveries
        ),
        refusals=_refusals(rows, "event_id = ? AND tenant = ?", (key, tenant)),
    )


def _turned(rows: Rows, tenant: str, asked: str, key: bytes) -> Explanation:
    """Explain an event that never was: the entries that would have made it were refused."""
    refusals = _refusals(rows, "event_id = ? AND tenant = ?", (key, tenant))
    if not refusals:
        raise _unknown(asked)
    publisher = rows.query(
        "SELECT s.principal, a.pack_id FROM sense_activation a JOIN sense_session s ON s.id = a.session_id "
        "WHERE a.id = ? AND a.tenant = ?",
        (refusals[0].activation_id, tenant),
    )
    who, pack_id = publisher[0] if publisher else (None, None)
    return Explanation(
        *(asked, tenant, pack_id, None, who, None, None, None, refusals[0].stream_id, None, 0, {}, True, ()),
        refusals=refusals,
    )


def _attempts(rows: Rows, key: bytes) -> dict[str, tuple[AttemptMade, ...]]:
    found = rows.query(
        "SELECT route_id, attempt, state, step, reason, by, at FROM sense_attempt WHERE event_id = ? "
        "ORDER BY route_id, seq",
        (key,),
    )
    made: dict[str, tuple[AttemptMade, ...]] = {}
    for route, *attempt in found:
        made[route] = (*made.get(route, ()), AttemptMade(*attempt))
    return made


def _route_receipt(
    key: bytes, row: tuple[object, ...], attempts: tuple[AttemptMade, ...], wanted: Wanted
) -> RouteReceipt:
    route, owner, lane, state, reason, step, grant, digest, attempt, due_at, settled_at = row
    text = None if reason is None else str(reason)
    sink = split_lane(str(lane))[1]
    waits = state in (State.PENDING, State.RETRYING, State.DELIVERING, State.HELD)
    return RouteReceipt(
        delivery_id=delivery_id(key, str(route)),
        route_id=str(route),
        owner=str(owner),
        sink=sink,
        state=str(state),
        text=text,
        clause=_clause(text, grant),
        grant_id=None if grant is None else str(grant),
        digest=None if digest is None else str(digest),
        attempt=_number(attempt) or 0,
        due_at=_number(due_at) if waits and _number(due_at) != NEVER else None,
        settled_at=_number(settled_at),
        steps=_steps(str(state), None if step is None else str(step), text),
        attempts=attempts,
        way_out=way_out(text, wanted._replace(sink=sink)),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _clause(text: str | None, grant: object) -> str | None:
    """Return the clause of a refusal, by its text: the table is the only place that knows them."""
    for refusal in SENSE_REFUSALS:
        if text is not None and text.startswith(refusal.template.partition("{}")[0]):
            return f"§{refusal.clause}"
    return "§9.4.4" if grant is not None else None


def _steps(state: str, step: str | None, text: str | None) -> tuple[Step, ...]:
    """Tell the steps of §9.5 apart: those that passed, the one that ended or holds it, those not reached."""
    if state == State.DELIVERED:
        return (*(Step(name, PASSED) for name in STEPS[:-1]), Step(STEPS[-1], RECORDED))
    if state in (State.PENDING, State.DELIVERING, State.CANCELLED) or step not in STEPS:
        return tuple(Step(name, WAITS if state == State.DELIVERING else NOT_REACHED) for name in STEPS)
    at = STEPS.index(step)
    outcomes = [PASSED] * at + [text or WAITS] + [NOT_REACHED] * (len(STEPS) - at - 1)
    outcomes[-1] = RECORDED  # every decision is a line of the audit, a refusal too (§9.6.3)
    return tuple(Step(name, outcome) for name, outcome in zip(STEPS, outcomes, strict=True))


def _refused(rows: Rows, tenant: str, asked: str) -> Explanation:
    refusals = _refusals(rows, "stream_id = ? AND tenant = ?", (asked, tenant))
    if not refusals:
        raise _unknown(asked)
    return Explanation(
        *(asked, tenant, None, None, None, None, None, None, asked, None, 0, {}, True, ()),
        refusals=refusals,
    )


def _refusals(rows: Rows, where: str, parameters: tuple[object, ...]) -> tuple[RefusedEntry, ...]:
    found = rows.query(
        "SELECT word, detail, stream, stream_id, activation_id, at FROM sense_dead_entry "  # noqa: S608 - our own text
        f"WHERE {where} ORDER BY at, stream_id",
        parameters,
    )
    return tuple(RefusedEntry(word, f"refused: {word}", *rest) for word, *rest in found)


def _unknown(asked: str) -> NotFound:
    return NotFound(
        asked,
        "is no event, delivery or refused entry of this tenant",
        "see `sense-worker deliveries list` and `sense-worker dead list`; an event id has 32 hex digits",
    )
