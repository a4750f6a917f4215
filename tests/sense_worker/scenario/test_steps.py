"""Every step changes what it says and nothing else, from the next case on (DESIGN §10)."""

from __future__ import annotations

import pytest

from tests.sense_worker.scenario.files import POLICY, SURFACE, again, sense, step

YES, MISSING = {"r1": "delivered"}, {"r1": "denied: missing sense.enable"}
GRANT = {"principal": "ana", "capability": "sense.enable", "pack": "mail"}
SHARED = {"r1": {"principal": "bob", "pack": "mail", "ref": "shared_item", "sink": "inbox"}}


def shared(expect, **fields):
    """An announcement to the project."""
    return sense(expect, ref="shared_item", **fields)


def revised(**changes):
    """Return the pack with its policy entries changed by ref; None takes the trigger away."""
    triggers = [one for one in SURFACE["stimulusTriggers"] if changes.get(one["ref"], True) is not None]
    stimuli = {ref: entry for ref, entry in {**POLICY["stimuli"], **changes}.items() if entry is not None}
    return {"surface": {**SURFACE, "stimulusTriggers": triggers}, "policy": {**POLICY, "stimuli": stimuli}}


def land(name):
    """Return a policy entry."""
    return {"operation": "read", "privacy": {"land": name}}


@pytest.mark.spec("9.4.4")
def test_grant_and_revoke(check):
    """A grant allows from its step on; a revoke takes every row that is equal, and only those."""
    other = {**GRANT, "keys": ["shared_item"]}
    check.holds(
        sense(MISSING),
        step("grant", GRANT),
        sense(YES),
        step("grant", GRANT),
        step("grant", other),
        step("revoke", GRANT),
        sense(MISSING),
        step("grant", GRANT),
        sense(YES),
        step("revoke", other),
        sense(YES),
        grants=[],
    )


@pytest.mark.parametrize(
    ("grant", "allows"),
    [
        ({}, True),
        ({"pack": "*"}, True),
        ({"keys": ["new_item"]}, True),
        ({"keys": []}, False),
        ({"keys": ["shared_item"]}, False),
        ({"keys": ["*"]}, False),
        ({"keys": ["new_*"]}, False),
        ({"project": "apollo"}, False),
        ({"capability": "pack.install"}, False),
        ({"capability": "verb.exec.read"}, False),
        ({"principal": "bob"}, False),
        ({"expires": "+1s"}, True),
        ({"expires": "-1s"}, False),
        ({"expires": "2026-06-01T12:00:00Z"}, False),
        ({"expires": "2026-06-01T14:00:01+02:00"}, True),
    ],
)
def test_a_grant_is_a_row_as_given(check, grant, allows):
    """It passes no door: patterns match nothing, keys may be none, an end may have been."""
    check.holds(sense(YES if allows else MISSING), grants=[{**GRANT, **grant}])


def test_a_grant_without_a_pack_is_for_all(check):
    """The last three fields and the project may be left out."""
    check.holds(sense(YES), grants=[{"principal": "ana", "capability": "sense.enable"}])


@pytest.mark.spec("9.2.3")
def test_join_and_leave(check):
    """Membership of publisher and owner counts at every attempt."""
    nobody = {"r1": "denied: not a member of the project"}
    check.holds(
        shared(YES),
        shared({"r1": "pending"}, name="waits", hold=True),
        step("leave", {"principal": "bob", "project": "apollo"}),
        shared(nobody),
        again("waits", nobody),
        step("join", {"principal": "bob", "project": "apollo"}),
        shared(YES),
        again("waits", YES),
        step("leave", {"principal": "ana", "project": "apollo"}),
        shared(nobody),
        routes=SHARED,
    )


def test_activate_and_deactivate(check):
    """An activation announces from its step on, and nothing after the other."""
    check.holds(
        sense({"refused": "unknown_credential"}, activation="a2"),
        step("activate", {"name": "a2", "session": "ana", "pack": "mail"}),
        sense(YES, activation="a2"),
        sense({"r1": "pending"}, activation="a2", name="waits", hold=True),
        step("deactivate", "a2"),
        sense({"refused": "activation_revoked"}, activation="a2"),
        again("waits", {"r1": "denied: activation revoked"}),
        sense(YES),
    )


def test_disable_and_enable(check):
    """Of the publisher nothing is accepted; what waits is denied for either, and delivered afterwards."""
    off = {"r1": "denied: principal disabled"}
    check.holds(
        shared({"r1": "pending"}, name="waits", hold=True),
        step("disable", "ana"),
        shared({"refused": "principal_disabled"}),
        again("waits", off),
        step("enable", "ana"),
        step("disable", "bob"),
        shared(off),
        again("waits", off),
        step("enable", "bob"),
        again("waits", YES),
        routes=SHARED,
    )


def test_revoke_session(check):
    """Nothing more comes under it; the principal's other session stands."""
    check.holds(
        sense({"r1": "pending"}, name="waits", hold=True),
        step("revoke_session", "ana"),
        sense({"refused": "session_revoked"}),
        again("waits", {"r1": "denied: session revoked"}),
        sense(YES, activation="a2"),
        sessions={"s2": {"principal": "ana", "tenant": "acme"}},
        activations={"a1": {"session": "ana", "pack": "mail"}, "a2": {"session": "s2", "pack": "mail"}},
    )


@pytest.mark.parametrize("sink", ["inbox", "own", "tenant", "workspace", {"project": "apollo"}])
def test_pause_and_resume(check, sink):
    """While the sink is paused its deliveries are held, those of others are not; resumed, they are attempted."""
    other = "own" if sink == "inbox" else "inbox"
    routes = {
        name: {"principal": "ana", "pack": "mail", "ref": "new_item", "sink": word}
        for name, word in (("r1", sink), ("r2", other))
    }
    fits = sink in ("inbox", "own", "workspace")
    then = "delivered" if fits else "denied: privacy.land personal"
    check.holds(
        step("pause", sink),
        sense({"r1": "held", "r2": "delivered"}, name="held"),
        sense({"r1": "pending", "r2": "pending"}, name="waits", hold=True),
        again("waits", {"r1": "held", "r2": "delivered"}),
        step("resume", sink),
        again("held", {"r1": then, "r2": "delivered"}),
        again("waits", {"r1": then, "r2": "delivered"}),
        routes=routes,
    )


def test_a_sink_that_is_paused_is_looked_at_before_the_steps(check):
    """What would be denied is held too."""
    check.holds(
        step("pause", "inbox"), sense({"r1": "held"}, name="x"), step("resume", "inbox"), again("x", MISSING), grants=[]
    )


def test_remove(check):
    """Its events are refused and its waiting deliveries denied; replaced, it is there again."""
    check.holds(
        sense({"r1": "pending"}, name="waits", hold=True),
        step("remove", "mail"),
        sense({"refused": "pack_missing"}),
        again("waits", {"r1": "pack not installed: mail"}),
        step("remove", "mail"),
        step("replace", revised()),
        again("waits", YES),
    )


@pytest.mark.case("C24")
def test_replace(check):
    """Intake judges by the pack it finds, each attempt by the newest: another land, and no trigger at all."""
    check.holds(
        sense({"r1": "pending"}, name="waits", hold=True),
        step("replace", revised(new_item=land("local"))),
        again("waits", {"r1": "denied: privacy.land local requires a workspace sink"}),
        step("replace", revised(new_item=None)),
        again("waits", {"r1": "trigger not declared: new_item"}),
        sense({"refused": "undeclared_ref"}),
        step("replace", revised()),
        again("waits", YES),
        sense(YES),
    )


@pytest.mark.case("C24")
@pytest.mark.parametrize(
    "broken",
    [
        {"surface": SURFACE, "policy": {**POLICY, "stimuli": {}}},
        {"surface": SURFACE, "policy": {**POLICY, "version": True}},
        {"surface": {"id": "mail"}, "policy": POLICY},
        {"surface_text": "{", "policy": POLICY},
        {"surface": SURFACE, "policy_text": ""},
    ],
)
def test_a_replacement_that_fails_leaves_the_last_good_revision(check, broken):
    """Parse or lint: nothing changes, and what is in force goes on."""
    check.holds(
        step("replace", revised(shared_item=None)),
        step("replace", broken),
        sense(YES),
        sense({"refused": "undeclared_ref"}, ref="shared_item"),
    )


def test_a_replacement_that_fails_installs_nothing_where_nothing_was(check):
    """After a removal it stays removed."""
    check.holds(
        step("remove", "mail"),
        step("replace", {"surface_text": "{", "policy": POLICY}),
        sense({"refused": "pack_missing"}),
    )


def test_a_pack_that_was_refused_may_be_replaced_by_a_good_one(check):
    """Its grants, activations and routes were valid names all along."""
    check.holds(
        sense({"refused": "pack_missing"}),
        step("replace", revised()),
        sense(YES),
        packs=[{"surface": SURFACE, "policy": {**POLICY, "stimuli": {}}}],
        rejected={"mail": "lint"},
    )


def test_clock(check):
    """Grants and sessions end as time goes by; an end counts from the step that made the row."""
    hour = {**GRANT, "expires": "+1h"}
    check.holds(
        sense(YES),
        step("clock", "+3599s"),
        sense(YES),
        sense({"r1": "pending"}, name="waits", hold=True),
        step("clock", "+1s"),
        sense(MISSING),
        step("grant", hour),
        sense(YES),
        step("clock", "+59m"),
        sense(YES),
        step("clock", "+1m"),
        sense({"refused": "expired"}),
        step("grant", GRANT),
        again("waits", YES),
        grants=[hour],
        principals={"ana": {"tenant": "acme", "expires": "+2h"}},
        activations={"a1": {"session": "ana", "pack": "mail"}},
    )


def test_connect_and_disconnect_are_of_one_principal_and_pack(check):
    """`PRINCIPAL/PACK`; what they mean is seen by exec and available."""
    surface = {**SURFACE, "binding": {"mode": "user", "hub": "keyring"}}

    def available(principal, *, connected):
        return {"available": {"principal": principal, "pack": "mail"}, "expect": {"connected": connected}}

    check.holds(
        available("ana", connected=True),
        available("bob", connected=False),
        step("disconnect", "ana/mail"),
        available("ana", connected=False),
        step("connect", "bob/mail"),
        available("bob", connected=True),
        available("ana", connected=False),
        packs=[{"surface": surface, "policy": POLICY}],
        connected=["ana/mail"],
    )
