"""What a case gets, and what it may expect (DESIGN §10)."""

from __future__ import annotations

import pytest

from tests.sense_worker.scenario.files import POLICY, SURFACE, again, sense, step

YES = {"r1": "delivered"}
PERSONAL = "denied: privacy.land personal"
LOCAL = "denied: privacy.land local requires a workspace sink"
OUTSIDE = "denied: sink outside the project"
NO_MEMBER = "denied: not a member of the project"
WORDS = {"inbox": "inbox", "workspace": "workspace", "own": "own", "tenant": "tenant", "apollo": {"project": "apollo"}}
WORDS["gemini"] = {"project": "gemini"}


def routes(ref, *owners):
    """Return a route of each owner to each sink, named `OWNER-SINK`."""
    return {
        f"{owner}-{name}": {"principal": owner, "pack": "mail", "ref": ref, "sink": word}
        for owner in owners
        for name, word in WORDS.items()
    }


def outcomes(owner, otherwise, *delivered):
    """Return what each route of an owner ends in."""
    return {f"{owner}-{name}": "delivered" if name in delivered else otherwise for name in WORDS}


@pytest.mark.spec("4.3.personal")
def test_land_personal_at_every_sink(check):
    """Only the publisher's own routes, to a sink that keeps principals apart or is the owner's."""
    expect = {**outcomes("ana", PERSONAL, "inbox", "own", "workspace"), **outcomes("bob", PERSONAL)}
    check.holds(sense(expect), routes=routes("new_item", "ana", "bob"))


@pytest.mark.spec("4.3.local")
def test_land_local_at_every_sink(check):
    """Only the publisher's own routes to the workspace, and only where the activation has one."""
    activations = {
        "a1": {"session": "ana", "pack": "mail", "workspace": True},
        "a2": {"session": "ana", "pack": "mail", "workspace": False},
    }
    there = {**outcomes("ana", LOCAL, "workspace"), **outcomes("bob", LOCAL)}
    without = {**outcomes("ana", LOCAL), **outcomes("bob", LOCAL)}
    check.holds(
        sense(there, ref="saved_item"),
        sense(without, ref="saved_item", activation="a2"),
        routes=routes("saved_item", "ana", "bob"),
        activations=activations,
    )


@pytest.mark.spec("4.3.brain")
def test_land_brain_at_every_sink(check):
    """Members' routes, to a sink that keeps principals apart or whose audience is within the project."""
    inside = ("inbox", "workspace", "own", "apollo")
    expect = {
        **outcomes("ana", OUTSIDE, *inside),
        **outcomes("bob", OUTSIDE, *inside),
        **outcomes("eve", NO_MEMBER),
    }
    check.holds(sense(expect, ref="shared_item"), routes=routes("shared_item", "ana", "bob", "eve"))


@pytest.mark.spec("9.2.2")
def test_land_brain_without_a_project(check):
    """Everybody's route says why."""
    text = "denied: privacy.land brain requires project_id"
    check.holds(
        sense({"r1": text, "r2": text}, ref="shared_item"),
        activations={"a1": {"session": "ana", "pack": "mail"}},
        routes={
            name: {"principal": owner, "pack": "mail", "ref": "shared_item", "sink": "inbox"}
            for name, owner in (("r1", "ana"), ("r2", "bob"))
        },
    )


def test_a_case_names_every_matching_route_of_the_tenant(check):
    """By pack and ref, `*` too; not those of other refs and tenants; one that is missing or too many is a diff."""
    world = {
        "principals": {"ana": {"tenant": "acme"}, "zoe": {"tenant": "other"}},
        "activations": {"a1": {"session": "ana", "pack": "mail"}},
        "routes": {
            "any": {"principal": "ana", "pack": "mail", "ref": "*", "sink": "inbox"},
            "other-ref": {"principal": "ana", "pack": "mail", "ref": "shared_item", "sink": "inbox"},
            "other-tenant": {"principal": "zoe", "pack": "mail", "ref": "new_item", "sink": "inbox"},
            "same": {"principal": "ana", "pack": "mail", "ref": "new_item", "sink": "tenant"},
        },
        "grants": [{"principal": "ana", "capability": "sense.enable", "pack": "mail"}],
    }
    full = {"any": "delivered", "same": PERSONAL}
    check.holds(sense(full), **world)
    for wrong in ({"any": "delivered"}, {**full, "other-ref": "delivered"}, {}, {**full, "same": "delivered"}):
        assert check(sense(wrong), **world).code == 1
    check.holds(sense({}), **{**world, "routes": {}})
    check.holds(sense({"refused": "undeclared_ref"}, ref="none"), **world)


def test_hold_accepts_without_an_attempt(check):
    """Again attempts what is not delivered yet, as often as one asks."""
    grant = {"principal": "ana", "capability": "sense.enable", "pack": "mail"}
    check.holds(
        sense({"r1": "pending"}, name="one", hold=True),
        step("revoke", grant),
        again("one", {"r1": "denied: missing sense.enable"}),
        step("grant", grant),
        again("one", YES),
        step("revoke", grant),
        again("one", YES),
        grants=[grant],
    )


def test_again_of_what_was_refused_is_refused_as_before(check):
    """Nothing of it was accepted."""
    check.holds(
        sense({"refused": "pack_missing"}, name="one"),
        step("replace", {"surface": SURFACE, "policy": POLICY}),
        again("one", {"refused": "pack_missing"}),
        packs=[{"surface": SURFACE, "policy_text": "{"}],
    )


def test_a_route_that_is_no_candidate_keeps_its_text(check):
    """Joining later does not make a Delivery of an event that came before."""
    check.holds(
        sense({"r1": NO_MEMBER}, ref="shared_item", name="one"),
        step("join", {"principal": "eve", "project": "apollo"}),
        again("one", {"r1": NO_MEMBER}),
        sense(YES, ref="shared_item"),
        routes={"r1": {"principal": "eve", "pack": "mail", "ref": "shared_item", "sink": "inbox"}},
    )


def test_the_same_message_again_is_a_repeat_and_another_body_a_conflict(check):
    """By publisher, pack and id; another activation of the publisher's changes nothing, another principal does."""
    check.holds(
        sense({"r1": "pending"}, id="m1", name="one", hold=True),
        sense({"repeat": True}, id="m1", name="two"),
        sense({"repeat": True}, id="m1", activation="a2"),
        sense({"refused": "conflict"}, id="m1", data={"n": 1}),
        sense({"r1": PERSONAL}, id="m1", activation="b1"),
        again("two", YES),
        activations={
            "a1": {"session": "ana", "pack": "mail"},
            "a2": {"session": "ana", "pack": "mail", "project": "apollo"},
            "b1": {"principal": "bob", "pack": "mail"},
        },
    )


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"ref": "no such"}, "malformed"),
        ({"ref": 5}, "malformed"),
        ({"data": []}, "malformed"),
        ({"data": None}, "malformed"),
        ({"data": {"n": "one"}}, "invalid_data"),
        ({"subject": "x" * 257}, "malformed"),
        ({"subject": None}, "malformed"),
        ({"id": "a b"}, "malformed"),
        ({"id": ""}, "malformed"),
        ({"id": "é"}, "malformed"),
        ({"message": {"principal": "bob"}}, "unknown_field"),
        ({"message": {"occurred_at": "yesterday"}}, "malformed"),
        ({"message": {"ref": None}}, "malformed"),
        ({"message": {"data": None}}, "malformed"),
        ({"message": {"ref": "shared", "tenant": 1}}, "unknown_field"),
        ({"raw": ""}, "no_body"),
        ({"raw": "{"}, "malformed"),
        ({"raw": '{"ref": "new_item", "ref": "new_item", "data": {}}'}, "malformed"),
        ({"raw": " " * (256 * 1024 + 1)}, "too_large"),
        ({"activation": "nobody"}, "unknown_credential"),
        ({"activation": None}, "unknown_credential"),
        ({"activation": "é"}, "unknown_credential"),
    ],
)
def test_a_case_goes_through_the_door(check, fields, word):
    """Whatever stands in it, the door answers with its word."""
    check.holds(sense({"refused": word}, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"subject": "x" * 256, "id": "!~"},
        {"message": {"occurred_at": "2026-01-01T00:00:00+02:00"}},
        {"ref": "no such", "message": {"ref": "new_item"}},
        {"ref": None, "data": None, "raw": '{"ref": "new_item", "data": {"n": 1}}'},
    ],
)
def test_extra_fields_and_raw_text_reach_the_door_as_written(check, fields):
    """`message` stands over the fields, `raw` in their place."""
    check.holds(sense(YES, **fields))


@pytest.mark.spec("9.2.1")
@pytest.mark.case("C17")
def test_a_session_in_another_tenant_is_another_world(check):
    """The tenant is the session's: routes, grants and memberships of the first tenant do not reach it."""
    check.holds(
        sense(YES),
        sense({}, activation="a2"),
        sense({}, activation="a2", ref="shared_item"),
        {"install": {"principal": "ana", "pack": "mail"}, "expect": {"ok": True}},
        step("disable", "ana"),
        sense({}, activation="a2"),
        step("revoke_session", "s2"),
        sense({"refused": "session_revoked"}, activation="a2"),
        sessions={"s2": {"principal": "ana", "tenant": "other"}},
        grants=[
            {"principal": "ana", "capability": "sense.enable", "pack": "mail"},
            {"principal": "ana", "capability": "pack.install", "pack": "mail"},
        ],
        activations={
            "a1": {"session": "ana", "pack": "mail"},
            "a2": {"session": "s2", "pack": "mail", "project": "apollo"},
        },
    )


@pytest.mark.case("C18")
def test_a_project_belongs_to_one_tenant(check):
    """As `projects` says, else to the tenant of its members: elsewhere it has no members."""
    route = {"r1": {"principal": "ana", "pack": "mail", "ref": "shared_item", "sink": "inbox"}}
    check.holds(sense(YES, ref="shared_item"), routes=route)
    check.holds(sense(YES, ref="shared_item"), routes=route, projects={"apollo": "acme"})
    check.holds(sense({"r1": NO_MEMBER}, ref="shared_item"), routes=route, projects={"apollo": "other"})


@pytest.mark.parametrize(
    ("expected", "holds"),
    [
        ("denied: missing sense.enable", True),
        ("denied: …", True),
        ("…", True),
        ("denied: missing sense.enable…", True),
        ("denied: missing", False),
        ("delivered…", False),
        ("denied: missing sense.enable ", False),
        (None, False),
        (True, False),
    ],
)
def test_an_expected_text_that_ends_in_an_ellipsis_is_a_beginning(check, expected, holds):
    """Anything else is compared whole."""
    assert check(sense({"r1": expected}), grants=[]).code == (0 if holds else 1)


def test_other_cases_are_compared_by_the_names_they_give(check):
    """One name may be enough; a name that is not answered, and a value of another type, are diffs."""
    install = {"principal": "ana", "pack": "mail"}
    error = "denied: missing pack.install"
    for expect in ({}, {"ok": False}, {"error": error}, {"ok": False, "error": "denied: …"}):
        check.holds({"install": install, "expect": expect})
    for wrong in ({"ok": True}, {"ok": 0}, {"error": None}, {"ok": False, "ran": False}):
        assert check({"install": install, "expect": wrong}).code == 1


@pytest.mark.spec("9.7.install")
def test_install(check):
    """The session, the plane, the grant and the pack, in this order; the first that applies answers."""

    def install(principal, pack, error, *, ok=False):
        return {"install": {"principal": principal, "pack": pack}, "expect": {"ok": ok, "error": error}}

    def grant(principal, pack):
        return {"principal": principal, "capability": "pack.install", "pack": pack}

    control = {"surface": {**SURFACE, "id": "plane", "plane": "control"}, "policy": {**POLICY, "surface_id": "plane"}}
    bad = {"surface": {**SURFACE, "id": "bad"}, "policy": {**POLICY, "surface_id": "bad", "stimuli": {}}}
    torn = {"surface": {**SURFACE, "id": "torn"}, "policy_text": '{"surface_id": "torn",'}
    check.holds(
        install("ana", "mail", None, ok=True),
        install("bob", "mail", "denied: missing pack.install"),
        install("bob", "plane", "denied: control plane requires an operator"),
        install("ana", "plane", "denied: control plane requires an operator"),
        install("eve", "plane", "denied: missing pack.install"),
        step("grant", grant("eve", "*")),
        install("eve", "plane", None, ok=True),
        install("bob", "bad", "denied: missing pack.install"),
        install("eve", "bad", "bad: missing_stimulus: policy.json /stimuli/new_item: …"),
        install("eve", "torn", "policy.json…"),
        install("eve", "ghost", "ghost: is no pack of this scenario"),
        install("nobody", "mail", "denied: session revoked"),
        install(5, None, "denied: session revoked"),
        step("remove", "mail"),
        sense({"refused": "pack_missing"}),
        install("ana", "mail", None, ok=True),
        sense(YES),
        step("disable", "eve"),
        install("eve", "mail", "denied: principal disabled"),
        step("clock", "+2h"),
        install("ana", "mail", "denied: session expired"),
        step("revoke_session", "ana"),
        install("ana", "mail", "denied: session revoked"),
        packs=[{"surface": SURFACE, "policy": POLICY}, control, bad, torn],
        rejected={"bad": "lint", "torn": "policy"},
        principals={
            "ana": {"tenant": "acme", "expires": "+1h"},
            "bob": {"tenant": "acme"},
            "eve": {"tenant": "acme", "operator": True},
        },
        grants=[{"principal": "ana", "capability": "sense.enable", "pack": "mail"}, grant("ana", "*")],
        activations={"a1": {"session": "ana", "pack": "mail"}},
    )
