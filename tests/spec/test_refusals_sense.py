"""The adversarial matrix of SENSE_STEPS: whatever else is wrong with an attempt, the first refusal of the table wins.

An event is accepted and held while all is well; then every fault of a world is put on, and the delivery is attempted.
"""

from __future__ import annotations

from typing import Any

import pytest

from runtime_core.errors import SENSE_REFUSALS
from tests.spec.documents import LANDS, entry, failing, pack, policy, surface
from tests.spec.matrix import Fault, Matrix, merged

PACK = "pack not installed: mail"
ACTIVATION = "denied: activation revoked"
TRIGGER = "trigger not declared: "
SESSION = "denied: session revoked"
DISABLED = "denied: principal disabled"
PROJECT = "denied: privacy.land brain requires project_id"
MEMBER = "denied: not a member of the project"
PLANE = "denied: control plane requires an operator"
PERSONAL = "denied: privacy.land personal"
LOCAL = "denied: privacy.land local requires a workspace sink"
OUTSIDE = "denied: sink outside the project"
GRANT = "denied: missing sense.enable"
ORDER = [PACK, ACTIVATION, TRIGGER, SESSION, DISABLED, PROJECT, MEMBER, PLANE, PERSONAL, LOCAL, OUTSIDE, GRANT]
"""DESIGN §7, written out once more: a change of the table's order is a change of what people are told."""

FAULTS = [
    Fault(PACK, "removed", {"removed": True}),
    Fault(ACTIVATION, "deactivated", {"deactivated": True}),
    Fault(TRIGGER, "no longer declared", {"declared": False}),
    Fault(SESSION, "revoked", {"session": "revoked"}),
    Fault(DISABLED, "publisher", {"disabled": "ana"}),
    Fault(DISABLED, "owner", {"disabled": "ben", "owner": "ben", "land": "brain"}),
    Fault(PROJECT, "none", {"land": "brain", "owner": "ana", "project": None}),
    Fault(MEMBER, "publisher left", {"land": "brain", "left": "ana"}),
    Fault(MEMBER, "owner left", {"land": "brain", "left": "ben", "owner": "ben"}),
    Fault(MEMBER, "project that is nowhere", {"land": "brain", "owner": "ana", "project": "nowhere"}),
    Fault(PLANE, "owner is no operator", {"plane": "control"}),
    Fault(PERSONAL, "a sink of the tenant", {"land": "personal", "owner": "ana", "sink": "tenant"}),
    Fault(PERSONAL, "a sink of a project", {"land": "personal", "owner": "ana", "sink": {"project": "apollo"}}),
    Fault(LOCAL, "no workspace sink", {"land": "local", "owner": "ana", "sink": "inbox"}),
    Fault(LOCAL, "no workspace", {"land": "local", "owner": "ana", "workspace": False}),
    Fault(OUTSIDE, "a sink of the tenant", {"land": "brain", "sink": "tenant"}),
    Fault(OUTSIDE, "a sink of another project", {"land": "brain", "sink": {"project": "zeus"}}),
    Fault(GRANT, "revoked", {"granted": "no more"}),
    Fault(GRANT, "of another ref", {"granted": "another ref"}),
]
EXCLUDED = {
    "a trigger has one land: what brain asks of an event is asked of no personal or local one": [
        (PROJECT, PERSONAL),
        (PROJECT, LOCAL),
        (MEMBER, PERSONAL),
        (MEMBER, LOCAL),
    ],
    "a trigger has one land, and a sink is refused by the rule of that land": [
        (PERSONAL, LOCAL),
        (PERSONAL, OUTSIDE),
        (LOCAL, OUTSIDE),
    ],
}
MATRIX = Matrix(ORDER, FAULTS, EXCLUDED)
REFS = {land: ref for ref, land in LANDS.items()}
SINKS = {"personal": "inbox", "brain": "inbox", "local": "workspace"}


def failures(expected: str, slots: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return what does not hold in the world of these slots, in every land that they leave open."""
    lands = [slots["land"]] if "land" in slots else list(REFS)
    return [fault for land in lands for fault in _failures(expected, {**slots, "land": land})]


def _failures(expected: str, slots: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    ref, owner = REFS[slots["land"]], slots.get("owner", "ana")
    granted = {"principal": owner, "capability": "sense.enable", "pack": "mail"}
    if slots.get("granted") == "another ref":
        granted["keys"] = [one for one in LANDS if one != ref]
    activation = {"principal": "ana", "pack": "mail", "workspace": slots.get("workspace", True)}
    project = slots.get("project", "apollo")
    cases = [
        _case({"sense": {"activation": "a1", "ref": ref, "data": {}, "hold": True}, "name": "held"}, "pending"),
        *({"step": step} for step in _steps(slots, ref, granted)),
        _case({"again": "held", "name": f"{slots}"}, f"{expected}{ref}" if expected == TRIGGER else expected),
    ]
    return failing(
        cases,
        grants=[granted],
        activations={"a1": activation | ({} if project is None else {"project": project})},
        routes={"r": {"principal": owner, "pack": "mail", "ref": ref, "sink": slots.get("sink", SINKS[slots["land"]])}},
    )


def _case(fields: dict[str, Any], expected: str) -> dict[str, Any]:
    return {**fields, "expect": {"r": expected}}


def _steps(slots: dict[str, Any], ref: str, granted: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what happens between acceptance and attempt."""
    steps: list[dict[str, Any]] = []
    if slots.keys() & {"declared", "plane"}:
        refs = [one for one in LANDS if slots.get("declared", True) or one != ref]
        manifest = surface(plane=slots.get("plane", "runtime"), stimulusTriggers=[{"ref": one} for one in refs])
        steps.append({"replace": pack(manifest, policy(stimuli={one: entry(LANDS[one]) for one in refs}))})
    named = {"removed": ("remove", "mail"), "deactivated": ("deactivate", "a1"), "session": ("revoke_session", "ana")}
    steps += [{change: about} for slot, (change, about) in named.items() if slot in slots]
    if "disabled" in slots:
        steps.append({"disable": slots["disabled"]})
    if "left" in slots:
        steps.append({"leave": {"principal": slots["left"], "project": "apollo"}})
    if slots.get("granted") == "no more":
        steps.append({"revoke": granted})
    return steps


@pytest.mark.spec("9.5.order")
def test_the_table_is_the_designs():
    """Every text of DESIGN §7, in its order; none is missing here and none more is in the code."""
    assert [refusal.text("mail" if refusal.step == "resolve_pack" else "") for refusal in SENSE_REFUSALS] == ORDER


def test_every_pair_is_tested_or_excluded():
    """No two refusals are left out silently, and no pair is called impossible that the faults here bring about."""
    assert MATRIX.wrong() == []


@pytest.mark.parametrize("land", REFS)
def test_without_a_fault_it_is_delivered(land):
    """The control: the world that every fault is put on delivers, in each land."""
    assert failures("delivered", {"land": land}) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.refusal}-{fault.name}")
def test_each_fault_alone_is_its_refusal(fault):
    """So a fault that is put on beside another does apply."""
    assert failures(fault.refusal, fault.slots) == []


@pytest.mark.spec("9.5.order")
@pytest.mark.parametrize("pair", MATRIX.pairs, ids=" before ".join)
def test_of_two_at_once_the_first_wins(pair):
    """In every way the two can be brought about together, in every land: the earlier text."""
    worlds = [merged(*pair) or {} for pair in MATRIX.both(*pair)]

    assert [fault for slots in worlds for fault in failures(pair[0], slots)] == []


@pytest.mark.spec("9.5.order")
@pytest.mark.parametrize("refusal", ORDER)
def test_with_all_later_ones_at_once_the_first_wins(refusal):
    """Each fault of it, in each land, and one of every later refusal that can join; at least one world has all."""
    left_out = []
    for first in MATRIX.faults[refusal]:
        for land in [first.slots["land"]] if "land" in first.slots else list(REFS):
            joined = MATRIX.all_later(first._replace(slots={**first.slots, "land": land}))
            left_out.append(MATRIX.left_out(joined))
            assert failures(refusal, merged(*joined) or {}) == []
    assert [] in left_out
