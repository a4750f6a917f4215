"""§9 Authorization, the half of commands: who acts, in which scope, what is allowed, what is recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from runtime_core.execution import EXEC_STEPS
from runtime_core.grants import Capability
from tests.spec.exec_documents import AXES, audited, case, failing, grants, pack

CHAPTER = Path(__file__).with_name("09-authorization.md")
NO_READ = "denied: missing verb.exec.read for mail.list"
NO_WRITE = "denied: missing verb.exec.write for mail.save"
NO_CONNECT = "denied: missing pack.connect"
OPERATOR = {"ana": {"tenant": "acme", "projects": ["apollo"], "operator": True}}

EVALUATION = [
    ("Resolve pack, activation, and Policy entry", ["resolve_pack", "resolve_activation", "resolve_command"]),
    ("Authenticate Principal; resolve Tenant (+ Project if land = brain)", ["authenticate"]),
    ("Assert capability for pack_id (+ verb_key)", ["require_capability"]),
    ("Enforce confirm", ["require_confirm", "validate_args", "preflight", "require_audit"]),
    ("Mint Binding, fail closed", ["mint_binding"]),
    ("Execute Adapter", ["begin", "run_adapter"]),
    ("Audit", ["audit"]),
]
"""Each line of §9.5 with the steps that are it. What we add stands after confirm, or just before the adapter."""


@pytest.mark.spec("9.5.order")
def test_the_steps_are_those_of_the_chapter_in_its_order():
    """Read from the chapter's own text: seven lines, each with its steps, none reordered, none more and none fewer."""
    block = CHAPTER.read_text().partition("## 9.5")[2].partition("```text\n")[2].partition("```")[0]
    written = [re.fullmatch(r"(\d)\. (.+?)\s*\((?:§6\.3 )?steps? [\d to]+\)", line) for line in block.splitlines()]

    assert [(one[1], one[2]) for one in written if one] == [
        (str(number), title) for number, (title, _) in enumerate(EVALUATION, 1)
    ]
    assert [step.__name__ for step in EXEC_STEPS] == [name for _, names in EVALUATION for name in names]


@pytest.mark.spec("9.1.1")
@pytest.mark.spec("9.6.1")
@pytest.mark.spec("9.6.2")
@pytest.mark.spec("9.6.4")
def test_each_command_is_attributed_to_one_principal_with_the_whole_tuple():
    """A read has one line, a write and a connect a begin and an end; Binding identity is no Principal."""
    lines = audited([case("mail.login", minted=False), case("mail.list"), case("mail.save")], connected=[])

    assert {(one.tenant, one.project, one.principal, one.publisher, one.pack_id) for one in lines} == {
        ("acme", "apollo", "ana", None, "mail")
    }
    assert [(one.action, one.key, one.operation, one.binding, one.ok, one.reason) for one in lines] == [
        ("exec.begin", "mail.login", "write", None, True, None),
        ("exec.end", "mail.login", "write", "recorded@scenario", True, None),
        ("exec", "mail.list", "read", "recorded@scenario", True, None),
        ("exec.begin", "mail.save", "write", "recorded@scenario", True, None),
        ("exec.end", "mail.save", "write", "recorded@scenario", True, None),
    ]


@pytest.mark.spec("9.6.3")
@pytest.mark.spec("9.7.envelope")
@pytest.mark.parametrize(
    ("step", "verb_key", "reason"),
    [
        ({"remove": "mail"}, "mail.list", "pack not installed: mail"),
        ({"deactivate": "a1"}, "mail.list", "pack not activated: mail"),
        ({"revoke_session": "ana"}, "mail.list", "denied: session revoked"),
        ({"disable": "ana"}, "mail.list", "denied: principal disabled"),
        ({"leave": {"principal": "ana", "project": "apollo"}}, "mail.share", "denied: not a member of the project"),
        ({"revoke": grants("verb.exec.read")[0]}, "mail.list", NO_READ),
        ({"revoke": grants("verb.exec.write")[0]}, "mail.save", NO_WRITE),
        ({"revoke": grants("pack.connect")[0]}, "mail.login", NO_CONNECT),
        ({"disconnect": "ana/mail"}, "mail.save", "not connected: mail"),
    ],
)
def test_each_denial_of_a_command_is_an_envelope_and_a_line(step, verb_key, reason):
    """Ok false with the text, and one line that is not ok with the very text and the principal; no begin."""
    lines = audited([{"step": step}, case(verb_key, reason)])

    assert [(one.action, one.ok, one.reason, one.principal, one.key) for one in lines] == [
        ("exec", False, reason, "ana", verb_key)
    ]


@pytest.mark.spec("9.1.2")
@pytest.mark.spec("9.2.1")
def test_a_session_acts_for_its_own_principal_alone():
    """Activation, grants and connection are found by its rows: ben's are of no use to ana, nor hers to him."""
    activations = {"a1": {"principal": "ana", "pack": "mail"}, "b1": {"principal": "ben", "pack": "mail"}}
    cases = [
        case("mail.list", activation="a1"),
        case("mail.list", NO_READ, {"principal": "ana"}, activation="b1"),
        case("mail.list", "pack not activated: mail", activation=None, session="cyd"),
    ]

    assert failing(cases, activations=activations) == []


@pytest.mark.spec("9.2.4")
def test_an_arg_refines_within_the_scope():
    """`entity` and its like reach the command as its args; tenant, project, principal and Binding stay as they were."""
    named = [{}, {"entity": "ana@service"}, {"entity": "other/zoe"}, {"account": "zoe@other", "entity": "*"}]
    lines = audited([case("mail.list", None, args, minted=True) for args in named])

    assert {(one.tenant, one.project, one.principal, one.binding) for one in lines} == {
        ("acme", "apollo", "ana", "recorded@scenario")
    }
    assert failing([case("mail.list", NO_READ, args) for args in named], grants=[]) == []


@pytest.mark.spec("9.4.axes")
@pytest.mark.spec("9.4.2")
@pytest.mark.spec("9.4.4")
@pytest.mark.spec("9.7.read")
@pytest.mark.spec("9.7.write")
@pytest.mark.spec("9.7.connect")
@pytest.mark.parametrize("operator", [False, True])
@pytest.mark.parametrize("capability", [None, *Capability])
def test_each_axis_opens_its_own_commands_alone(capability, operator):
    """With one axis granted for everything, or none, the others stay shut with their text, to operators too."""
    held = [] if capability is None else grants(capability.value, pack="*")
    no_login = NO_CONNECT if capability != "pack.connect" else "denied: missing verb.exec.write for mail.login"
    cases = [
        case("mail.list", None if capability == "verb.exec.read" else NO_READ),
        case("mail.save", None if capability == "verb.exec.write" else NO_WRITE),
        case("mail.login", no_login),
    ]

    assert failing(cases, grants=held, **({"principals": OPERATOR} if operator else {})) == []


@pytest.mark.spec("9.4.1")
@pytest.mark.parametrize(
    ("fields", "listed", "shared"),
    [
        ({}, True, True),
        ({"keys": ["mail.list"]}, True, False),
        ({"keys": ["mail.share", "mail.list"]}, True, True),
        ({"pack": "*"}, True, True),
        ({"keys": []}, False, False),
        ({"keys": ["*"]}, False, False),
        ({"keys": ["mail.*"]}, False, False),
        ({"keys": ["MAIL.LIST"]}, False, False),
        ({"pack": "post"}, False, False),
        ({"project": "apollo"}, False, True),
        ({"project": "zeus"}, False, False),
        ({"principal": "ben"}, False, False),
        ({"expires": "+1s"}, True, True),
        ({"expires": "+0s"}, False, False),
    ],
)
def test_a_grant_of_commands_is_as_wide_as_it_says(fields, listed, shared):
    """By pack, by whole verb_key, by project for land brain alone, until its end; else the chapter's text."""
    cases = [
        case("mail.list", None if listed else NO_READ),
        case("mail.share", None if shared else "denied: missing verb.exec.read for mail.share"),
    ]
    post = pack(id="post", stimulusTriggers=[])
    post["policy"] = {**post["policy"], "surface_id": "post", "stimuli": {}}

    assert failing(cases, grants=grants("verb.exec.read", **fields), packs=[pack(), post]) == []


@pytest.mark.spec("9.4.4")
def test_a_grant_that_is_gone_is_a_denial_at_the_next_command():
    """Revoked or expired: denied from the very next one; granted again: it runs."""
    (grant,) = grants("verb.exec.write")
    cases: list[Any] = [
        case("mail.save"),
        {"step": {"revoke": grant}},
        case("mail.save", NO_WRITE),
        {"step": {"grant": {**grant, "expires": "+1h"}}},
        case("mail.save"),
        {"step": {"clock": "+3600s"}},
        case("mail.save", NO_WRITE),
        {"step": {"grant": grant}},
        case("mail.save"),
    ]

    assert failing(cases) == []


@pytest.mark.spec("9.7.confirm")
def test_the_gate_comes_after_the_grant_and_before_the_mint():
    """Without the grant its text, with it `confirm required`, confirmed what the mint says."""
    cases: list[Any] = [
        {"step": {"revoke": grants("verb.exec.write")[0]}},
        case("mail.send", "denied: missing verb.exec.write for mail.send", {"confirm": True}),
        {"step": {"grant": grants("verb.exec.write")[0]}},
        case("mail.send", "confirm required"),
        case("mail.send", "not connected: mail", {"confirm": True}),
        {"step": {"connect": "ana/mail"}},
        case("mail.send", None, {"confirm": True}, minted=True),
    ]

    assert failing(cases, connected=[]) == []


@pytest.mark.spec("9.8.mothership")
@pytest.mark.parametrize("hub", ["keyring", "local-credential"])
def test_a_mothership_command_needs_an_operator_or_an_elevation(hub):
    """Besides its own grants, connect and exec alike; the elevation is a grant, for a pack or for keys of it."""
    text = "denied: mothership binding requires an operator"
    world: dict[str, Any] = {"packs": [pack(binding={"mode": "mothership", "hub": hub})]}
    refused = [case("mail.list", text), case("mail.save", text), case("mail.login", text)]
    allowed = [case("mail.list"), case("mail.save"), case("mail.login", minted=False)]
    elevated = grants(*AXES, "mothership.elevate")

    assert failing(refused, **world) == []
    assert failing(allowed, **world, principals=OPERATOR) == []
    assert failing(allowed, **world, grants=elevated) == []
    other = [*grants(*AXES), *grants("mothership.elevate", keys=["mail.save"])]
    assert failing([case("mail.list", text), case("mail.save")], **world, grants=other) == []
    assert failing([case("mail.list", NO_READ)], **world, grants=grants("mothership.elevate")) == []
