"""§4 Policy, the half of commands: what counts as a write, where each land keeps a command, and the gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spec.documents import entry
from tests.spec.exec_documents import AXES, audited, case, composite, failing, grants, pack

ROOT = Path(__file__).parents[2]
CASES = json.loads((ROOT / "tests" / "cases" / "C19-confirm-args.json").read_text())
MISSING_SEND = "denied: missing verb.exec.write for mail.send"
NO_PROJECT = "denied: privacy.land brain requires project_id"
NOT_A_MEMBER = "denied: not a member of the project"


@pytest.mark.spec("4.2.3")
def test_a_command_that_only_validates_is_a_read():
    """Declared read, it needs the read grant alone, no confirm, and is recorded as a read, whatever it validates."""
    draft = {"to": "x", "text": "y", "confirm": False}
    lines = audited([case("mail.check", None, draft)], grants=grants("verb.exec.read"))

    assert [(one.action, one.operation, one.ok) for one in lines] == [("exec", "read", True)]


@pytest.mark.spec("4.2.3")
def test_what_the_runtime_validates_of_a_write_begins_none():
    """Args are judged, and availability told, before a mint, an adapter and a `begin` line."""
    keys = {"mail.count": True, "mail.send": True}
    cases = [
        {"available": {"principal": "ana", "pack": "mail"}, "expect": {"executable": keys | _others()}},
        case("mail.count", "invalid args: /n…", {"n": "x"}),
    ]
    lines = audited(cases)

    assert [(one.action, one.ok) for one in lines] == [("exec", False)]


def _others() -> dict[str, bool]:
    return dict.fromkeys(("mail.list", "mail.check", "mail.save", "mail.share", "mail.where", "mail.login"), True)


@pytest.mark.spec("4.2.4")
@pytest.mark.parametrize("flag", ["dry_run", "dry-run", "dryRun", "check", "validate", "noop", "preview"])
def test_a_dry_run_of_a_write_stays_a_write(flag):
    """No arg makes it a read: it wants the write grant and the confirm, and is recorded as a write."""
    asked = {flag: True}
    assert failing([case("mail.send", MISSING_SEND, asked)], grants=grants("verb.exec.read")) == []
    lines = audited([case("mail.send", "confirm required", asked), case("mail.send", None, {**asked, "apply": True})])

    assert [(one.action, one.operation, one.ok) for one in lines] == [
        ("exec", "write", False),
        ("exec.begin", "write", True),
        ("exec.end", "write", True),
    ]


@pytest.mark.spec("4.2.4")
def test_no_pack_shipped_here_offers_a_dry_run():
    """What persists nothing could not be guaranteed of a tool or a service: the flag is not offered."""
    manifests = sorted((ROOT / "examples" / "packs").glob("*/surface.json"))
    words = ("dry", "noop", "no-op", "simulate", "preview")

    assert len(manifests) >= 3
    for manifest in manifests:
        for key, verb in json.loads(manifest.read_text())["verbs"].items():
            offered = json.dumps([verb.get("cli", []), verb.get("args", {})]).lower()
            assert [(key, word) for word in words if word in offered] == []


@pytest.mark.spec("4.2.5")
@pytest.mark.spec("9.4.3")
@pytest.mark.spec("9.7.connect")
@pytest.mark.parametrize(
    ("held", "error"),
    [
        ((), "denied: missing pack.connect"),
        (("verb.exec.write",), "denied: missing pack.connect"),
        (("verb.exec.write", "verb.exec.read"), "denied: missing pack.connect"),
        (("pack.connect",), "denied: missing verb.exec.write for mail.login"),
        (("pack.connect", "verb.exec.read"), "denied: missing verb.exec.write for mail.login"),
        (("pack.connect", "verb.exec.write"), None),
    ],
)
def test_connecting_needs_both_grants(held, error):
    """pack.connect is looked at first and whatever else is granted; then the write's own grant."""
    assert failing([case("mail.login", error, minted=False)], grants=grants(*held), connected=[]) == []


@pytest.mark.spec("4.3.2")
@pytest.mark.spec("9.2.1")
def test_no_arg_selects_the_tenant():
    """One pack in two tenants: a command is of its session's tenant, with the credential there, whatever args say."""
    words = ("tenant", "tenant_id", "--tenant", "org", "account", "project_id", "workspace")
    world: dict[str, Any] = {
        "principals": {"ana": {"tenant": "acme"}, "zoe": {"tenant": "other"}},
        "activations": {"a1": {"principal": "ana", "pack": "mail"}, "z1": {"principal": "zoe", "pack": "mail"}},
        "grants": [*grants(*AXES), *grants(*AXES, principal="zoe")],
    }
    mine = case("mail.list", None, dict.fromkeys(words, "other"))
    hers = case("mail.list", None, dict.fromkeys(words, "acme"), activation="z1")
    lines = audited([mine, hers], **world, connected=["ana/mail", "zoe/mail"])
    unconnected = case("mail.list", "not connected: mail", dict.fromkeys(words, "other"))

    assert [(one.tenant, one.project, one.principal) for one in lines] == [
        ("acme", None, "ana"),
        ("other", None, "zoe"),
    ]
    assert failing([unconnected, hers], **world, connected=["zoe/mail"]) == []


@pytest.mark.spec("4.3.personal")
def test_a_personal_command_uses_its_principals_own_credential():
    """Another's connection is none of ana's, and no arg names another's."""
    for args in ({}, {"principal": "ben", "entity": "ben", "user": "ben"}):
        assert failing([case("mail.list", "not connected: mail", args)], connected=["ben/mail"]) == []
        assert failing([case("mail.list", None, args, minted=True)], connected=["ana/mail"]) == []


@pytest.mark.spec("4.3.brain")
@pytest.mark.spec("9.2.2")
@pytest.mark.spec("9.2.3")
@pytest.mark.spec("9.7.brain")
def test_a_brain_command_needs_its_project_and_a_membership_now():
    """The activation's project and no arg's; a foreign project and one that is nowhere read like one just left."""
    projects = ("apollo", "zeus", "foreign", "nowhere")
    activations: dict[str, Any] = {one: {"principal": "ana", "pack": "mail", "project": one} for one in projects}
    activations["none"] = {"principal": "ana", "pack": "mail"}
    named = {"project_id": "apollo", "project": "apollo"}
    cases: list[Any] = [
        case("mail.share", NO_PROJECT, named, activation="none"),
        case("mail.list", None, named, activation="none"),
        *(case("mail.share", NOT_A_MEMBER, named, activation=one) for one in projects[1:]),
        case("mail.share", activation="apollo"),
        {"step": {"leave": {"principal": "ana", "project": "apollo"}}},
        case("mail.share", NOT_A_MEMBER, named, activation="apollo"),
        case("mail.list", activation="apollo"),
        {"step": {"join": {"principal": "ana", "project": "apollo"}}},
        case("mail.share", activation="apollo"),
    ]
    people = {
        "ana": {"tenant": "acme", "projects": ["apollo"]},
        "cyd": {"tenant": "acme", "projects": ["zeus"]},
        "zoe": {"tenant": "other", "projects": ["foreign"]},
    }

    assert failing(cases, activations=activations, principals=people) == []


@pytest.mark.spec("4.3.local")
def test_a_local_command_needs_a_workspace():
    """Of its activation, and no arg's; personal and brain ask for none."""
    bare = {"a1": {"principal": "ana", "pack": "mail", "project": "apollo"}}
    named = {"workspace": "/srv", "cwd": "/srv"}
    cases = [
        case("mail.where", "denied: privacy.land local requires a workspace", named),
        case("mail.list"),
        case("mail.share"),
    ]

    assert failing(cases, activations=bare) == []
    assert failing([case("mail.where")]) == []


@pytest.mark.case("C19")
@pytest.mark.spec("4.5.2")
@pytest.mark.spec("4.5.3")
@pytest.mark.spec("9.7.confirm")
@pytest.mark.parametrize("one", CASES, ids=lambda one: json.dumps(one["envelope"]))
@pytest.mark.parametrize("connected", [True, False])
def test_only_the_boolean_true_confirms(one, connected):
    """Under args.confirm or args.apply; all else is refused before a mint, also where the mint would fail."""
    envelope = dict(one["envelope"])
    if one["pass"]:
        error = None if connected else "not connected: mail"
    else:
        error = "confirm required" if set(envelope) == {"pack_id", "verb_key", "args"} else "refused: unknown_field"
    expect = {"ok": error is None, "error": error, "minted": error is None, "ran": error is None}
    cases = [{"exec": {"activation": "a1", "raw": json.dumps(envelope)}, "expect": expect}]

    assert failing(cases, connected=["ana/mail"] if connected else []) == []


@pytest.mark.spec("4.5.2")
@pytest.mark.parametrize("word", ["confirm", "apply"])
def test_the_text_true_confirms_on_the_command_line_alone(word):
    """Exactly that text; on the JSON face it is a text like another."""
    cases = [
        case("mail.send", None, {word: "true"}, face="cli"),
        case("mail.send", "confirm required", {word: "true"}, face="json"),
        *(
            case("mail.send", "confirm required", {word: text}, face="cli")
            for text in ("True", "yes", "1", "", " true")
        ),
    ]

    assert failing(cases) == []


@pytest.mark.spec("4.5.2")
def test_a_command_without_a_gate_asks_for_nothing():
    """Confirm and apply are the runtime's: taken out before args are judged, ignored where there is no gate."""
    cases = [
        case("mail.save"),
        case("mail.save", None, {"confirm": "no"}),
        case("mail.count", None, {"n": 1, "confirm": True, "apply": "x"}),
        case("mail.list", None, {"confirm": False}),
    ]

    assert failing(cases) == []


@pytest.mark.spec("4.5.5")
def test_no_composite_passes_a_gate_of_its_steps():
    """A gated step wants the caller's confirm however deep it is, and whatever the composites around it say."""
    gated = {"pack_id": "mail", "verb_key": "mail.send"}
    first = {"pack_id": "mail", "verb_key": "mail.list"}
    entries = {"flow.in": entry(operation="write", confirm=True), "flow.out": entry(operation="write", confirm=True)}
    flow = composite("flow", entries, **{"flow.in": [first, gated], "flow.out": [first, {"verb_key": "flow.in"}]})
    world = {
        "packs": [pack(), flow],
        "activations": {"a1": {"principal": "ana", "pack": "mail"}, "f1": {"principal": "ana", "pack": "flow"}},
        "grants": [*grants(*AXES), *grants(*AXES, pack="flow")],
    }
    asked = {"activation": "f1", "pack_id": "flow"}
    cases = [
        *(
            case("flow.out", "confirm required", args, **asked, steps=[])
            for args in ({}, {"confirm": "true"}, {"apply": 1})
        ),
        case("flow.out", None, {"apply": True}, **asked, steps=["mail.list", "mail.list", "mail.send"]),
    ]

    assert failing(cases, **world) == []
