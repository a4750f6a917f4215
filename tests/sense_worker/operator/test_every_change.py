"""Every change an operator can make bumps the authority version in its own transaction, and is a line of the audit."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from runtime_core.binding import Holder
from runtime_core.errors import AuditUnavailable
from sense_worker.hubs import build_hubs
from sense_worker.operator import Operator
from sense_worker.storage import schema
from sense_worker.storage.rows import Rows
from sense_worker.storage.sinks import disable_sink
from tests.provision import POLICY, SURFACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sense_worker.storage.engine import Database

CHANGES: dict[str, tuple[str, Callable[[Operator, dict[str, Any]], object]]] = {
    "add_principal": ("principal.add", lambda one, _: one.add_principal("ben")),
    "disable_principal": ("principal.disable", lambda one, _: one.disable_principal("ana")),
    "enable_principal": ("principal.enable", lambda one, _: one.enable_principal("off")),
    "create_session": ("session.create", lambda one, _: one.create_session("ana")),
    "rotate_session": ("session.rotate", lambda one, ids: one.rotate_session(ids["session"])),
    "revoke_session": ("session.revoke", lambda one, ids: one.revoke_session(ids["session"])),
    "add_project": ("project.add", lambda one, _: one.add_project("gemini")),
    "add_member": ("project.add_member", lambda one, _: one.add_member("apollo", "off")),
    "remove_member": ("project.remove_member", lambda one, _: one.remove_member("apollo", "ana")),
    "add_grant": ("grant.add", lambda one, _: one.add_grant("ana", "sense.enable", pack="mail", expires_in_s=60)),
    "revoke_grant": ("grant.revoke", lambda one, ids: one.revoke_grant(ids["grant"])),
    "install_pack": ("pack.install", lambda one, ids: one.install_pack(ids["next"])),
    "add_sink": ("sink.add", lambda one, _: one.add_sink("log", "memory")),
    "pause_sink": ("sink.pause", lambda one, _: one.pause_sink("inbox")),
    "set_sink": ("sink.set", lambda one, _: one.set_sink("hook", {"payload": "full"})),
    "rotate_sink": ("sink.rotate", lambda one, _: one.rotate_sink("hook")),
    "resume_sink": ("sink.resume", lambda one, _: one.resume_sink("paused")),
    "remove_sink": ("sink.remove", lambda one, _: one.remove_sink("paused")),
    "add_route": ("route.add", lambda one, _: one.add_route("mail", "*", "inbox", owner="ana")),
    "remove_route": ("route.remove", lambda one, ids: one.remove_route(ids["route"])),
    "activate": ("activate", lambda one, _: one.activate("mail", project="apollo")),
    "rotate_activation": ("activation.rotate", lambda one, ids: one.rotate_activation(ids["activation"])),
    "disconnect": ("disconnect", lambda one, _: one.disconnect("mail")),
    "deactivate": ("deactivate", lambda one, ids: one.deactivate(ids["activation"])),
    "remove_pack": ("pack.remove", lambda one, _: one.remove_pack("mail")),
}
"""By method: its action in the audit, and a call. Each is possible after those above it."""
SAME = {"issue_session": "create_session"} | {
    f"ensure_{name}": f"add_{name}" for name in ("principal", "project", "member", "grant", "sink", "route")
}
"""Second names of a change."""
NO_CHANGE = {"open", "initialize", "close", "acting", "acting_as", "seal", "explain", "masked_options", "test_sink"}
NO_CHANGE |= {f"{name}_items" for name in ("see", "read", "unread", "archive", "unarchive", "snooze", "wake")}
NO_CHANGE |= {"prune_inbox", "inbox_counts"}
"""Of the inbox: who may do what does not hang on an item (tests/sense_worker/operator/test_inbox.py)."""
NO_CHANGE |= {"try_route", "try_new_route", "replay"}
READING = re.compile(r"(list|show)_\w+|status")

GUARDED = (
    *(schema.PRINCIPAL, schema.SESSION, schema.PROJECT, schema.MEMBERSHIP, schema.GRANT, schema.PACK),
    *(schema.REVISION, schema.SINK, schema.ROUTE, schema.ACTIVATION, schema.CREDENTIAL),
)
"""Tables whose rows say who may do what."""
_WRITES = re.compile(r"\s*(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)", re.IGNORECASE)


@pytest.fixture
def ids(world, ana) -> dict[str, Any]:
    """A tenant with one of everything that a change can be about."""
    one = world.operator
    one.install_pack(world.pack())
    one.add_principal("off")
    one.disable_principal("off")
    one.add_project("apollo")
    one.add_member("apollo", "ana")
    one.add_sink("hook", "webhook", options={"url": "https://1.1.1.1/x"})
    one.add_sink("paused", "memory")
    one.pause_sink("paused")
    hubs = build_hubs(world.settings, one._database, one._vault)
    hubs["keyring"].keep(Holder("t-red", "operator", "pack:mail"), "op@mail", {"secret": "s"})
    triggers = [trigger for trigger in SURFACE["stimulusTriggers"] if trigger["ref"] != "counted_item"]
    stimuli = {ref: entry for ref, entry in POLICY["stimuli"].items() if ref != "counted_item"}
    return {
        "session": ana.acting.session_id,
        "grant": one.add_grant("ana", "sense.enable", pack="mail", keys=["new_item"]).id,
        "route": ana.add_route("mail", "new_item", "inbox").id,
        "activation": ana.activate("mail").id,
        "next": world.pack(SURFACE | {"stimulusTriggers": triggers}, POLICY | {"stimuli": stimuli}),
    }


class Transactions:
    """Which tables each committed transaction of a database wrote to."""

    def __init__(self, database: Database) -> None:
        self.committed: list[set[str]] = []
        self._open: dict[int, set[str]] = {}
        event.listen(database.engine, "before_cursor_execute", self._wrote)
        event.listen(database.engine, "commit", lambda at: self.committed.append(self._open.pop(id(at), set())))
        event.listen(database.engine, "rollback", lambda at: self._open.pop(id(at), None))

    def _wrote(self, connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found = _WRITES.match(statement)
        if found is not None:
            self._open.setdefault(id(connection), set()).add(found[1].strip('"').lower())

    def changes(self) -> list[set[str]]:
        """Return the tables of every transaction that changed who may do what."""
        return [tables for tables in self.committed if tables & {table.name for table in GUARDED}]


def rows(world) -> dict[str, list[Any]]:
    """Return every row of the guarded tables."""
    return {table.name: world.rows(table) for table in GUARDED}


def test_no_change_is_without_a_row_here():
    """Whatever the operator's module offers either reads, or stands in the table that the next tests walk."""
    names = {name for name, _ in inspect.getmembers(Operator) if not name.startswith("_")}

    changing = {name for name in names - NO_CHANGE if READING.fullmatch(name) is None}
    assert changing == set(CHANGES) | set(SAME)
    assert all(getattr(Operator, second) is getattr(Operator, first) for second, first in SAME.items())


@pytest.mark.spec("9.6.1")
def test_a_change_bumps_the_version_with_its_rows_and_is_recorded(world, ids):
    """Each has one transaction with its rows and one step of the version, and one line; without that line, nothing."""
    seen = Transactions(world.operator._database)
    for name, (action, call) in CHANGES.items():
        before, version = rows(world), world.version()
        with world.without_audit(), pytest.raises(AuditUnavailable):
            call(world.operator, ids)
        assert (name, rows(world), world.version(), seen.changes()) == (name, before, version, [])
        world.forget()

        call(world.operator, ids)

        assert rows(world) != before, name
        assert [(name, "sense_tenant" in tables) for tables in seen.changes()] == [(name, True)]
        assert (world.version(), world.audited()) == (version + 1, [(action, True, "operator", None)])
        seen.committed.clear()


def test_the_same_again_is_no_change(world, ids):
    """What is so already moves no version, writes no guarded row and no line."""
    ids["again"] = {"pack": "mail", "keys": ["new_item"]}
    calls = [CHANGES[name][1] for name in ("revoke_session", "deactivate", "disable_principal", "pause_sink")]
    calls.append(lambda one, ids: one.add_grant("ana", "sense.enable", **ids["again"]))
    for call in calls:
        call(world.operator, ids)
    before, version = rows(world), world.version()
    world.forget()
    seen = Transactions(world.operator._database)

    for call in calls:
        call(world.operator, ids)

    assert (rows(world), world.version(), world.audited(), seen.changes()) == (before, version, [], [])


def test_a_standing_grant_is_found_before_an_ended_one_is_cleared(world, ids):
    """Of two equal grants one has ended: asked for again, the standing one is answered and nothing is touched."""
    grants = schema.GRANT
    for _ in range(6):  # ids are random, and rows come in their order: six ended ones are before and behind
        ended = world.operator.add_grant("ana", "sense.enable", pack="mail", keys=["new_item"], expires_in_s=60)
        world.change(grants, grants.c.id == ended.id, expires_at=2**62)
    world.change(grants, grants.c.expires_at == 2**62, expires_at=1)
    before, version = rows(world), world.version()

    found = world.operator.add_grant("ana", "sense.enable", pack="mail", keys=["new_item"])

    assert (found.id, rows(world), world.version()) == (ids["grant"], before, version)


def test_a_sink_that_says_stop_is_a_change_too(world):
    """What the drain writes into a sink's row is bumped with it, once."""
    version = world.version()
    seen = Transactions(world.database)
    for _ in range(2):
        with world.database.write() as connection:
            disable_sink(connection, Rows(connection, world.database.kind), "t-red/inbox", "gone", 5)

    assert world.version() == version + 1
    assert ["sense_tenant" in tables for tables in seen.committed[:2]] == [True, False]
