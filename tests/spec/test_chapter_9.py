"""§9 Authorization, the Sense half and installing: who acts, in which scope, what is allowed, what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from runtime_core.grants import Capability
from runtime_core.identity import Activation, Credential, Principal, Session
from runtime_core.memory import MemoryAuthority
from sense_worker.intake.door import Turned, admit
from sense_worker.intake.stream import StreamEntry
from sense_worker.wire import build_entry, stream_of
from tests.spec.documents import audited, failing, pack, policy, surface

MISSING = "denied: missing sense.enable"
ARRIVES = "[{sense: {activation: a1, ref: new_item, data: {}}, expect: {to-ana: delivered}}]"
DENIED = f'[{{sense: {{activation: a1, ref: new_item, data: {{}}}}, expect: {{to-ana: "{MISSING}"}}}}]'
INSTALLS = "[{install: {principal: ana, pack: mail}, expect: {ok: true}}]"
NOT_INSTALLED = '[{install: {principal: ana, pack: mail}, expect: {ok: false, error: "denied: missing pack.install"}}]'
SHARED = {
    f"to-{who}": {"principal": who, "pack": "mail", "ref": "shared_item", "sink": "inbox"} for who in ("ana", "ben")
}


def grant(**fields: Any) -> dict[str, Any]:
    """Return ana's grant of sense.enable for mail, with other fields where given."""
    return {"principal": "ana", "capability": "sense.enable", "pack": "mail", **fields}


@pytest.mark.spec("9.1.1")
@pytest.mark.spec("9.6.2")
@pytest.mark.spec("9.6.4")
def test_each_delivery_is_attributed_to_its_owner_with_the_publisher_beside():
    """One line a delivery: exactly one Principal, the publisher in a field of its own, the whole tuple, no Binding."""
    cases = """
    - {sense: {activation: a1, ref: shared_item, data: {}}, expect: {to-ana: delivered, to-ben: delivered}}
    """
    lines = audited(cases, routes=SHARED)

    assert [(one.principal, one.publisher) for one in lines] == [("ana", "ana"), ("ben", "ana")]
    assert {(one.tenant, one.project, one.binding, one.pack_id, one.key, one.operation) for one in lines} == {
        ("acme", "apollo", None, "mail", "shared_item", "read")
    }
    assert [(one.ok, one.reason) for one in lines] == [(True, None)] * 2


@pytest.mark.spec("9.6.3")
@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("revoke: {principal: ben, capability: sense.enable, pack: mail}", MISSING),
        ("leave: {principal: ben, project: apollo}", "denied: not a member of the project"),
        ("disable: ben", "denied: principal disabled"),
        ("deactivate: a1", "denied: activation revoked"),
        ("remove: mail", "pack not installed: mail"),
    ],
)
def test_each_denial_is_recorded_with_its_reason(step, reason):
    """A line that is not ok, with the very text of the refusal and the principal who was denied."""
    cases = f"""
    - {{name: held, sense: {{activation: a1, ref: shared_item, data: {{}}, hold: true}}, expect: {{to-ben: pending}}}}
    - step: {{{step}}}
    - {{again: held, expect: {{to-ben: "{reason}"}}}}
    """
    lines = audited(cases, routes={"to-ben": SHARED["to-ben"]})

    assert [(one.ok, one.reason, one.principal, one.publisher) for one in lines] == [(False, reason, "ben", "ana")]


def turned(activation: str, secret: bytes, claimed: str) -> str | None:
    """Return the word for an entry that says it is `claimed`'s, signed with `secret` over `activation`'s name."""
    rows = MemoryAuthority()
    for who in ("ana", "ben"):
        rows.put_principal(Principal("acme", who, "human", operator=False, disabled=False))
        rows.put_session(Session(f"s-{who}", "acme", who, 2**61, revoked=False))
        credential = Credential(f"secret of {who}".encode())
        rows.put_activation(Activation(f"a-{who}", "acme", f"s-{who}", "mail", None, None, False, credential))
    fields = build_entry(secret, activation, "m1", "1780315200", b'{"ref":"new_item","data":{}}')
    sent = {key.encode(): value if isinstance(value, bytes) else value.encode() for key, value in fields.items()}
    sent[b"c"] = claimed.encode()
    moment = 1_780_315_200_000_000
    one = admit(
        StreamEntry("acme", stream_of("acme"), f"{moment // 1000}-0", sent, 1), rows.snapshot("acme"), moment, 300
    )
    return one.word if isinstance(one, Turned) else None


@pytest.mark.spec("9.1.2")
def test_who_announces_is_told_by_the_signature():
    """Another activation's secret, or another's id over one's own signature, authenticates nobody."""
    assert turned("a-ana", b"secret of ana", "a-ana") == "pack_missing"  # authenticated: only the pack is missing here
    assert turned("a-ana", b"secret of ben", "a-ana") == "bad_signature"
    assert turned("a-ben", b"secret of ben", "a-ana") == "bad_signature"
    assert turned("a-ana", b"s-ana", "a-ana") == "bad_signature"
    assert turned("a-zoe", b"secret of ben", "a-zoe") == "unknown_credential"


@pytest.mark.spec("9.2.1")
def test_the_tenant_is_the_sessions():
    """The same principal, pack and ref in two tenants: an event reaches the routes of its session's tenant alone."""
    world: dict[str, Any] = {
        "principals": {"ana": {"tenant": "acme"}, "zoe": {"tenant": "other"}},
        "sessions": {"abroad": {"principal": "ana", "tenant": "other"}},
        "grants": [grant(), grant(principal="zoe")],
        "activations": {"a1": {"principal": "ana", "pack": "mail"}, "b1": {"session": "abroad", "pack": "mail"}},
        "routes": {
            "to-ana": {"principal": "ana", "pack": "mail", "ref": "*", "sink": "inbox"},
            "to-zoe": {"principal": "zoe", "pack": "mail", "ref": "*", "sink": "inbox"},
        },
    }
    cases = """
    - {sense: {activation: a1, ref: new_item, data: {tenant: other, tenant_id: other}}, expect: {to-ana: delivered}}
    - sense: {activation: b1, ref: new_item, data: {tenant: acme}}
      expect: {to-zoe: "denied: privacy.land personal"}
    - {sense: {activation: a1, ref: new_item, data: {}, message: {tenant: other}}, expect: {refused: unknown_field}}
    """

    assert failing(cases, **world) == []


@pytest.mark.spec("9.2.2")
@pytest.mark.spec("9.7.brain")
def test_a_brain_trigger_without_a_project_is_denied_with_the_chapters_text():
    """No event and no route can name the project in its place; personal and local ask for none."""
    cases: list[Any] = [
        {
            "sense": {"activation": "a1", "ref": "shared_item", "data": {"project_id": "apollo"}},
            "expect": dict.fromkeys(SHARED, "denied: privacy.land brain requires project_id"),
        }
    ]
    scopeless = {"a1": {"principal": "ana", "pack": "mail"}}

    assert failing(cases, routes=SHARED, activations=scopeless) == []
    assert failing(ARRIVES, activations=scopeless) == []


@pytest.mark.spec("9.2.3")
def test_tenant_membership_is_not_project_membership():
    """The same text for another's project, another tenant's and one that is nowhere: ids cannot be told apart."""
    activations = {
        f"in-{project}": {"principal": "ana", "pack": "mail", "project": project}
        for project in ("apollo", "zeus", "foreign", "nowhere")
    }
    outside = "denied: not a member of the project"
    cases: list[Any] = [
        {
            "name": name,
            "sense": {"activation": name, "ref": "shared_item", "data": {}},
            "expect": {"to-ana": "delivered" if name == "in-apollo" else outside},
        }
        for name in activations
    ]
    world: dict[str, Any] = {
        "principals": {
            "ana": {"tenant": "acme", "projects": ["apollo"]},
            "cyd": {"tenant": "acme", "projects": ["zeus"]},
            "zoe": {"tenant": "other", "projects": ["foreign"]},
        },
        "grants": [grant()],
        "sessions": {"abroad": {"principal": "ana", "tenant": "other"}},
        "routes": {"to-ana": SHARED["to-ana"]},
    }

    assert failing(cases, activations=activations, **world) == []


@pytest.mark.spec("9.3.embed")
@pytest.mark.parametrize(
    "fields",
    [
        {"users": ["ana"]},
        {"x-note": {"allow_users": []}},
        {"x-note": [{"deep": {"roles": None}}]},
        {"api_key": "k"},
        {"x-auth": {"clientSecret": "s"}},
    ],
)
def test_a_pack_embeds_no_allow_list_role_or_credential(fields):
    """In the manifest at any depth; the policy takes no field of the kind at all."""
    refused = "[{sense: {activation: a1, ref: new_item, data: {}}, expect: {refused: pack_missing}}]"
    kinds = {"mail": ["embedded_principal"]}

    assert failing(refused, packs=[pack(surface(**fields))], rejected={"mail": "lint"}, lint=kinds) == []
    assert failing(refused, packs=[pack(policy=policy(**fields))], rejected={"mail": "policy"}) == []


@pytest.mark.spec("9.4.axes")
@pytest.mark.spec("9.4.2")
@pytest.mark.parametrize("capability", list(Capability))
def test_no_capability_stands_for_another(capability):
    """With one axis granted for everything, its own gate opens and the others stay shut; an operator has none by it."""
    grants = [grant(capability=capability.value, pack="*")]
    operators = {"ana": {"tenant": "acme", "operator": True}}
    for people in ({"ana": {"tenant": "acme", "projects": ["apollo"]}}, operators):
        world: dict[str, Any] = {"grants": grants, "principals": people}
        assert failing(ARRIVES if capability == "sense.enable" else DENIED, **world) == []
        assert failing(INSTALLS if capability == "pack.install" else NOT_INSTALLED, **world) == []


@pytest.mark.spec("9.4.1")
@pytest.mark.spec("9.7.sense")
@pytest.mark.parametrize(
    ("fields", "holds"),
    [
        ({}, True),
        ({"keys": ["new_item"]}, True),
        ({"keys": ["shared_item", "new_item"]}, True),
        ({"pack": "*"}, True),
        ({"keys": ["shared_item"]}, False),
        ({"keys": []}, False),
        ({"keys": ["*"]}, False),
        ({"keys": ["new_*"]}, False),
        ({"keys": ["NEW_ITEM"]}, False),
        ({"pack": "post"}, False),
        ({"project": "apollo"}, False),
        ({"principal": "ben"}, False),
        ({"expires": "+1s"}, True),
        ({"expires": "+0s"}, False),
        ({"expires": "2026-06-01T12:00:00Z"}, False),
    ],
)
def test_a_grant_is_as_wide_as_it_says(fields, holds):
    """By pack, by key as a whole name, by project for land brain alone, until its end; else the chapter's text."""
    post = pack(surface(id="post"), policy(surface_id="post"))

    assert failing(ARRIVES if holds else DENIED, grants=[grant(**fields)], packs=[pack(), post]) == []


@pytest.mark.spec("9.4.4")
@pytest.mark.spec("9.5.no-skip")
def test_a_grant_that_is_gone_is_a_denial_at_the_next_attempt():
    """Revoked or expired between acceptance and attempt: denied; granted again: delivered, and not twice."""
    cases = """
    - {name: held, sense: {activation: a1, ref: new_item, data: {}, hold: true}, expect: {to-ana: pending}}
    - step: {revoke: {principal: ana, capability: sense.enable, pack: mail}}
    - {again: held, expect: {to-ana: "denied: missing sense.enable"}}
    - step: {grant: {principal: ana, capability: sense.enable, pack: mail, expires: +1h}}
    - step: {clock: +3600s}
    - {again: held, expect: {to-ana: "denied: missing sense.enable"}}
    - step: {grant: {principal: ana, capability: sense.enable, pack: mail}}
    - {again: held, expect: {to-ana: delivered}}
    - {again: held, expect: {to-ana: delivered}}
    """
    lines = audited(cases)

    assert failing(DENIED, grants=[]) == []
    assert [(one.ok, one.reason) for one in lines] == [(False, MISSING), (False, MISSING), (True, None)]


@pytest.mark.spec("9.7.install")
@pytest.mark.parametrize(
    ("fields", "holds"),
    [
        ({}, True),
        ({"pack": "*"}, True),
        ({"pack": "post"}, False),
        ({"keys": ["new_item"]}, False),
        ({"keys": []}, False),
        ({"project": "apollo"}, False),
        ({"capability": "pack.connect"}, False),
        ({"expires": "+0s"}, False),
        ({"principal": "ben"}, False),
    ],
)
def test_installing_needs_the_whole_pack(fields, holds):
    """A grant for some keys, another pack, a project or another axis does not install; the text is the chapter's."""
    post = pack(surface(id="post"), policy(surface_id="post"))
    grants = [grant(**{"capability": "pack.install", **fields})]

    assert failing(INSTALLS if holds else NOT_INSTALLED, grants=grants, packs=[pack(), post]) == []


@pytest.mark.spec("9.5.order")
def test_a_read_only_entry_is_resolved_before_anyone_is_asked_for_a_grant():
    """Pack, activation and policy entry come first, then who acts, then the grant: each mended, the next refuses."""
    good = {"surface": surface(), "policy": policy()}
    bare = {"surface": surface(stimulusTriggers=[]), "policy": policy(stimuli={})}
    cases: list[Any] = [
        {
            "name": "held",
            "sense": {"activation": "a1", "ref": "shared_item", "data": {}, "hold": True},
            "expect": {"to-ben": "pending"},
        },
        *_steps(replace=bare),
        *_steps(remove="mail"),
        *_steps(disable="ben"),
        *_steps(leave={"principal": "ben", "project": "apollo"}),
        *_steps(revoke=grant(principal="ben")),
        _again("pack not installed: mail"),
        *_steps(replace=bare),
        _again("trigger not declared: shared_item"),
        *_steps(replace=good),
        _again("denied: principal disabled"),
        *_steps(enable="ben"),
        _again("denied: not a member of the project"),
        *_steps(join={"principal": "ben", "project": "apollo"}),
        _again(MISSING),
        *_steps(grant=grant(principal="ben")),
        _again("delivered"),
    ]

    assert failing(cases, routes={"to-ben": SHARED["to-ben"]}) == []


def _steps(**change: Any) -> list[dict[str, Any]]:
    return [{"step": change}]


def _again(text: str) -> dict[str, Any]:
    return {"name": text, "again": "held", "expect": {"to-ben": text}}
