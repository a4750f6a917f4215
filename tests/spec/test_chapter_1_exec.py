"""§1 Terminology, the half of commands: what an envelope is, what runs, and what availability says."""

from __future__ import annotations

from typing import Any

import pytest

from runtime_core.adapters.composite import CompositeAdapter
from runtime_core.envelope import parse_envelope
from runtime_core.runtime import Ran
from tests.runtime_core.adapters.acting import Acting, files
from tests.spec.documents import entry
from tests.spec.exec_documents import AXES, audited, case, composite, failing, grants, pack

OPERATOR = {"ana": {"tenant": "acme", "projects": ["apollo"], "operator": True}}


@pytest.mark.spec("1.1.principal")
@pytest.mark.spec("9.1.2")
@pytest.mark.parametrize("field", ["principal", "principal_id", "tenant", "tenant_id", "project_id", "session", "as"])
def test_an_envelope_names_no_principal(field):
    """Beside the three fields a principal or scope is refused; inside args it is an arg, and who acts is unmoved."""
    refused = case("mail.list", "refused: unknown_field", envelope={field: "cyd"})
    lines = audited([refused, case("mail.list", args={field: "cyd"})])

    assert [(one.principal, one.tenant, one.project) for one in lines] == [("ana", "acme", "apollo")]


@pytest.mark.spec("1.1.invoker")
@pytest.mark.parametrize("field", ["operation", "privacy", "land", "confirm", "apply", "policy", "binding", "hub"])
def test_an_envelope_redefines_neither_policy_nor_binding(field):
    """A field that speaks of the pack's policy or Binding refuses the envelope; as an arg it changes neither."""
    refused = [
        case("mail.send", "refused: unknown_field", envelope={field: value})
        for value in (True, "read", {"mode": "mock"})
    ]
    asked = [] if field in ("confirm", "apply") else [case("mail.send", "confirm required", {field: "read"})]

    assert failing([*refused, *asked]) == []


@pytest.mark.spec("1.2.pack-id")
def test_surface_id_is_read_as_pack_id():
    """In its place, not beside it; the result names the pack by pack_id."""
    cases = [
        case("mail.list", envelope={"pack_id": None, "surface_id": "mail"}),
        case("mail.list", "refused: malformed", envelope={"surface_id": "mail"}),
        case("mail.list", "pack not installed: post", envelope={"pack_id": None, "surface_id": "post"}),
    ]

    assert failing(cases) == []
    assert parse_envelope(b'{"surface_id":"mail","verb_key":"mail.list","args":{}}').pack_id == "mail"


@pytest.mark.spec("1.2.plane")
def test_commands_of_a_control_plane_pack_are_for_operators():
    """Each of them, whatever was granted; the same commands of a runtime pack are for whoever has the grants."""
    text = "denied: control plane requires an operator"
    cases = [case("mail.list", text), case("mail.save", text), case("mail.login", text)]
    control = {"packs": [pack(plane="control")]}

    assert failing(cases, **control) == []
    assert failing([case("mail.list"), case("mail.save")], **control, principals=OPERATOR) == []
    assert failing([case("mail.list"), case("mail.save")]) == []


@pytest.mark.spec("1.3.command")
@pytest.mark.parametrize(
    ("verb_key", "error"),
    [
        ("run", "unknown command: run"),
        ("list", "unknown command: list"),
        ("mail", "unknown command: mail"),
        ("mail.LIST", "unknown command: mail.LIST"),
        ("mail.list.more", "unknown command: mail.list.more"),
        ("new_item", "unknown command: new_item"),
        ("mail.list ", "refused: malformed"),
        ("mail.*", "refused: malformed"),
        ("sh -c id", "refused: malformed"),
        ("", "refused: malformed"),
        (None, "refused: malformed"),
        (["mail.list"], "refused: malformed"),
    ],
)
def test_only_a_declared_verb_key_runs(verb_key, error):
    """Matched whole: no other case, no beginning, no pattern, no trigger, no line for a shell."""
    assert failing([case(verb_key, error)]) == []


@pytest.mark.spec("1.5.adapters")
def test_each_kind_of_pack_runs_in_its_own_way():
    """A wrap command is entered itself, a composite as its steps in order; a sense_only pack has nothing to enter."""
    both = composite(
        "flow",
        {"flow.both": entry(operation="write", confirm=True)},
        **{"flow.both": [_step("mail.list"), _step("mail.send")]},
    )
    activations = {name: {"principal": "ana", "pack": pack_id} for name, pack_id in (("a1", "mail"), ("f1", "flow"))}
    given = [*grants(*AXES), *grants(*AXES, pack="flow")]
    flow = {"activation": "f1", "pack_id": "flow"}
    cases = [
        case("mail.list", steps=["mail.list"]),
        case("flow.both", "confirm required", **flow, steps=[]),
        case("flow.both", None, {"confirm": True}, **flow, steps=["mail.list", "mail.send"]),
    ]
    assert failing(cases, packs=[pack(), both], activations=activations, grants=given) == []

    bare = pack(adapter="sense_only", verbs={}, binding={"mode": "public", "hub": "none"})
    bare["policy"] = {**bare["policy"], "verbs": {}}
    assert failing([case("mail.list", "unknown command: mail.list")], packs=[bare]) == []


def _step(verb_key: str) -> dict[str, Any]:
    return {"pack_id": "mail", "verb_key": verb_key}


@pytest.mark.spec("1.5.envelope")
@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ('{"pack_id":"mail","verb_key":"mail.list"}', "malformed"),
        ('{"pack_id":"mail","args":{}}', "malformed"),
        ('{"verb_key":"mail.list","args":{}}', "malformed"),
        ('{"pack_id":"mail","verb_key":"mail.list","args":[]}', "malformed"),
        ('{"pack_id":"mail","verb_key":"mail.list","args":null}', "malformed"),
        ('{"pack_id":1,"verb_key":"mail.list","args":{}}', "malformed"),
        ('{"pack_id":"mail","verb_key":"mail.list","args":{},"args":{}}', "malformed"),
        ('{"pack_id":"mail","verb_key":"mail.list","args":{"n":NaN}}', "malformed"),
        ('{"pack_id":"mail","verb_key":"mail.list","args":{},"v":1}', "unknown_field"),
        ('[{"pack_id":"mail","verb_key":"mail.list","args":{}}]', "malformed"),
        ("mail.list", "malformed"),
        ("", "malformed"),
    ],
)
def test_an_envelope_is_exactly_three_fields(raw, word):
    """One missing, one more, one of another type or one twice refuses it before anything is looked up."""
    refused = {"ok": False, "error": f"refused: {word}", "minted": False, "ran": False}
    cases = [{"exec": {"activation": "a1", "raw": raw}, "expect": refused}]

    assert failing(cases) == []
    assert failing([case("mail.list")]) == []


class Said:
    """An adapter that answers what it was told to."""

    def __init__(self, ran: Ran) -> None:
        self._ran = ran

    def run(self, call: object, runtime: object) -> Ran:
        return self._ran


@pytest.mark.spec("1.5.result")
@pytest.mark.spec("9.7.envelope")
@pytest.mark.parametrize(
    ("verb", "ran", "rest"),
    [
        ("mail.read", Ran({"n": 1}), {"ok": True, "result": {"n": 1}}),
        ("mail.read", Ran(), {"ok": True}),
        ("mail.read", Ran(None, "exited 3"), {"ok": False, "error": "exited 3"}),
        ("mail.read", Ran({"n": 1}, "exited 3"), {"ok": False, "result": {"n": 1}, "error": "exited 3"}),
        ("mail.write", Ran({}), {"ok": False, "error": "denied: missing verb.exec.write for mail.write"}),
        ("mail.none", Ran({}), {"ok": False, "error": "unknown command: mail.none"}),
    ],
)
def test_a_result_envelope_is_these_fields_and_no_other(verb, ran, rest):
    """ok, pack_id and verb_key always; result and error where there is one; a denial has an error and no result."""
    world = Acting({"wrap": Said(ran), "composite": CompositeAdapter()})
    entries = {"mail.read": "read", "mail.write": "write"}
    world.install(files("mail", "wrap", {key: {"cli": []} for key in entries}, entries))
    world.activate("mail")
    world.grant("mail", "verb.exec.read")

    assert world.run("mail", verb).plain() == {"pack_id": "mail", "verb_key": verb, **rest}


@pytest.mark.spec("1.6.availability")
@pytest.mark.spec("1.6.connect")
def test_availability_is_what_running_would_find():
    """Installed, activated, connected and each command; connecting mints for an activated pack, and is seen at once."""
    all_keys = {"mail.list", "mail.check", "mail.send", "mail.save", "mail.share", "mail.where", "mail.count"}
    unconnected = {**dict.fromkeys(all_keys, False), "mail.login": True}
    asked = {"available": {"principal": "ana", "pack": "mail"}}
    found = {"installed": True, "activated": True, "connected": False, "executable": unconnected}
    cases: list[Any] = [
        {**asked, "expect": found},
        case("mail.list", "not connected: mail"),
        case("mail.login", minted=False),
        {**asked, "expect": {"connected": True, "executable": {**unconnected, **dict.fromkeys(all_keys, True)}}},
        case("mail.list", minted=True),
        {"step": {"revoke": grants("verb.exec.read")[0]}},
        {
            **asked,
            "expect": {"connected": True, "executable": _only("mail.send", "mail.save", "mail.count", "mail.login")},
        },
        {"step": {"deactivate": "a1"}},
        {**asked, "expect": {"installed": True, "activated": False, "executable": _only()}},
        case("mail.login", "pack not activated: mail"),
        {"step": {"remove": "mail"}},
        {**asked, "expect": {"installed": False, "activated": False, "connected": False}},
    ]

    assert failing(cases, connected=[]) == []


def _only(*keys: str) -> dict[str, bool]:
    every = ("list", "check", "send", "save", "share", "where", "count", "login")
    return {f"mail.{name}": f"mail.{name}" in keys for name in every}
