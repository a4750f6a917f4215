"""§4 Policy: what a policy.json may say, and what each land keeps to itself, as scenarios."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spec.documents import audited, entry, failing, pack, policy, surface

ROOT = Path(__file__).parents[2]
NOT_SERVED = "[{sense: {activation: a1, ref: new_item, data: {}}, expect: {refused: pack_missing}}]"
ARRIVES = "[{sense: {activation: a1, ref: new_item, data: {}}, expect: {to-ana: delivered}}]"
STAYS = """
- {name: good, sense: {activation: a1, ref: new_item, data: {}}, expect: {to-ana: delivered}}
- step: {replace: %s}
- {name: after, sense: {activation: a1, ref: new_item, data: {}}, expect: {to-ana: delivered}}
"""
"""A replacement that fails leaves the last good revision in force."""
FULL: dict[str, Any] = {
    "surface": surface(adapter="wrap", verbs={"mail.list": {}, "mail.send": {}}),
    "policy": policy(verbs={"mail.list": entry(), "mail.send": entry(operation="write", confirm=True)}),
}


def refused(state: str, surface_: Any = None, policy_: Any = None) -> None:
    """Hold a pack to being refused as `state`, whether it is new or a replacement."""
    bad = {"surface": surface_ or FULL["surface"], "policy": policy_ or FULL["policy"]}
    assert failing(NOT_SERVED, packs=[bad], rejected={"mail": state}) == []
    assert failing(STAYS % json.dumps(bad), packs=[FULL]) == []


@pytest.mark.spec("4.0.object")
@pytest.mark.parametrize("text", ["[]", "null", '"policy"', "1", "", "{}{}", "surface_id: mail"])
def test_a_policy_is_one_json_object(text):
    """Whatever is not exactly one JSON object is no policy, and the pack is not installed."""
    bad = {"surface": surface(), "policy_text": text}

    assert failing(NOT_SERVED, packs=[bad], rejected={"mail": "policy"}) == []


@pytest.mark.spec("4.0.strict")
@pytest.mark.parametrize("field", ["confirm_text", "role", "land", "Operation", ""])
@pytest.mark.parametrize("level", ["top", "verb", "verb privacy", "stimulus", "stimulus privacy"])
def test_an_unknown_field_fails_at_every_level(level, field):
    """At each of the five places where a policy has fields, one that the chapter does not know refuses the pack."""
    written = json.loads(json.dumps(FULL["policy"]))
    verb, stimulus = written["verbs"]["mail.list"], written["stimuli"]["new_item"]
    place = {"top": written, "verb": verb, "stimulus": stimulus}
    place |= {"verb privacy": verb["privacy"], "stimulus privacy": stimulus["privacy"]}
    key = "brain" if field == "land" and level.endswith("privacy") else field
    place[level][key] = "personal"

    refused("policy", policy_=written)


@pytest.mark.spec("4.1.version")
@pytest.mark.parametrize("version", [True, "1", 2, 0, None, [1]])
def test_the_version_is_the_integer_one(version):
    """By type and value; 1.0 too is another thing than 1."""
    refused("policy", policy_={**FULL["policy"], "version": version})
    text = json.dumps(policy()).replace('"version": 1', '"version": 1.0')
    assert failing(NOT_SERVED, packs=[{"surface": surface(), "policy_text": text}], rejected={"mail": "policy"}) == []


@pytest.mark.spec("4.1.stimuli-default")
def test_a_policy_without_stimuli_is_one_with_none():
    """A pack without triggers may leave them out; one with a trigger has then forgotten its entry."""
    bare = {"surface_id": "mail", "version": 1, "verbs": {"mail.list": entry()}}
    commands = surface(adapter="wrap", verbs={"mail.list": {}}, stimulusTriggers=[])
    undeclared = "[{sense: {activation: a1, ref: new_item, data: {}}, expect: {refused: undeclared_ref}}]"

    assert failing(undeclared, packs=[pack(commands, bare)], lint={"mail": []}) == []
    both = surface(adapter="wrap", verbs={"mail.list": {}}, stimulusTriggers=[{"ref": "new_item"}])
    assert failing(NOT_SERVED, packs=[pack(both, bare)], lint={"mail": ["missing_stimulus"]}) == []


@pytest.mark.spec("4.2.5")
def test_a_connect_command_is_a_write():
    """A pack whose connect command is a read is refused."""
    verbs = {"mail.list": {"connect": True}, "mail.send": {}}
    bad = {"surface": surface(adapter="wrap", verbs=verbs), "policy": FULL["policy"]}

    assert failing(NOT_SERVED, packs=[bad], lint={"mail": ["connect_not_write"]}) == []


@pytest.mark.spec("4.2.6")
@pytest.mark.spec("4.4.write-stimulus")
def test_sense_cannot_write():
    """A trigger whose entry is a write refuses the whole pack, and every delivery there is was recorded as a read."""
    stimuli = {**policy()["stimuli"], "saved_item": entry("local", "write")}

    assert failing(NOT_SERVED, packs=[pack(policy=policy(stimuli=stimuli))], lint={"mail": ["write_stimulus"]}) == []
    refused("lint", policy_={**FULL["policy"], "stimuli": stimuli})
    assert {line.operation for line in audited(ARRIVES)} == {"read"}


@pytest.mark.spec("4.3.1")
@pytest.mark.spec("4.3.3")
@pytest.mark.parametrize("land", ["tenant", "team", "shared", "Personal", "brain ", "", "*", None, ["brain"], {}])
def test_there_are_three_lands(land):
    """Any other token refuses the pack, in an entry of a command and of a trigger, and none can be mapped in."""
    for place in ("verbs", "stimuli"):
        entries = dict(FULL["policy"][place])
        entries[next(iter(entries))] = {"operation": "read", "privacy": {"land": land}}
        refused("policy", policy_={**FULL["policy"], place: entries})
    mapped = {**FULL["policy"], "lands": {"team": "brain"}}
    refused("policy", policy_=mapped)


SINKS: dict[str, Any] = {"inbox": "inbox", "own": "own", "tenant": "tenant", "workspace": "workspace"}
SINKS |= {"apollo": {"project": "apollo"}, "zeus": {"project": "zeus"}}
LAND_TABLE = {
    ("new_item", "ana"): {"inbox": "delivered", "own": "delivered", "workspace": "delivered"},
    ("new_item", "ben"): {},
    ("shared_item", "ana"): {"inbox": "delivered", "own": "delivered", "apollo": "delivered", "workspace": "delivered"},
    ("shared_item", "ben"): {"inbox": "delivered", "own": "delivered", "apollo": "delivered", "workspace": "delivered"},
    ("shared_item", "cyd"): dict.fromkeys(SINKS, "denied: not a member of the project"),
    ("saved_item", "ana"): {"workspace": "delivered"},
    ("saved_item", "ben"): {},
}
"""What ana's event of that ref does on a route of that owner, by sink; a sink that is not named: the refusal below."""
OTHERWISE = {
    "new_item": "denied: privacy.land personal",
    "shared_item": "denied: sink outside the project",
    "saved_item": "denied: privacy.land local requires a workspace sink",
}


@pytest.mark.spec("4.3.personal")
@pytest.mark.spec("4.3.brain")
@pytest.mark.spec("4.3.local")
@pytest.mark.parametrize(("ref", "owner"), LAND_TABLE)
def test_each_land_keeps_its_data_in(ref, owner):
    """Land by owner by sink: personal to its principal alone, brain within its project, local to its workspace."""
    routes = {name: {"principal": owner, "pack": "mail", "ref": ref, "sink": sink} for name, sink in SINKS.items()}
    expect = {name: LAND_TABLE[ref, owner].get(name, OTHERWISE[ref]) for name in SINKS}
    cases: list[Any] = [{"sense": {"activation": "a1", "ref": ref, "data": {}}, "expect": expect}]

    assert failing(cases, routes=routes) == []


@pytest.mark.spec("4.3.brain")
def test_project_data_needs_the_project_and_both_memberships_now():
    """Whoever left the project between acceptance and attempt, publisher or owner, ends the delivery."""
    cases = """
    - {name: one, sense: {activation: a1, ref: shared_item, data: {}, hold: true}, expect: {to-ben: pending}}
    - step: {leave: {principal: ben, project: apollo}}
    - {again: one, expect: {to-ben: "denied: not a member of the project"}}
    - step: {join: {principal: ben, project: apollo}}
    - step: {leave: {principal: ana, project: apollo}}
    - {again: one, expect: {to-ben: "denied: not a member of the project"}}
    - step: {join: {principal: ana, project: apollo}}
    - {again: one, expect: {to-ben: delivered}}
    """
    routes = {"to-ben": {"principal": "ben", "pack": "mail", "ref": "shared_item", "sink": "inbox"}}

    assert failing(cases, routes=routes) == []


@pytest.mark.spec("4.3.local")
def test_local_data_needs_a_workspace():
    """An activation without a workspace folder has nowhere for land local, whatever the sink."""
    routes = {
        name: {"principal": "ana", "pack": "mail", "ref": "saved_item", "sink": name} for name in ("workspace", "inbox")
    }
    expect = dict.fromkeys(routes, OTHERWISE["saved_item"])
    cases: list[Any] = [{"sense": {"activation": "a1", "ref": "saved_item", "data": {}}, "expect": expect}]

    assert failing(cases, routes=routes, activations={"a1": {"principal": "ana", "pack": "mail"}}) == []


COVERAGE: list[Any] = [
    pytest.param("missing_verb", {"verbs": {"mail.list": entry()}}, marks=pytest.mark.spec("4.4.1")),
    pytest.param(
        "extra_verb", {"verbs": {**FULL["policy"]["verbs"], "mail.drop": entry()}}, marks=pytest.mark.spec("4.4.2")
    ),
    pytest.param("missing_stimulus", {"stimuli": {"new_item": entry()}}, marks=pytest.mark.spec("4.4.3")),
    pytest.param(
        "extra_stimulus", {"stimuli": {**policy()["stimuli"], "gone": entry()}}, marks=pytest.mark.spec("4.4.4")
    ),
    pytest.param("surface_id_mismatch", {"surface_id": "post"}, marks=pytest.mark.spec("4.4.5")),
    pytest.param(
        "write_stimulus",
        {"stimuli": {**policy()["stimuli"], "new_item": entry(operation="write")}},
        marks=pytest.mark.spec("4.4.write-stimulus"),
    ),
    pytest.param(
        "confirm_on_read",
        {"verbs": {**FULL["policy"]["verbs"], "mail.list": entry(confirm=False)}},
        marks=pytest.mark.spec("4.5.1"),
    ),
    pytest.param(
        "confirm_on_read",
        {"stimuli": {**policy()["stimuli"], "new_item": entry(confirm=True)}},
        marks=pytest.mark.spec("4.5.1"),
    ),
]


@pytest.mark.spec("4.4.reject")
@pytest.mark.parametrize(("kind", "change"), COVERAGE)
def test_any_issue_rejects_the_pack(kind, change):
    """The pack with the issue announces nothing; as a replacement it leaves the last good revision in force."""
    written = {**FULL["policy"], **change}

    assert failing(NOT_SERVED, packs=[{**FULL, "policy": written}], lint={"mail": [kind]}) == []
    refused("lint", policy_=written)
    assert failing(ARRIVES, packs=[FULL], lint={"mail": []}) == []


@pytest.mark.spec("4.4.reject")
def test_all_issues_are_told_at_once():
    """One look at a pack with several faults names them all."""
    written = policy(surface_id="post", verbs={"mail.drop": entry()}, stimuli={"new_item": entry(operation="write")})
    kinds = ["surface_id_mismatch", "missing_verb", "extra_verb", "missing_stimulus", "write_stimulus"]

    assert failing(NOT_SERVED, packs=[pack(FULL["surface"], written)], lint={"mail": kinds}) == []


@pytest.mark.spec("4.5.4")
def test_the_packs_shipped_here_mirror_confirm_on_the_command_line():
    """A wrapped command whose policy wants a confirmation has --confirm or --apply in its cli, for the runtime alone.

    Only wrapped commands have a `cli`; `sense-worker exec` takes both flags for every command.
    """
    gated = []
    for folder in sorted((ROOT / "examples" / "packs").iterdir()):
        manifest, rules = (json.loads((folder / name).read_text()) for name in ("surface.json", "policy.json"))
        for key, rule in rules["verbs"].items():
            flags = [one for one in manifest["verbs"][key].get("cli", []) if isinstance(one, dict)]
            mirrored = [one["flag"] for one in flags if one.get("host") and one["when"] in ("confirm", "apply")]
            assert set(mirrored) <= {"--confirm", "--apply"}
            if "cli" in manifest["verbs"][key]:
                assert bool(mirrored) == bool(rule.get("confirm"))
            gated += mirrored

    assert gated != []
