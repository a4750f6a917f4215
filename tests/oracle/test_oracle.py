"""Small scenarios written by hand beside the text: what the oracle must say, before it says anything of a product.

None is marked with a clause: they hold the oracle to the text, not the product.
"""

import ast
import copy
from pathlib import Path

import pytest

from tests.oracle.judge import expected, expected_packs
from tests.oracle.packs import read_pack
from tests.oracle.pool import BAD, BROKEN, GOOD
from tests.oracle.reading import NotStrict, strict_json

GRANT = {"principal": "ana", "capability": "sense.enable", "pack": "feed"}


def sense_world(*cases, **sections):
    """Principals ana and bob of acme in apollo, dan of bolt; the pack feed with a trigger of each land; r1 is ana's."""
    scenario = {
        "scenario": 1,
        "packs": [GOOD["feed"][0]],
        "projects": {"apollo": "acme", "zeus": "bolt"},
        "principals": {
            "ana": {"kind": "human", "tenant": "acme", "projects": ["apollo"]},
            "bob": {"kind": "human", "tenant": "acme", "projects": ["apollo"]},
            "dan": {"kind": "human", "tenant": "bolt", "projects": ["zeus"]},
        },
        "grants": [GRANT],
        "activations": {"a1": {"session": "ana", "pack": "feed", "project": "apollo", "workspace": True}},
        "routes": {"r1": {"principal": "ana", "pack": "feed", "ref": "*", "sink": "inbox"}},
        "cases": [{"name": f"c{number}", **case} for number, case in enumerate(cases)],
    }
    return scenario | sections


def new(**more):
    return {"sense": {"activation": "a1", "ref": "item.new", "data": {"sha": "a"}, **more}}


def shared(**more):
    return {"sense": {"activation": "a1", "ref": "item.shared", "data": {}, **more}}


def saved(**more):
    return {"sense": {"activation": "a1", "ref": "item.saved", "data": {"size": 1}, **more}}


def raw(text):
    return {"sense": {"activation": "a1", "raw": text}}


def step(word, value):
    return {"step": {word: value}}


def routes(**rows):
    """Routes of feed by name: their owner and sink."""
    return {
        name: {"principal": owner, "pack": "feed", "ref": "*", "sink": sink} for name, (owner, sink) in rows.items()
    }


def test_the_oracle_imports_nothing_it_judges():
    """What judge and worlds import, and what that imports, is the standard library and files of the oracle."""
    allowed = {"collections", "collections.abc", "datetime", "json", "math", "random", "re", "typing"}
    waiting, seen = ["judge", "worlds", "coverage"], set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for node in ast.walk(ast.parse((Path(__file__).parent / f"{name}.py").read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                own = module.removeprefix("tests.oracle.")
                assert own != module or module in allowed, (name, module)
                if own != module and own not in seen:
                    waiting.append(own)


def test_the_example_of_the_scenario_chapter():
    """The example of DESIGN §10 with its pack written inline, without the report (its rows do not bear it out)."""
    grant = {"principal": "ana", "capability": "sense.enable", "pack": "git", "keys": ["commit.created"]}
    grant["expires"] = "+1h"
    write = {"principal": "ana", "capability": "verb.exec.write", "pack": "git"}
    sha = {"sha": "abc"}
    scenario = {
        "scenario": 1,
        "now": "2026-06-01T12:00:00Z",
        "packs": [GOOD["git"][0]],
        "projects": {"apollo": "acme"},
        "principals": {
            "ana": {"kind": "human", "tenant": "acme", "projects": ["apollo"], "operator": False, "expires": "+2h"}
        },
        "sessions": {"s2": {"principal": "ana", "tenant": "other"}},
        "grants": [grant, write],
        "activations": {"a1": {"session": "ana", "pack": "git", "project": "apollo", "workspace": True}},
        "routes": {"r1": {"principal": "ana", "pack": "git", "ref": "commit.created", "sink": "inbox"}},
        "connected": ["ana/git"],
        "cases": [
            {"name": "arrives", "sense": {"activation": "a1", "ref": "commit.created", "data": sha}},
            {"exec": {"activation": "a1", "pack_id": "git", "verb_key": "git.commit", "args": {"text": "x"}}},
            {"install": {"principal": "ana", "pack": "git"}},
            {"name": "held", "sense": {"activation": "a1", "ref": "commit.created", "data": sha, "hold": True}},
            {"step": {"revoke": copy.deepcopy(grant)}},
            {"again": "held"},
            {"again": "arrives"},
        ],
    }
    assert expected(scenario) == [
        {"r1": "delivered"},
        {"ok": False, "error": "confirm required", "minted": False, "ran": False, "steps": []},
        {"ok": False, "error": "denied: missing pack.install"},
        {"r1": "pending"},
        {},
        {"r1": "denied: missing sense.enable"},
        {"r1": "delivered"},
    ]
    assert expected_packs(scenario) == {"git": {"state": "installed", "kinds": set()}}


@pytest.mark.parametrize(
    ("word", "case"),
    [
        ("too_large", {"sense": {"activation": "nobody", "raw": "x" * 262_145}}),
        ("unknown_credential", {"sense": {"activation": "nobody", "raw": "{"}}),
        ("malformed", raw("{")),
        ("malformed", raw('{"ref":"item.shared","data":[]}')),
        ("malformed", raw('{"ref":"item.shared","data":{"x":1,"x":1}}')),
        ("malformed", new(ref="a b", message={"tenant": "bolt"})),
        ("malformed", new(message={"data": None})),
        ("malformed", new(id="a b")),
        ("unknown_field", new(ref="nothing", message={"tenant": "bolt"})),
        ("undeclared_ref", new(ref="nothing", data={})),
        ("undeclared_ref", new(ref="Item.new")),
        ("invalid_data", new(data={"sha": 1})),
    ],
)
def test_the_first_refusal_of_intake_wins(word, case):
    """What is refused shows the first word of the table that holds, and reaches no route."""
    assert expected(sense_world(case)) == [{"refused": word}]


def test_the_credential_is_read_before_the_body():
    """Revoked, disabled and expired come in this order, and before whatever the body holds."""
    people = {"ana": {"kind": "human", "tenant": "acme", "expires": "+1h"}}
    scenario = sense_world(
        *(raw("{"), step("clock", "+3601s"), raw("{"), step("disable", "ana"), raw("{")),
        *(step("revoke_session", "ana"), raw("{"), step("deactivate", "a1"), raw("{")),
        principals=people,
    )
    words = [result["refused"] for result in expected(scenario) if result]
    assert words == ["malformed", "expired", "principal_disabled", "session_revoked", "activation_revoked"]


def test_a_message_id_is_of_one_event():
    """The same id with the same body is a repeat, with another a conflict, also where no route took the first."""
    cases = (new(id="m"), new(id="m"), new(id="m", subject="s"), new(id="n"))
    assert expected(sense_world(*cases)) == [
        *({"r1": "delivered"}, {"repeat": True}, {"refused": "conflict"}, {"r1": "delivered"})
    ]
    assert expected(sense_world(*cases, routes={}))[:3] == [{}, {"repeat": True}, {"refused": "conflict"}]


def test_personal_stays_with_the_publisher():
    """Another principal's route shows the land; the publisher's own needs a sink that keeps it apart."""
    rows = routes(r1=("ana", "inbox"), r2=("ana", "own"), r3=("ana", "tenant"), r4=("ana", {"project": "apollo"}))
    grants = [GRANT, {**GRANT, "principal": "bob"}]
    scenario = sense_world(new(), routes=rows | routes(r5=("bob", "inbox"), r6=("dan", "inbox")), grants=grants)
    denied = "denied: privacy.land personal"
    assert expected(scenario) == [{"r1": "delivered", "r2": "delivered", "r3": denied, "r4": denied, "r5": denied}]


def test_brain_reaches_members_through_sinks_of_the_project():
    """Members get it in sinks of the project or of their own; others, and sinks of the tenant, do not."""
    rows = routes(r1=("ana", "inbox"), r2=("bob", "own"), r3=("bob", {"project": "apollo"}), r4=("ana", "tenant"))
    grants = [GRANT, {**GRANT, "principal": "bob", "project": "apollo"}]
    scenario = sense_world(
        *(shared(), step("leave", {"principal": "bob", "project": "apollo"}), shared(hold=True)),
        *(step("join", {"principal": "bob", "project": "apollo"}), {"again": "c2"}),
        *(step("leave", {"principal": "ana", "project": "apollo"}), shared()),
        routes=rows,
        grants=grants,
    )
    outside, stranger = "denied: sink outside the project", "denied: not a member of the project"
    results = expected(scenario)
    assert results[0] == {"r1": "delivered", "r2": "delivered", "r3": "delivered", "r4": outside}
    assert results[2] == {"r1": "pending", "r2": stranger, "r3": stranger, "r4": "pending"}
    assert results[4] == {"r1": "delivered", "r2": stranger, "r3": stranger, "r4": outside}
    assert results[6] == dict.fromkeys(("r1", "r2", "r3", "r4"), stranger)


def test_brain_needs_a_project_of_the_tenant():
    """Without a project the land's text; with one that is another tenant's, or nobody's, no member is found."""
    for project, text in (
        (None, "denied: privacy.land brain requires project_id"),
        ("zeus", "denied: not a member of the project"),
        ("ghost", "denied: not a member of the project"),
    ):
        row = {"session": "ana", "pack": "feed"} | ({"project": project} if project else {})
        assert expected(sense_world(shared(), activations={"a1": row})) == [{"r1": text}]


def test_local_is_written_under_the_workspace():
    """Only the publisher's own route with a workspace sink gets it."""
    scenario = sense_world(
        saved(), routes=routes(r1=("ana", "inbox"), r2=("ana", "workspace"), r3=("bob", "workspace"))
    )
    denied = "denied: privacy.land local requires a workspace sink"
    assert expected(scenario) == [{"r1": denied, "r2": "delivered", "r3": denied}]


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, "delivered"),
        ({"pack": "*"}, "delivered"),
        ({"keys": ["item.new", "x"]}, "delivered"),
        ({"expires": "+1s"}, "delivered"),
        ({"keys": []}, "denied: missing sense.enable"),
        ({"keys": ["*"]}, "denied: missing sense.enable"),
        ({"keys": ["Item.new"]}, "denied: missing sense.enable"),
        ({"pack": "git"}, "denied: missing sense.enable"),
        ({"project": "apollo"}, "denied: missing sense.enable"),
        ({"principal": "bob"}, "denied: missing sense.enable"),
        ({"capability": "verb.exec.read"}, "denied: missing sense.enable"),
    ],
)
def test_a_grant_matches_by_every_part(change, outcome):
    """One part that does not match is a denial; a grant of a project is none for land personal."""
    assert expected(sense_world(new(), grants=[GRANT | change])) == [{"r1": outcome}]


def test_an_attempt_reads_the_rows_as_they_are():
    """Each refusal of SENSE_STEPS that a change after acceptance makes, in the order of the table."""
    scenario = sense_world(
        *(new(hold=True), step("revoke", GRANT), {"again": "c0"}, step("disable", "ana"), {"again": "c0"}),
        *(step("revoke_session", "ana"), {"again": "c0"}, step("replace", GOOD["feed"][3]), {"again": "c0"}),
        *(step("deactivate", "a1"), {"again": "c0"}, step("remove", "feed"), {"again": "c0"}),
    )
    assert [result["r1"] for result in expected(scenario) if result] == [
        *("pending", "denied: missing sense.enable", "denied: principal disabled", "denied: session revoked"),
        *("trigger not declared: item.new", "denied: activation revoked", "pack not installed: feed"),
    ]


def test_a_paused_sink_holds_before_the_steps():
    """Held whatever a step would say, pending where no attempt was asked for, delivered after the pause."""
    scenario = sense_world(
        *(step("pause", "inbox"), new(), new(hold=True), step("revoke", GRANT), {"again": "c1"}),
        *(step("resume", "inbox"), {"again": "c1"}, step("grant", GRANT), {"again": "c1"}, {"again": "c2"}),
    )
    assert [result["r1"] for result in expected(scenario) if result] == [
        *("held", "pending", "held", "denied: missing sense.enable", "delivered", "delivered")
    ]


def test_a_replacement_that_fails_changes_nothing():
    """The last good revision stays in force; a removed pack is missing at intake."""
    scenario = sense_world(step("replace", BROKEN["feed"]), new(), step("remove", "feed"), new())
    assert expected(scenario)[1::2] == [{"r1": "delivered"}, {"refused": "pack_missing"}]


def test_a_control_pack_is_routed_for_operators():
    """The owner of a route of a control-plane pack is an operator."""
    case = {"sense": {"activation": "a1", "ref": "deploy.done", "data": {"sha": "a"}}}
    for operator, outcome in ((True, "delivered"), (False, "denied: control plane requires an operator")):
        scenario = sense_world(
            case,
            packs=[GOOD["ops"][0]],
            principals={"ana": {"tenant": "acme", "operator": operator}},
            grants=[{**GRANT, "pack": "*"}],
            activations={"a1": {"principal": "ana", "pack": "ops"}},
            routes={"r1": {"principal": "ana", "pack": "ops", "ref": "*", "sink": "own"}},
        )
        assert expected(scenario) == [{"r1": outcome}]


def test_a_session_in_another_tenant_sees_that_tenant():
    """The session of ana in bolt reaches dan, a member with her there, and none of the routes of acme."""
    in_bolt = {"session": "far", "pack": "feed", "project": "zeus"}
    in_acme = {"session": "ana", "pack": "feed", "project": "zeus"}
    people = sense_world()["principals"]
    people["ana"] = {**people["ana"], "projects": ["apollo", "zeus"]}
    scenario = sense_world(
        *(shared(), shared(activation="a2")),
        principals=people,
        sessions={"far": {"principal": "ana", "tenant": "bolt"}},
        activations={"a1": in_bolt, "a2": in_acme},
        routes=routes(r1=("ana", "inbox"), r2=("dan", "inbox")),
        grants=[GRANT, {**GRANT, "principal": "dan"}],
    )
    assert expected(scenario) == [{"r2": "delivered"}, {"r1": "denied: not a member of the project"}]


def test_strict_json_refuses_what_section_four_names():
    """Each form that §4 names is refused; what stands just inside is read."""
    for text in (
        *('{"a":1,"a":1}', "NaN", "-Infinity", "1e999", "9223372036854775808", '"\\ud800"', '"\\u0000"', "1" * 5000),
        *("[" * 65 + "]" * 65, "[" * 20_000 + "]" * 20_000, "\ufeff{}", "", "{} x"),
    ):
        with pytest.raises(NotStrict):
            strict_json(text)
    for text in ("[" * 64 + "]" * 64, "9223372036854775807", '"\\\\u0000"', '"\\ud83c\\udf0d"', " 1e308 "):
        strict_json(text)


def test_each_bad_pack_fails_in_its_way():
    """The bad packs of the pool fail as their makers say; every good one is installed."""
    found = [read_pack(pack, {}) for pack in BAD["bad"]]
    assert [sorted(pack["kinds"]) for pack in found if pack["state"] == "lint"] == [
        *(["missing_verb"], ["extra_verb"], ["missing_stimulus"], ["extra_stimulus"], ["write_stimulus"]),
        *(["surface_id_mismatch"], ["confirm_on_read"], ["confirm_on_read"], ["connect_not_write"]),
        *(["embedded_principal"], ["passthrough"], ["passthrough"], ["binding_pair"], ["reserved_arg"]),
        *(["duplicate_key"], ["duplicate_key"], ["duplicate_key"], ["embedded_principal"]),
        ["extra_verb", "surface_id_mismatch"],
    ]
    assert [pack["state"] for pack in found[19:]] == ["policy"] * 11 + ["surface"] * 4
    known = {pack_id: read_pack(packs[0], {}) for pack_id, packs in GOOD.items() if pack_id not in ("relay", "chain")}
    for pack_id in GOOD:
        for pack in GOOD[pack_id]:
            known[pack_id] = read_pack(pack, known)
            assert known[pack_id]["kinds"] == set()
