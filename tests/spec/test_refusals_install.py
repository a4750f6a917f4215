"""The adversarial matrix of installing: whatever else is wrong, the first refusal of the table is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.spec.documents import entry, failing, pack, policy, surface
from tests.spec.matrix import Fault, Matrix, merged

SESSION = "denied: session revoked"
EXPIRED = "denied: session expired"
DISABLED = "denied: principal disabled"
PLANE = "denied: control plane requires an operator"
GRANT = "denied: missing pack.install"
SURFACE = "surface.json…"
POLICY = "policy.json…"
LINT = "mail: missing_verb: policy.json /verbs/mail.list: …"
ORDER = [SESSION, EXPIRED, DISABLED, PLANE, GRANT, SURFACE, POLICY, LINT]
"""Who acts, then DESIGN §7: the control plane, the grant, and the pack's first issue: surface, policy, lint (§5)."""
FAULTS = [
    Fault(SESSION, "revoked", {"session": "revoked"}),
    Fault(EXPIRED, "ended", {"ended": True}),
    Fault(DISABLED, "disabled", {"disabled": True}),
    Fault(PLANE, "no operator", {"plane": "control", "operator": False}),
    Fault(GRANT, "none", {"grants": []}),
    Fault(GRANT, "of another axis", {"grants": [{"capability": "sense.enable", "pack": "mail"}]}),
    Fault(GRANT, "for some keys", {"grants": [{"capability": "pack.install", "pack": "mail", "keys": ["mail.list"]}]}),
    Fault(GRANT, "of another project", {"grants": [{"capability": "pack.install", "pack": "*", "project": "apollo"}]}),
    Fault(SURFACE, "an unknown adapter", {"adapter": "plugin", "plane": "runtime"}),
    Fault(SURFACE, "an unknown field", {"sandbox": {"root": True}, "plane": "runtime"}),
    Fault(POLICY, "an unknown field", {"policy": {"owner": "ana"}}),
    Fault(POLICY, "a fourth land", {"policy": {"stimuli": {"new_item": entry("team")}}}),
    Fault(LINT, "a command without an entry", {"verbs": {}}),
]
EXCLUDED = {"a manifest that cannot be read has no plane": [(PLANE, SURFACE)]}
MATRIX = Matrix(ORDER, FAULTS, EXCLUDED)


def failures(expected: str | None, slots: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return what does not hold where ana installs the pack of these slots; None: it installs."""
    manifest = surface(
        plane=slots.get("plane", "runtime"), adapter=slots.get("adapter", "wrap"), verbs={"mail.list": {}}
    )
    if "sandbox" in slots:
        manifest["sandbox"] = slots["sandbox"]
    rules = {**policy(verbs=slots.get("verbs", {"mail.list": entry()})), **slots.get("policy", {})}
    ana: dict[str, Any] = {"tenant": "acme", "operator": slots.get("operator", True), "projects": ["apollo"]}
    grants = slots.get("grants", [{"capability": "pack.install", "pack": "mail"}])
    steps: list[dict[str, Any]] = [
        *([{"step": {"revoke_session": "ana"}}] if "session" in slots else []),
        *([{"step": {"clock": "+3600s"}}] if "ended" in slots else []),
        *([{"step": {"disable": "ana"}}] if "disabled" in slots else []),
    ]
    asked = {
        "name": json.dumps(slots),
        "install": {"principal": "ana", "pack": "mail"},
        "expect": {"ok": expected is None, "error": expected},
    }
    return failing(
        [*steps, asked],
        packs=[pack(manifest, rules)],
        principals={"ana": {**ana, "expires": "+1h"}},
        grants=[{"principal": "ana", **grant} for grant in grants],
        activations={},
        routes={},
    )


def test_every_pair_is_tested_or_excluded():
    """No two refusals are left out silently, and no pair is called impossible that the faults here bring about."""
    assert MATRIX.wrong() == []


@pytest.mark.parametrize("slots", [{}, {"plane": "control"}, {"operator": False}], ids=str)
def test_without_a_fault_it_installs(slots):
    """The control: an operator may install either plane, who has the grant a pack of the runtime plane."""
    assert failures(None, slots) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.refusal}-{fault.name}")
def test_each_fault_alone_is_its_refusal(fault):
    """So a fault that is put on beside another does apply."""
    assert failures(fault.refusal, fault.slots) == []


@pytest.mark.spec("9.7.install")
@pytest.mark.parametrize("pair", MATRIX.pairs, ids=" before ".join)
def test_of_two_at_once_the_first_wins(pair):
    """In every way the two can be brought about together: the earlier text."""
    worlds = [merged(*both) or {} for both in MATRIX.both(*pair)]

    assert [fault for slots in worlds for fault in failures(pair[0], slots)] == []


@pytest.mark.parametrize("refusal", ORDER)
def test_with_all_later_ones_at_once_the_first_wins(refusal):
    """Each fault of it, and one of every later refusal that can join; at least one world has all."""
    joined = [MATRIX.all_later(first) for first in MATRIX.faults[refusal]]

    assert [fault for faults in joined for fault in failures(refusal, merged(*faults) or {})] == []
    assert [] in [MATRIX.left_out(faults) for faults in joined]
