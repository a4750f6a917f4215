"""§1 Terminology: what each thing is and is not, as scenarios that an auditor can read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime_core.archive import read_source
from runtime_core.errors import PackParseError
from tests.spec.documents import entry, failing, pack, policy, surface

ARRIVES = "[{sense: {activation: a1, ref: new_item, data: {}}, expect: {to-ana: delivered}}]"
NOT_SERVED = "[{sense: {activation: a1, ref: new_item, data: {}}, expect: {refused: pack_missing}}]"


@pytest.mark.spec("1.1.principal")
@pytest.mark.parametrize("field", ["principal", "principal_id", "tenant", "tenant_id", "project_id", "session", "as"])
def test_an_event_names_no_principal(field):
    """Beside the body's own fields a principal or scope is refused; inside `data` it is data and moves nothing."""
    cases: list[Any] = [
        {
            "name": "beside the fields",
            "sense": {"activation": "a1", "ref": "new_item", "data": {}, "message": {field: "cyd"}},
            "expect": {"refused": "unknown_field"},
        },
        {
            "name": "inside data",
            "sense": {"activation": "a1", "ref": "new_item", "data": {field: "cyd"}},
            "expect": {"to-ana": "delivered", "to-cyd": "denied: privacy.land personal"},
        },
    ]
    routes = {f"to-{who}": {"principal": who, "pack": "mail", "ref": "*", "sink": "inbox"} for who in ("ana", "cyd")}

    assert failing(cases, routes=routes) == []


@pytest.mark.spec("1.1.principal")
@pytest.mark.parametrize("field", ["principal", "principals", "users", "roles", "tenant", "grants"])
def test_a_pack_names_no_principal(field):
    """A manifest that says who may act is not installed, and so announces nothing."""
    assert (
        failing(
            NOT_SERVED,
            packs=[pack(surface(**{field: ["ana"]}))],
            rejected={"mail": "lint"},
            lint={"mail": ["embedded_principal"]},
        )
        == []
    )


@pytest.mark.spec("1.1.invoker")
@pytest.mark.parametrize("field", ["operation", "privacy", "land", "confirm", "policy", "binding", "hub", "grants"])
def test_an_event_redefines_neither_policy_nor_binding(field):
    """A field that speaks of the pack's policy or Binding refuses the event, whatever it says."""
    cases: list[Any] = [
        {
            "sense": {"activation": "a1", "ref": "new_item", "data": {}, "message": {field: value}},
            "expect": {"refused": "unknown_field"},
        }
        for value in ("brain", {"land": "brain"}, True)
    ]

    assert failing(cases) == []


@pytest.mark.spec("1.2.pack")
@pytest.mark.parametrize("missing", ["surface.json", "policy.json", "HARNESS.md"])
def test_a_folder_without_one_of_the_three_files_is_no_pack(missing, tmp_path):
    """All three are wanted; the error names the one that is missing."""
    files = {"surface.json": json.dumps(surface()), "policy.json": json.dumps(policy()), "HARNESS.md": "# Mail\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert read_source(tmp_path).harness == b"# Mail\n"
    (tmp_path / missing).unlink()

    with pytest.raises(PackParseError, match=missing):
        read_source(tmp_path)


@pytest.mark.spec("1.2.pack-id")
def test_the_three_names_of_a_pack_are_one():
    """The manifest's id is the policy's surface_id, exactly; with another the pack is not installed."""
    for other in ("Mail", "mail2", ""):
        mismatched = [pack(policy=policy(surface_id=other))]
        assert failing(NOT_SERVED, packs=mismatched, lint={"mail": ["surface_id_mismatch"]}) == []
    assert failing(ARRIVES) == []


@pytest.mark.spec("1.2.plane")
def test_a_plane_is_of_the_whole_pack_and_control_is_for_operators():
    """Runtime unless it says control; then only an operator gets its events, and no part of it has its own plane."""
    cases = """
    - {sense: {activation: a1, ref: new_item, data: {}}, expect: {to-ana: "denied: control plane requires an operator"}}
    """
    operators = {"ana": {"tenant": "acme", "operator": True}}
    world: dict[str, Any] = {"packs": [pack(surface(plane="control"))]}
    people: dict[str, Any] = {"principals": operators, "grants": [_sense("ana")]}

    assert failing(cases, **world) == []
    assert failing(ARRIVES, **world, **people) == []
    assert failing(ARRIVES, packs=[pack(surface(plane="runtime"))]) == []
    own = [{"ref": "new_item", "plane": "control"}]
    assert failing(NOT_SERVED, packs=[pack(surface(stimulusTriggers=own))], rejected={"mail": "surface"}) == []


@pytest.mark.spec("1.3.command")
@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({"verbs": {"run": {}, "Run": {}}}, ["duplicate_key"]),
        ({"verbs": {"run": {}}, "allowedSubcommands": ["*"]}, ["passthrough"]),
        ({"verbs": {"run": {}}, "adapter": {"kind": "wrap", "maxArgv": 9}}, ["passthrough"]),
    ],
)
def test_commands_are_a_closed_map(change, kinds):
    """Two names equal but for case, or a bootstrap that passes whatever on, refuse the pack."""
    entries = policy(verbs={key: entry("local") for key in change["verbs"]})
    packs = [pack(surface(**{"adapter": "wrap", **change}), entries)]

    assert failing(NOT_SERVED, packs=packs, lint={"mail": kinds}) == []


@pytest.mark.spec("1.3.sense")
@pytest.mark.parametrize("field", ["poll", "interval_s", "schedule", "url", "watch", "uptime", "verb_key"])
def test_a_trigger_declares_nothing_to_pull(field):
    """A trigger has a ref, a summary and a schema; whatever would make the runtime look by itself is refused."""
    triggers = [{"ref": "new_item", field: "5 s"}]

    assert failing(NOT_SERVED, packs=[pack(surface(stimulusTriggers=triggers))], rejected={"mail": "surface"}) == []


@pytest.mark.spec("1.3.sense")
def test_only_a_pack_on_a_session_announces():
    """An event comes from an activation; a pack's id, a session or a stranger is no sender."""
    cases: list[Any] = [
        {"sense": {"activation": who, "ref": "new_item", "data": {}}, "expect": {"refused": "unknown_credential"}}
        for who in ("mail", "ana", "nobody", "", "A1", "a1 ")
    ]

    assert failing(cases) == []
    assert failing(ARRIVES) == []


@pytest.mark.spec("1.3.trigger")
def test_only_a_declared_ref_is_delivered():
    """At intake, matched whole; and again at the attempt, when the revision in force no longer declares it."""
    fewer = json.dumps({"surface": surface(stimulusTriggers=[]), "policy": policy(stimuli={})})
    cases = f"""
    - {{sense: {{activation: a1, ref: NEW_ITEM, data: {{}}}}, expect: {{refused: undeclared_ref}}}}
    - {{sense: {{activation: a1, ref: new_item.more, data: {{}}}}, expect: {{refused: undeclared_ref}}}}
    - {{sense: {{activation: a1, ref: "new_item ", data: {{}}}}, expect: {{refused: malformed}}}}
    - {{sense: {{activation: a1, ref: "*", data: {{}}}}, expect: {{refused: malformed}}}}
    - name: declared when it came
      sense: {{activation: a1, ref: new_item, data: {{}}, hold: true}}
      expect: {{to-ana: pending}}
    - step: {{replace: {fewer}}}
    - {{again: declared when it came, expect: {{to-ana: "trigger not declared: new_item"}}}}
    - {{sense: {{activation: a1, ref: new_item, data: {{}}}}, expect: {{refused: undeclared_ref}}}}
    """

    assert failing(cases) == []


@pytest.mark.spec("1.4.family")
def test_a_family_is_one_name_of_the_pack():
    """It is written like a pack id; a list or a pattern is refused."""
    assert failing(ARRIVES, packs=[pack(surface(family="post"))]) == []
    for wrong in (["post"], "post*", None):
        assert failing(NOT_SERVED, packs=[pack(surface(family=wrong))], rejected={"mail": "surface"}) == []


@pytest.mark.spec("1.5.adapters")
@pytest.mark.parametrize(
    "change",
    [
        {"adapter": "sense_only", "verbs": {"mail.list": {}}},
        {"adapter": "wrap", "verbs": {"mail.list": {"steps": [{"verb_key": "x"}]}}},
        {"adapter": "composite", "verbs": {"mail.list": {"cli": ["list"]}}},
        {"adapter": "openapi", "verbs": {"mail.list": {"operationId": "list"}}},
        {"adapter": "plugin", "verbs": {}},
    ],
)
def test_an_adapter_is_one_of_the_four_with_its_own_fields(change):
    """A sense_only pack has no commands; steps, cli and operationId each belong to one kind; a fifth kind is none."""
    entries = policy(verbs={key: entry() for key in change["verbs"]})

    assert failing(NOT_SERVED, packs=[pack(surface(**change), entries)], rejected={"mail": "surface"}) == []


@pytest.mark.spec("1.6.install")
def test_what_is_not_installed_announces_nothing_until_it_is():
    """A removed pack is refused at intake and at the attempt; an install puts it in force again."""
    cases = """
    - {name: before, sense: {activation: a1, ref: new_item, data: {}, hold: true}, expect: {to-ana: pending}}
    - step: {remove: mail}
    - {again: before, expect: {to-ana: "pack not installed: mail"}}
    - {sense: {activation: a1, ref: new_item, data: {}}, expect: {refused: pack_missing}}
    - {install: {principal: ana, pack: mail}, expect: {ok: true}}
    - {again: before, expect: {to-ana: delivered}}
    - {sense: {activation: a1, ref: new_item, data: {}}, expect: {to-ana: delivered}}
    """
    grants = [_sense("ana"), {"principal": "ana", "capability": "pack.install", "pack": "mail"}]

    assert failing(cases, grants=grants) == []


@pytest.mark.spec("1.6.activate")
def test_an_activation_is_of_one_session_and_ends_with_it():
    """Deactivated, or its session revoked: what was accepted is not delivered and nothing new is accepted."""
    cases = """
    - {name: held, sense: {activation: a1, ref: new_item, data: {}, hold: true}, expect: {to-ana: pending}}
    - step: {deactivate: a1}
    - {again: held, expect: {to-ana: "denied: activation revoked"}}
    - {sense: {activation: a1, ref: new_item, data: {}}, expect: {refused: activation_revoked}}
    - step: {activate: {name: a2, session: s2, pack: mail}}
    - {name: second, sense: {activation: a2, ref: new_item, data: {}, hold: true}, expect: {to-ana: pending}}
    - step: {revoke_session: s2}
    - {again: second, expect: {to-ana: "denied: session revoked"}}
    - {sense: {activation: a2, ref: new_item, data: {}}, expect: {refused: session_revoked}}
    """

    assert failing(cases, sessions={"s2": {"principal": "ana", "tenant": "acme"}}) == []


def _sense(principal: str) -> dict[str, Any]:
    return {"principal": principal, "capability": "sense.enable", "pack": "mail"}
