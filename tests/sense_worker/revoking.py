"""Events on their way through the whole pipeline, and all that an operator can withdraw meanwhile."""

from __future__ import annotations

import json
import time
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import event

from runtime_core import pipeline
from runtime_core.audit_chain import ChainedAudit
from runtime_core.event import delivery_id
from sense_worker.drain import Drain, Work
from sense_worker.intake import record as record_module
from sense_worker.operator import Operator
from sense_worker.storage import tables
from sense_worker.storage.authorities import Authorities
from sense_worker.storage.engine import Database
from sense_worker.storage.ledger import Ledger
from sinks.inbox import Inbox
from sinks.protocol import Retry
from sinks.registry import Registry
from tests.intake_bench import IntakeBench
from tests.provision import POLICY, SURFACE, write_pack
from tests.sense_worker.probe import EFFECT, HANDED, NOW, READ, RECHECK_S, Far, Near, Probe

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    import pytest

REF = "shared_item"
"""Of land brain: then owner and publisher are two principals, and memberships count too."""
PATHS = ("inbox", "inbox later", "near", "far", "far again")
"""Where the event goes: the inbox at arrival or by a drain; a local sink; a remote one at its first try or second."""
LATE_S = 1.0
"""Between claim and hand-over, where it is late: above RECHECK_S, below the slack of a lease."""
HOURS = 3_600_000_000


class Road:
    """A tenant with an operator, and every step of intake and drain wired to the probe of the moment."""

    def __init__(self, folder: Path, database: Database, patch: pytest.MonkeyPatch) -> None:
        registry = Registry()
        registry.register(Near)
        registry.register(Far)
        (folder / "home").mkdir()
        self.bench = IntakeBench(folder / "home", database, registry, SENSE_AUDIT_FSYNC="false")
        Operator.initialize(self.bench.settings, tenant="t-red")
        self.operator = Operator.open(
            self.bench.settings, session_file=self.bench.settings.home / "t-red.session", registry=registry
        )
        triggers = [one for one in SURFACE["stimulusTriggers"] if one["ref"] != REF]
        stimuli = {ref: entry for ref, entry in POLICY["stimuli"].items() if ref != REF}
        surface, policy = SURFACE | {"stimulusTriggers": triggers}, POLICY | {"stimuli": stimuli}
        self.without_trigger = write_pack(folder / "mail", surface, policy)
        self.database = database
        self.probe: Probe | None = None
        self._passed = 0
        self._sound = self._generation()
        self._writing: set[int] = set()
        self._numbers = count(1)
        self.bench.ports.authorities.cached(["t-red"])  # else the first arrival of a process alone reads them
        self._wire(patch)

    def stage(self, path: str) -> Stage:
        """Return a fresh event's world: principals, project, sink and route of its own."""
        self._passed = 0
        if self._generation() != self._sound:  # the pack is the one thing that all stages share
            self.bench.rows.pack()
            self._sound = self._generation()
        return Stage(self, path, next(self._numbers))

    def _generation(self) -> object:
        return self.bench.query("SELECT generation FROM sense_pack")

    def let_pass(self, micros: int) -> None:
        """Let the database's clock go on."""
        self._passed += micros

    def say(self, step: str) -> None:
        """Tell the probe of the moment, if there is one."""
        if self.probe is not None:
            self.probe(step)

    def note(self, what: str, value: float = 0.0) -> None:
        """Add to the trace of the moment."""
        if self.probe is not None:
            self.probe.note(what, value)

    def until_it_waits(self, thread: threading.Thread) -> None:
        """Return when the thread has ended, or waits for a transaction of the pipeline's."""
        if self.database.kind == "sqlite":
            if not self._writing:  # SQLite has one writer, and does not tell who waits for it
                thread.join(30)
            return
        for _ in range(3000):
            thread.join(0.01)
            with self.database.read() as connection:
                waits = connection.scalar(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted"))
            if waits or not thread.is_alive():
                return
        raise AssertionError("the withdrawal neither ended nor waited")

    def close(self) -> None:
        """Close what it opened."""
        self.operator.close()
        self.bench.close()

    def _wire(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("sense_worker.drain.RECHECK_S", RECHECK_S)
        for owner, name, step, done in (
            (record_module, "admit", "admit", "admitted"),
            (Authorities, "locked", "read versions", "have versions"),
            (Authorities, "current", "read versions again", "have versions again"),
            (Ledger, "insert_events", "insert events", None),
            (Ledger, "insert_deliveries", "insert deliveries", None),
            (Ledger, "claim", "claim", None),
            (Ledger, "settle", "settle", None),
            (Inbox, "write", "write", None),
            (ChainedAudit, "append", "append", None),
            (pipeline, "deliver", "deliver", None),
            (pipeline, "audit", "audit", None),
        ):
            patch.setattr(owner, name, self._told(getattr(owner, name), step, done))
        gates = tuple(self._told(gate, gate.__name__, None) for gate in pipeline.SENSE_GATES)
        patch.setattr(pipeline, "SENSE_GATES", gates)
        clock = Database.now

        def now(database: Database, connection: sa.Connection) -> int:
            self.note(NOW)
            return clock(database, connection) + self._passed

        patch.setattr(Database, "now", now)
        engine = self.bench.ports.database.engine
        event.listen(engine, "begin", self._began)
        event.listen(engine, "commit", lambda connection: self._ended(connection, committed=True))
        event.listen(engine, "rollback", lambda connection: self._ended(connection, committed=False))

    def _told(self, function: Callable[..., Any], step: str, done: str | None) -> Callable[..., Any]:
        def told(*arguments: Any, **named: Any) -> Any:
            self.say(step)
            if step.startswith("read versions"):
                self.note(READ)
            if step == "write":
                self.note(EFFECT)
            answer = function(*arguments, **named)
            if done is not None:
                self.say(done)
            return answer

        return told

    def _began(self, connection: sa.Connection) -> None:
        if not connection.get_execution_options().get("sense_read_only", False):
            self._writing.add(id(connection))

    def _ended(self, connection: sa.Connection, *, committed: bool) -> None:
        if id(connection) in self._writing and committed:
            self.say("commit")
        self._writing.discard(id(connection))


class Stage:
    """One owner, one publisher, one project, one sink, one route, one grant with an end, and one event."""

    def __init__(self, road: Road, path: str, number: int) -> None:
        self.road = road
        self.operator = road.operator
        self.path = path
        self.owner, self.publisher, self.project = f"own-{number}", f"pub-{number}", f"prj-{number}"
        self.session, self.activation, self.sink = f"ses-pub-{number}", f"act-{number}", f"snk-{number}"
        self.lane = f"t-red/{self.sink}"
        rows = road.bench.rows
        rows.principal(self.owner), rows.principal(self.publisher)
        rows.put(tables.ProjectRow, id=self.project, created_at=1)
        rows.member(self.project, self.owner, self.publisher)
        road.bench.activate(self.activation, self.publisher, project=self.project)
        kind = path.partition(" ")[0]
        rows.sink(self.sink, kind, audience="tenant" if kind == "inbox" else f"project:{self.project}")
        self._opens_later = path == "inbox later"
        if self._opens_later:
            rows.change(tables.SinkRow, {"name": self.sink}, paused_at=5)
        self.route = rows.route(self.owner, REF, self.sink)
        self.grant = rows.grant(self.owner, REF)
        with road.database.read() as connection:
            ends_at = road.database.now(connection) + HOURS
        rows.change(tables.GrantRow, {"id": self.grant}, expires_at=ends_at)
        Near.outcomes = [Retry("busy")] if path == "far again" else []
        self._audit_from = road.bench.settings.audit_file.stat().st_size

    def pause(self) -> None:
        """Let the operator pause the sink; it stays so, also where the stage had paused it for a while."""
        if self._opens_later:  # of its own pause this is the end: what follows is a change, and audited
            self.open()
        self.operator.pause_sink(self.sink)

    def open(self) -> None:
        """End the pause that the stage began with."""
        self._opens_later = False
        self.road.bench.rows.change(tables.SinkRow, {"name": self.sink}, paused_at=None)

    def run(self, probe: Probe, *, late: bool) -> None:
        """Take an event all the way, `probe` at every step; `late`: a hand-over comes LATE_S after its claim."""
        self.road.probe = Near.probe = probe
        try:
            self._arrive(probe, late=late)
            if self._opens_later:
                self.open()
            self._drain(probe, late=late)
        finally:
            self.road.probe = Near.probe = None

    def _arrive(self, probe: Probe, *, late: bool) -> None:
        bench = self.road.bench
        entry = bench.entry(REF, activation=self.activation)
        with probe.phase("arrival"):
            parts = bench.recorded(entry)
        probe("recorded")
        for part in parts:
            for opened, batch in part.local:
                self._hand_over(probe, "hand-over", Drain(bench.ports), (opened, batch), late=late)

    def _drain(self, probe: Probe, *, late: bool) -> None:
        drain = Drain(self.road.bench.ports)
        for turn in range(1, 6):
            with self.road.database.write() as connection:
                connection.exec_driver_sql("UPDATE sense_delivery SET due_at = 1 WHERE due_at < 4000000000000000000")
            which = "" if turn == 1 else f" {turn}"
            probe(f"due{which}")
            with probe.phase(f"claim{which}"):
                work = drain.claim(self.lane)
            if not isinstance(work, Work):
                return
            probe(f"claimed{which}")
            for batch in work.batches:
                self._hand_over(probe, f"hand-over{which}", drain, (work.opened, batch), late=late)
        raise AssertionError("the lane never became empty")

    @staticmethod
    def _hand_over(probe: Probe, phase: str, drain: Drain, work: tuple[Any, Any], *, late: bool) -> None:
        opened, batch = work
        claimed_at = time.monotonic() - (LATE_S if late else 0.0)
        with probe.phase(phase):
            probe("begin")
            probe.note(HANDED, time.monotonic() - claimed_at)
            drain.hand_over(opened, batch, claimed_at)

    # --- what came of it -----------------------------------------------------------------------------------------

    def ending(self) -> str:
        """Return how the event ended for the route: a state, a text, `refused: WORD`, or `none`."""
        query = self.road.bench.query
        dead = query("SELECT word FROM sense_dead_entry WHERE activation_id = ?", self.activation)
        if dead:
            return f"refused: {dead[0][0]}"
        found = query("SELECT state, reason FROM sense_delivery WHERE route_id = ?", self.route)
        if not found:
            return "none"
        ((state, reason),) = found
        return str(reason if state == "denied" else state)

    def lines(self) -> list[dict[str, Any]]:
        """Return the audit's lines since the stage was set."""
        with self.road.bench.settings.audit_file.open("rb") as file:
            file.seek(self._audit_from)
            return [json.loads(line) for line in file]

    def delivered_lines(self) -> list[tuple[bool, str | None]]:
        """Return ok and reason of every line about a delivery of the route."""
        found = self.road.bench.query("SELECT event_id FROM sense_delivery WHERE route_id = ?", self.route)
        subjects = {delivery_id(bytes(row[0]), self.route) for row in found}
        return [
            (line["ok"], line["reason"])
            for line in self.lines()
            if line["action"] == "sense.deliver" and line["subject"] in subjects
        ]


class Withdrawal(NamedTuple):
    """A kind of it: what an operator does, its line in the audit, and how the delivery may end where it came first.

    An ending is a state, a text of the table, `refused: WORD`, or `none` where the route got no Delivery at all.
    """

    act: Callable[[Stage], object]
    action: str | None
    endings: frozenset[str]


def _kind(action: str | None, act: Callable[[Stage], object], *endings: str) -> Withdrawal:
    return Withdrawal(act, action, frozenset(endings))


NOT_IN = "denied: not a member of the project"
DISABLED = "denied: principal disabled"
NO_GRANT = "denied: missing sense.enable"
KINDS: dict[str, Withdrawal] = {
    "grant revoked": _kind("grant.revoke", lambda on: on.operator.revoke_grant(on.grant), NO_GRANT),
    "grant expired": _kind(None, lambda on: on.road.let_pass(2 * HOURS), NO_GRANT),
    "owner disabled": _kind("principal.disable", lambda on: on.operator.disable_principal(on.owner), DISABLED),
    "publisher disabled": _kind(
        "principal.disable",
        lambda on: on.operator.disable_principal(on.publisher),
        *(DISABLED, "refused: principal_disabled"),
    ),
    "owner left": _kind(
        "project.remove_member", lambda on: on.operator.remove_member(on.project, on.owner), NOT_IN, "none"
    ),
    "publisher left": _kind(
        "project.remove_member", lambda on: on.operator.remove_member(on.project, on.publisher), NOT_IN
    ),
    "session revoked": _kind(
        "session.revoke",
        lambda on: on.operator.revoke_session(on.session),
        *("denied: session revoked", "refused: session_revoked"),
    ),
    "deactivated": _kind(
        "deactivate",
        lambda on: on.operator.deactivate(on.activation),
        *("denied: activation revoked", "refused: activation_revoked"),
    ),
    "route removed": _kind("route.remove", lambda on: on.operator.remove_route(on.route), "cancelled", "none"),
    "sink paused": _kind("sink.pause", lambda on: on.pause(), "held"),
    "pack removed": _kind(
        "pack.remove",
        lambda on: on.operator.remove_pack("mail"),
        *("pack not installed: mail", "refused: pack_missing"),
    ),
    "trigger dropped": _kind(
        "pack.install",
        lambda on: on.operator.install_pack(on.road.without_trigger),
        *(f"trigger not declared: {REF}", "refused: undeclared_ref"),
    ),
}
