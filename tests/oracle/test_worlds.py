"""The seeded worlds: the same by seed, quick to read both ways, and reaching every outcome a scenario can show."""

import json
from collections import Counter

import pytest

from tests.oracle.coverage import coverage
from tests.oracle.judge import expected, expected_packs
from tests.oracle.state import apply_step, begin
from tests.oracle.worlds import BOTH_HALVES, world

SENSE_OUTCOMES = (
    *("delivered", "pending", "held", "repeat", "pack not installed", "trigger not declared"),
    *("denied: activation revoked", "denied: session revoked", "denied: principal disabled"),
    *("denied: privacy.land brain requires project_id", "denied: not a member of the project"),
    *("denied: control plane requires an operator", "denied: privacy.land personal"),
    *("denied: privacy.land local requires a workspace sink", "denied: sink outside the project"),
    "denied: missing sense.enable",
    *("refused too_large", "refused unknown_credential", "refused activation_revoked", "refused session_revoked"),
    *("refused principal_disabled", "refused expired", "refused malformed", "refused unknown_field"),
    *("refused pack_missing", "refused undeclared_ref", "refused invalid_data", "refused conflict"),
    *("install ok", "install …", "install denied: control plane requires an operator"),
    "install denied: missing pack.install",
)
EXEC_OUTCOMES = (
    *("ok", "refused: malformed", "refused: unknown_field", "pack not installed", "pack not activated"),
    *("unknown command", "denied: session revoked", "denied: session expired", "denied: principal disabled"),
    *("denied: privacy.land brain requires project_id", "denied: not a member of the project"),
    *("denied: control plane requires an operator", "denied: privacy.land local requires a workspace"),
    *("denied: missing pack.connect", "denied: missing verb.exec.read", "denied: missing verb.exec.write"),
    *("denied: mothership binding requires an operator", "confirm required", "invalid args: …", "not connected"),
)


def decided(seeds, kinds) -> Counter:
    counts: Counter = Counter()
    for seed in seeds:
        counts += coverage(expected(world(seed, kinds)))
    return counts


def test_a_world_is_the_same_for_its_seed():
    """A seed gives the same scenario whatever was made before, as plain JSON."""
    first = json.dumps(world(7))
    world(8, BOTH_HALVES)
    assert json.dumps(world(7)) == first


def test_the_sense_half_reaches_every_outcome_often():
    """In 300 worlds every outcome of intake and SENSE_STEPS comes, and a quarter of what routes get is delivered."""
    counts = decided(range(300), ("sense", "install", "step"))
    assert {name: counts[name] for name in SENSE_OUTCOMES if counts[name] < 5} == {}
    outcomes = sum(count for name, count in counts.items() if not name.startswith(("refused", "install", "repeat")))
    assert counts["delivered"] >= outcomes / 4
    assert counts.total() >= 300 * 50


def test_the_exec_half_reaches_every_outcome_often():
    """In 300 worlds every refusal of EXEC_STEPS that a scenario can show comes, and a fifth of the commands run."""
    counts = decided(range(300), BOTH_HALVES)
    assert {name: counts[f"exec {name}"] for name in EXEC_OUTCOMES if counts[f"exec {name}"] < 5} == {}
    commands = sum(count for name, count in counts.items() if name.startswith("exec "))
    assert counts["exec ok"] >= commands / 5


def test_the_worlds_hold_packs_in_every_state():
    """Installed packs, and packs that fail in their policy, their surface or their lint."""
    states = Counter()
    for seed in range(300):
        states.update(pack["state"] for pack in expected_packs(world(seed)).values())
    assert {name for name, count in states.items() if count >= 5} == {"installed", "policy", "surface", "lint"}


@pytest.mark.long
def test_two_thousand_worlds_hold_a_hundred_thousand_decisions():
    """2,000 worlds of the Sense half hold at least 100,000 decisions."""
    assert decided(range(2000), ("sense", "install", "step")).total() >= 100_000


def test_every_step_of_a_world_has_something_to_change():
    """Each revoke takes exactly one row, each `again` names an accepted case, each name in a step stands."""
    for seed in range(200):
        scenario = world(seed, BOTH_HALVES)
        state = begin(scenario)
        for case, result in zip(scenario["cases"], expected(scenario), strict=True):
            for word, value in case.get("step", {}).items():
                before = len(state["grants"])
                if word == "deactivate":
                    assert not state["activations"][value]["revoked"]
                elif word == "remove":
                    assert ("acme", value) in state["installed"]
                apply_step(state, case["step"])
                assert len(state["grants"]) - before == {"revoke": -1, "grant": 1}.get(word, 0)
            if "again" in case:
                assert "refused" not in result
                assert "repeat" not in result


def test_no_workspace_sink_meets_an_activation_without_a_workspace():
    """Whether that is held or denied the text leaves open; no world asks."""
    for seed in range(200):
        scenario = world(seed)
        written = {row["pack"] for row in scenario["routes"].values() if row["sink"] == "workspace"}
        later = [case["step"]["activate"] for case in scenario["cases"] if "activate" in case.get("step", {})]
        for row in [*scenario["activations"].values(), *later]:
            assert row["pack"] not in written or row["workspace"] is True
