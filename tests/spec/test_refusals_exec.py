"""The adversarial matrix of EXEC_STEPS: whatever else is wrong with a command, the first refusal of the table wins."""

from __future__ import annotations

from typing import Any

import pytest

from runtime_core.errors import EXEC_REFUSALS
from tests.spec.exec_worlds import outcome
from tests.spec.matrix import Fault, Matrix, merged

PACK = "pack not installed: mail"
ACTIVATION = "pack not activated: mail"
COMMAND = "unknown command: mail.act"
SESSION = "denied: session revoked"
EXPIRED = "denied: session expired"
DISABLED = "denied: principal disabled"
PROJECT = "denied: privacy.land brain requires project_id"
MEMBER = "denied: not a member of the project"
PLANE = "denied: control plane requires an operator"
LOCAL = "denied: privacy.land local requires a workspace"
CONNECT = "denied: missing pack.connect"
READ = "denied: missing verb.exec.read for mail.act"
WRITE = "denied: missing verb.exec.write for mail.act"
MOTHERSHIP = "denied: mothership binding requires an operator"
CONFIRM = "confirm required"
ARGS = "invalid args: /n"
LIMITS = "composite over 4 deep or 32 commands: mail.act"
AUDIT = "denied: audit unavailable"
UNCONNECTED = "not connected: mail"
UNAVAILABLE = "binding unavailable: keyring"
INTERRUPTED = "interrupted: outcome unknown"
ORDER = [
    *(PACK, ACTIVATION, COMMAND, SESSION, EXPIRED, DISABLED, PROJECT, MEMBER, PLANE, LOCAL, CONNECT, READ, WRITE),
    *(MOTHERSHIP, CONFIRM, ARGS, LIMITS, AUDIT, UNCONNECTED, UNAVAILABLE, INTERRUPTED),
]
"""DESIGN §7, written out once more: a change of the table's order is a change of what people are told."""
NAMES = {PACK: "mail", ACTIVATION: "mail", UNCONNECTED: "mail", UNAVAILABLE: "keyring", ARGS: "/n"}

GATE = {"operation": "write", "gated": True, "confirmed": False}
FAULTS = [
    Fault(PACK, "removed", {"installed": False}),
    Fault(ACTIVATION, "none", {"activation": "none"}),
    Fault(ACTIVATION, "revoked", {"activation": "revoked"}),
    Fault(ACTIVATION, "of another project", {"activation": "of another project"}),
    Fault(COMMAND, "not declared", {"declared": False}),
    Fault(SESSION, "revoked", {"session": "revoked"}),
    Fault(EXPIRED, "expired", {"expired": True}),
    Fault(DISABLED, "disabled", {"principal": "disabled"}),
    Fault(DISABLED, "gone", {"principal": "gone"}),
    Fault(PROJECT, "none", {"land": "brain", "project": None}),
    Fault(MEMBER, "left", {"land": "brain", "member": False}),
    Fault(PLANE, "no operator", {"plane": "control", "operator": False}),
    Fault(LOCAL, "no workspace", {"land": "local", "workspace": False}),
    Fault(CONNECT, "no grant", {"connect": True, "operation": "write", "may_connect": "no"}),
    Fault(CONNECT, "an expired grant", {"connect": True, "operation": "write", "may_connect": "expired"}),
    Fault(READ, "no grant", {"operation": "read", "may_run": "no"}),
    Fault(READ, "a grant for another key", {"operation": "read", "may_run": "another key"}),
    Fault(WRITE, "no grant", {"operation": "write", "may_run": "no"}),
    Fault(WRITE, "a grant for another key", {"operation": "write", "may_run": "another key"}),
    Fault(MOTHERSHIP, "no operator", {"mode": "mothership", "operator": False}),
    Fault(CONFIRM, "none", GATE),
    Fault(CONFIRM, "a text", {**GATE, "instead": {"confirm": "true"}}),
    Fault(ARGS, "of another type", {"args": "wrong"}),
    Fault(LIMITS, "over 32 commands", {"steps": "wide"}),
    Fault(LIMITS, "over 4 deep", {"steps": "deep"}),
    Fault(AUDIT, "full", {"audit": "away"}),
    Fault(UNCONNECTED, "not connected", {"connect": False, "hub": "there", "connected": False}),
    Fault(UNAVAILABLE, "locked", {"connect": False, "hub": "locked"}),
    Fault(UNAVAILABLE, "not on this host", {"connect": False, "hub": "absent"}),
    Fault(INTERRUPTED, "another's by now", {"operation": "write", "may_begin": False}),
]
EXCLUDED = {
    "a command has one land: what brain asks of it is asked of no local one": [(PROJECT, LOCAL), (MEMBER, LOCAL)],
    "a command is a read or a write, and one that connects or is gated or begins is a write": [
        *((CONNECT, READ), (READ, WRITE), (READ, CONFIRM), (READ, INTERRUPTED)),
    ],
    "a connect command mints nothing": [(CONNECT, UNCONNECTED), (CONNECT, UNAVAILABLE)],
    "a hub that cannot be asked does not tell who is connected": [(UNCONNECTED, UNAVAILABLE)],
}
MATRIX = Matrix(ORDER, FAULTS, EXCLUDED)
LANDS = ("personal", "brain", "local")
SHAPES = [
    {"land": land, "operation": operation, "steps": steps}
    for land in LANDS
    for operation in ("read", "write")
    for steps in (None, "one")
]


def worlds(slots: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the worlds of these slots in every land, as read and write, as itself and as a composite, where open."""
    found = [{**shape, **slots} for shape in SHAPES]
    return [one for index, one in enumerate(found) if one not in found[:index]]


def wrong(expected: str, slots: dict[str, Any]) -> list[Any]:
    """Return the worlds in which it is not that refusal, or in which more was reached than stands before it."""
    bad = []
    for world in worlds(slots):
        found = outcome(world)
        minted = int(expected == INTERRUPTED and not world.get("connect"))
        asked = minted or int(expected in (UNCONNECTED, UNAVAILABLE) and world.get("hub") != "absent")
        said = found.error or ""
        told = said == expected or (expected == ARGS and said.startswith(f"{ARGS}: "))
        lines = [] if world.get("audit") == "away" else [("exec", False, said)]
        if not told or (found.asked, found.minted, found.entered, found.lines) != (asked, minted, 0, lines):
            bad.append((world, found))
    return bad


@pytest.mark.spec("9.5.order")
def test_the_table_is_the_designs():
    """Every text of DESIGN §7, in its order; none is missing here and none more is in the code."""
    assert [
        refusal.text(NAMES.get(text, "mail.act")) for refusal, text in zip(EXEC_REFUSALS, ORDER, strict=True)
    ] == ORDER


def test_every_pair_is_tested_or_excluded():
    """No two refusals are left out silently, and no pair is called impossible that the faults here bring about."""
    assert MATRIX.wrong() == []


@pytest.mark.parametrize("change", [{}, {"connect": True, "operation": "write"}, {"gated": True, "operation": "write"}])
def test_without_a_fault_it_runs(change):
    """The control: the world that every fault is put on mints and runs, in each shape."""
    for world in worlds(change):
        if world.get("connect") and world["steps"]:
            continue  # the steps' answers are no credential
        found = outcome(world)
        assert (found.error, found.minted, found.entered) == (
            *(None, int(not world.get("connect"))),
            20 if world["steps"] else 1,
        )


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.refusal}-{fault.name}")
def test_each_fault_alone_is_its_refusal(fault):
    """So a fault that is put on beside another does apply; it is one line of the audit, and no adapter was entered."""
    assert wrong(fault.refusal, fault.slots) == []


@pytest.mark.spec("9.5.order")
@pytest.mark.spec("9.5.no-skip")
@pytest.mark.parametrize("pair", MATRIX.pairs, ids=" before ".join)
def test_of_two_at_once_the_first_wins(pair):
    """In every way the two can be brought about together: the earlier text, nothing reached that is behind it."""
    both = [merged(*faults) or {} for faults in MATRIX.both(*pair)]

    assert [fault for slots in both for fault in wrong(pair[0], slots)] == []


@pytest.mark.spec("9.5.order")
@pytest.mark.parametrize("refusal", ORDER)
def test_with_all_later_ones_at_once_the_first_wins(refusal):
    """Each fault of it with one of every later refusal that can join, in each land; at least one world has all."""
    left_out = []
    for fault in MATRIX.faults[refusal]:
        for land in [fault.slots["land"]] if "land" in fault.slots else LANDS:
            joined = MATRIX.all_later(fault._replace(slots={**fault.slots, "land": land}))
            left_out.append(MATRIX.left_out(joined))
            assert wrong(refusal, merged(*joined) or {}) == []
    assert [] in left_out


@pytest.mark.spec("4.5.3")
def test_the_hub_of_a_connect_command_is_asked_only_to_keep():
    """A connect command mints nothing; a hub that cannot keep is told after the tool ran, with its begin line."""
    slots = {"connect": True, "operation": "write", "hub": "locked"}
    found = outcome(slots)

    assert (found.error, found.asked, found.entered) == (UNAVAILABLE, 0, 1)
    assert found.lines == [("exec.begin", True, None), ("exec.end", False, UNAVAILABLE)]
