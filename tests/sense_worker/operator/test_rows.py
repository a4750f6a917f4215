"""Principals, projects, grants, sinks and routes: what is entered, what is refused, what a repetition does."""

from __future__ import annotations

import pytest

from runtime_core.errors import Conflict, Denied, NotFound, UsageError
from sense_worker.storage.ledger import NEVER
from sense_worker.storage.schema import DELIVERY, EVENT, GRANT, ROUTE, SINK
from sense_worker.vault import Vault
from tests.provision import SURFACE

WRONG_NAMES = ["", " ", "a b", "-x", "a/b", "../x", "x" * 129, "é", "a\nb", "a\x00b", "*"]
HOUR_S = 3600.0


def delivery(world, route: str, state: str, number: int = 1, **values) -> bytes:
    """Put a delivery of an event straight into the ledger; returns the event's id."""
    event = bytes([number]) * 16
    if not world.rows(EVENT) or event not in {bytes(row.id) for row in world.rows(EVENT)}:
        facts = {"pack_id": "mail", "ref": "new_item", "activation_id": "act_1", "publisher": "ana", "digest": "d"}
        wire = {"message_id": f"m-{number}", "occurred_at": "2026-06-01T12:00:00Z", "stream_id": f"{number}-0"}
        moments = {"signed_at": 1, "accepted_at": number, "generation": 1, "repeats": 0}
        body = {"body": b"{}", "body_digest": b"d" * 32}
        world.put(EVENT, id=event, tenant="t-red", **facts, **wire, **moments, **body)
    row = {"event_id": event, "route_id": route, "tenant": "t-red", "lane": "t-red/inbox", "owner": "ana"}
    world.put(DELIVERY, **{**row, "state": state, "alone": False, "due_at": 1, "created_at": number, **values})
    return event


def states(world) -> dict[str, str]:
    """Return the state of each delivery by route."""
    return {row.route_id: row.state for row in world.rows(DELIVERY)}


def test_the_same_again_changes_nothing(world):
    """Every entry may be repeated: it is there already, no version moves, no line is written."""
    world.operator.install_pack(world.pack())

    def enter() -> list[object]:
        one = world.operator
        return [
            one.ensure_principal("ana", kind="agent"),
            one.ensure_project("apollo"),
            one.ensure_member("apollo", "ana"),
            one.ensure_grant("ana", "sense.enable", pack="mail", keys=["new_item"], project="apollo"),
            one.ensure_sink("log", "memory", audience="project:apollo"),
            one.ensure_route("mail", "*", "log", owner="ana", project="apollo"),
        ]

    enter()
    first = enter()
    world.forget()
    before = world.version()

    assert enter() == first
    assert (world.version(), world.audited()) == (before, [])


def test_a_name_that_is_none_is_refused_where_it_is_entered(world):
    """Names go into lanes, files and lines: what could be read as something else never gets in."""
    before = world.version()
    one = world.operator
    for name in WRONG_NAMES:
        for enter in (one.add_principal, one.add_project, lambda name: one.add_sink(name, "memory")):
            with pytest.raises(UsageError) as refused:
                enter(name)
            assert "\n" not in str(refused.value)
    assert world.version() == before


def test_a_principal_that_differs_is_a_conflict(world):
    """The same name with another kind or operator flag is not overwritten."""
    world.operator.add_principal("ana")

    with pytest.raises(Conflict, match="exists with another kind or operator flag"):
        world.operator.add_principal("ana", operator=True)
    with pytest.raises(Conflict):
        world.operator.add_principal("ana", kind="service")
    with pytest.raises(UsageError, match="one of human, service, agent, mothership"):
        world.operator.add_principal("bob", kind="robot")


def test_disabling_is_for_others_and_can_be_undone(world, ana):
    """A disabled principal acts no more until it is enabled; an operator cannot lock itself out."""
    assert world.operator.disable_principal("ana").disabled_at is not None
    with pytest.raises(Denied, match="principal disabled"):
        _ = ana.acting
    assert world.operator.enable_principal("ana").disabled_at is None
    assert ana.acting.principal == "ana"
    with pytest.raises(UsageError, match="'operator' is who acts"):
        world.operator.disable_principal("operator")
    with pytest.raises(NotFound):
        world.operator.disable_principal("bob")


def test_memberships_are_entered_and_ended(world, ana):
    """A project tells its members; who is not in it, and what does not exist, is not found."""
    world.operator.add_project("apollo")
    assert world.operator.add_member("apollo", "ana").members == ("ana",)
    assert [one.id for one in ana.list_projects()] == ["apollo"]
    assert world.operator.remove_member("apollo", "ana").members == ()
    assert ana.list_projects() == []

    for call in (
        lambda: world.operator.remove_member("apollo", "ana"),
        lambda: world.operator.add_member("apollo", "bob"),
        lambda: world.operator.add_member("gemini", "ana"),
    ):
        with pytest.raises(NotFound):
            call()


@pytest.mark.case("C18")
def test_what_is_of_another_tenant_looks_like_nothing(world, ana):
    """Ids of a neighbour and ids that exist nowhere get the same answer, and the neighbour's rows stay."""
    blue = world.tenant("t-blue")
    blue.add_principal("zoe")
    blue.add_project("gemini")
    blue.add_sink("log", "memory")
    blue.install_pack(world.pack())
    grant = blue.add_grant("zoe", "sense.enable")
    route = blue.add_route("mail", "*", "log")
    session = blue.create_session("zoe")
    activation = blue.activate("mail")
    before = world.version("t-blue")
    one = world.operator

    for theirs, nowhere, call in (
        ("zoe", "nil", lambda name: one.add_grant(name, "sense.enable")),
        ("zoe", "nil", one.disable_principal),
        ("gemini", "nil", lambda name: one.add_member(name, "ana")),
        ("gemini", "nil", lambda name: one.add_grant("ana", "sense.enable", project=name)),
        ("zoe", "nil", lambda name: one.add_sink("x", "memory", audience=f"principal:{name}")),
        ("log", "nil", one.remove_sink),
        ("log", "nil", one.pause_sink),
        ("mail", "nil", one.activate),
        (grant.id, "grt_0000000000000000", one.revoke_grant),
        (route.id, "rte_0000000000000000", one.remove_route),
        (session.id, "ses_0000000000000000", one.revoke_session),
        (activation.id, "act_0000000000000000", one.deactivate),
    ):
        answers = []
        for name in (theirs, nowhere):
            with pytest.raises(NotFound) as refused:
                call(name)
            answers.append(str(refused.value).replace(name, "NAME"))
        assert answers[0] == answers[1]
    assert world.version("t-blue") == before


@pytest.mark.spec("9.4.axes")
@pytest.mark.spec("9.4.1")
@pytest.mark.spec("9.4.2")
def test_grants_are_of_one_axis_each(world, ana):
    """Each axis is granted by itself, for a pack and keys, and revoked by itself."""
    world.operator.add_project("apollo")
    axes = ["pack.connect", "verb.exec.read", "verb.exec.write", "sense.enable"]
    made = [world.operator.add_grant("ana", axis, pack="mail", keys=["b", "a", "a"]) for axis in axes]

    assert [(one.capability, one.pack_id, one.keys) for one in made] == [(axis, "mail", ("a", "b")) for axis in axes]
    assert len({one.id for one in made}) == 4
    assert world.operator.add_grant("ana", "sense.enable", keys=[]).keys == ()
    assert world.operator.add_grant("ana", "sense.enable", project="apollo").keys is None
    world.operator.revoke_grant(made[2].id)
    assert sorted(one.capability for one in ana.list_grants()) == [
        *("pack.connect", "sense.enable", "sense.enable", "sense.enable", "verb.exec.read")
    ]
    with pytest.raises(NotFound):
        world.operator.revoke_grant(made[2].id)


UNMEANT = [
    ("sense.enable", {"pack": "git.*"}, "pack: 'git.*'"),
    ("sense.enable", {"pack": "GIT"}, "pack: 'GIT'"),
    ("sense.enable", {"pack": ""}, "pack: ''"),
    ("sense.enable", {"keys": ["commit.*"]}, "keys: 'commit.*'"),
    ("sense.enable", {"keys": ["*"]}, "keys: '*'"),
    ("sense.enable", {"keys": "commit"}, "keys: 'commit' is no list"),
    ("sense", {}, "capability: 'sense' is none"),
    ("SENSE.ENABLE", {}, "capability: 'SENSE.ENABLE' is none"),
    ("mothership.elevate", {"expires_in_s": HOUR_S}, "needs a pack and an end"),
    ("mothership.elevate", {"pack": "git"}, "needs a pack and an end"),
    ("pack.install", {"keys": ["git.log"]}, "a pack is installed whole"),
    ("pack.install", {"project": "apollo"}, "has no land"),
    ("sense.enable", {"expires_in_s": -1}, "expires: must be between"),
]


def test_a_grant_that_cannot_be_meant_is_refused(world, ana):
    """Patterns, unknown axes, an elevation without pack or end: refused where entered, with the place."""
    world.operator.add_project("apollo")
    before = world.count(GRANT), world.version()

    for capability, scope, text in UNMEANT:
        with pytest.raises(UsageError) as refused:
            world.operator.add_grant("ana", capability, **scope)
        assert text in str(refused.value)
    assert (world.count(GRANT), world.version()) == before


def test_an_elevation_has_a_pack_and_an_end(world, ana):
    """The sixth name is granted per pack and for a time."""
    made = world.operator.add_grant("ana", "mothership.elevate", pack="git", expires_in_s=HOUR_S)

    assert made.expires_at - made.created_at == int(HOUR_S * 1e6)


def test_grants_for_a_time_do_not_pile_up(world, ana):
    """A host that grants for an hour at every start leaves one row that holds, and none of those that ended."""
    made = [world.operator.ensure_grant("ana", "sense.enable", expires_in_s=HOUR_S) for _ in range(3)]
    assert len({one.id for one in made}) == 3
    world.change(GRANT, GRANT.c.principal == "ana", expires_at=1)

    last = world.operator.ensure_grant("ana", "sense.enable", expires_in_s=HOUR_S)

    assert ana.list_grants() == [last]


def test_sinks_keep_their_options_sealed(world):
    """Options are checked by the kind, lie encrypted, and are shown by name only."""
    path = str(world.folder / "hidden.jsonl")
    made = world.operator.add_sink("log", "jsonl", options={"path": path})

    assert (made.option_names, made.audience) == (("path",), "tenant")
    (row,) = [row for row in world.rows(SINK) if row.name == "log"]
    assert path.encode() not in bytes(row.options)
    assert path.encode() in Vault.load(world.settings).open(bytes(row.options))
    for name, kind, options, text in (
        ("log", "jsonl", {"path": f"{path}2"}, "'log' exists with another kind, audience or options"),
        ("log", "memory", {}, "'log' exists with another kind, audience or options"),
        ("new", "jsonl", {"path": "relative"}, "options.path"),
        ("new", "jsonl", {"path": path, "more": 1}, "options.more"),
        ("new", "telegraph", {}, "there is no sink kind 'telegraph'"),
    ):
        with pytest.raises(UsageError) as refused:
            world.operator.add_sink(name, kind, options=options)
        assert text in str(refused.value)
        assert path not in str(refused.value)


def test_an_audience_is_one_of_three(world):
    """The tenant, a principal or a project: nothing else says whose data a sink may hold."""
    for audience in ("", "everyone", "tenant:x", "principal", "principal:", "project:a b", "Tenant"):
        with pytest.raises(UsageError):
            world.operator.add_sink("log", "memory", audience=audience)
    assert [one.name for one in world.operator.list_sinks()] == ["inbox"]


def test_a_paused_sink_goes_on_where_it_stopped(world, ana):
    """Resuming makes what was held pending and due, and rings the lane; also a sink that was disabled."""
    for number, (state, due) in enumerate([("held", NEVER), ("held", NEVER), ("delivered", 1), ("retrying", 9)], 1):
        delivery(world, f"rte_{number}", state, number, due_at=due)
    assert world.operator.pause_sink("inbox").paused_at is not None
    world.change(SINK, SINK.c.name == "inbox", disabled_at=1, disabled_reason="410 Gone")
    world.forget()

    resumed = world.operator.resume_sink("inbox")

    assert (resumed.paused_at, resumed.disabled_at, resumed.disabled_reason) == (None, None, None)
    assert states(world) == {"rte_1": "pending", "rte_2": "pending", "rte_3": "delivered", "rte_4": "retrying"}
    assert all(row.due_at < NEVER for row in world.rows(DELIVERY))
    assert world.rung == ["t-red/inbox"]
    assert world.audited() == [("sink.resume", True, "operator", None)]
    with pytest.raises(NotFound):
        world.operator.pause_sink("none")


@pytest.mark.parametrize(
    ("capability", "pack", "keys", "told"),
    [
        ("sense.enable", "sortr", None, ("pack 'sortr' is not installed; the grant allows nothing until it is",)),
        ("sense.enable", "mail", ["new_itm"], ("'new_itm' is no trigger of mail; its triggers: ",)),
        ("verb.exec.read", "mail", ["new_item"], ("'new_item' is no command of mail; its commands: ",)),
        ("sense.enable", "mail", ["new_item"], ()),
        ("sense.enable", "mail", None, ()),
        ("sense.enable", "*", ["anything"], ()),
        ("pack.install", "later", None, ()),
    ],
)
def test_a_grant_may_come_before_its_pack_and_says_so(world, capability, pack, keys, told):
    """It stands all the same, also where it is given again; a list says nothing of it."""
    world.operator.install_pack(world.pack())

    made = [world.operator.add_grant("operator", capability, pack=pack, keys=keys) for _ in range(2)]

    assert made[0] == made[1]
    assert len(made[0].warnings) == len(told)
    assert [one for one, begins in zip(made[0].warnings, told, strict=True) if not one.startswith(begins)] == []
    assert {one.warnings for one in world.operator.list_grants()} == {()}


def test_a_grant_that_is_revoked_tells_when(world):
    """The answer has the moment; the row is gone."""
    made = world.operator.add_grant("operator", "sense.enable")

    gone = world.operator.revoke_grant(made.id)

    assert (made.revoked_at, gone.id) == (None, made.id)
    assert gone.revoked_at >= made.created_at


def test_a_sink_that_routes_name_is_not_removed(world):
    """The refusal names the routes; without them it goes."""
    world.operator.install_pack(world.pack())
    made = world.operator.add_route("mail", "*", "inbox")

    with pytest.raises(Conflict, match=f"'inbox' is named by {made.id}"):
        world.operator.remove_sink("inbox")
    world.operator.remove_route(made.id)
    assert world.operator.remove_sink("inbox").name == "inbox"
    assert world.operator.list_sinks() == []


def test_a_route_is_ones_own_or_made_by_an_operator(world, ana):
    """Whose it is and who made it are both recorded; nobody routes for another, or removes another's."""
    world.operator.install_pack(world.pack())
    own = ana.add_route("mail", "new_item", "inbox")
    given = world.operator.add_route("mail", "shared_item", "inbox", owner="ana")
    other = world.operator.add_route("mail", "new_item", "inbox")

    assert [(one.owner, one.created_by) for one in (own, given, other)] == [
        *[("ana", "ana"), ("ana", "operator"), ("operator", "operator")]
    ]
    assert {one.id for one in ana.list_routes()} == {own.id, given.id}
    assert {one.id for one in world.operator.list_routes()} == {own.id, given.id, other.id}
    with pytest.raises(Denied, match="requires an operator"):
        ana.add_route("mail", "new_item", "inbox", owner="operator")
    with pytest.raises(NotFound):
        ana.remove_route(other.id)
    assert ana.remove_route(given.id).id == given.id


def test_a_route_needs_what_it_names(world):
    """Pack, trigger, sink, project and owner are looked at; the triggers there are, are told."""
    world.operator.install_pack(world.pack())
    for call, text in (
        (lambda one: one.add_route("other", "*", "inbox"), "'other' is not installed"),
        (lambda one: one.add_route("mail", "nothing", "inbox"), "its triggers: counted_item, new_item"),
        (lambda one: one.add_route("mail", "*", "none"), "there is no 'none'"),
        (lambda one: one.add_route("mail", "*", "inbox", project="none"), "there is no 'none'"),
        (lambda one: one.add_route("mail", "*", "inbox", owner="none"), "there is no 'none'"),
        (lambda one: one.add_route("mail", "a*", "inbox"), "ref: 'a*'"),
        (lambda one: one.add_route("mail", "*", "inbox", options={"x": 1}), "a route takes none"),
        (lambda one: one.add_route("mail", "*", "inbox", expires_in_s=0), "expires"),
    ):
        with pytest.raises(UsageError) as refused:
            call(world.operator)
        assert text in str(refused.value)
    assert world.count(ROUTE) == 0


@pytest.mark.spec("4.3.personal")
@pytest.mark.parametrize(
    ("sink", "audience", "ref", "told"),
    [
        ("jsonl", "tenant", "new_item", "new_item: each is denied: privacy.land personal"),
        ("jsonl", "principal:operator", "new_item", "--audience principal:ana` and a route to it, or to an inbox)"),
        ("jsonl", "principal:ana", "new_item", None),
        ("workspace", "tenant", "*", "shared_item: each is denied: sink outside the project"),
        ("inbox", "tenant", "new_item", None),
        ("inbox", "tenant", "shared_item", None),
        ("jsonl", "tenant", "shared_item", "--audience project:NAME` and a route to it)"),
        ("jsonl", "project:apollo", "shared_item", None),
        ("jsonl", "principal:ana", "shared_item", None),
        ("webhook", "tenant", "new_item", None),
    ],
)
def test_a_route_whose_every_event_would_be_denied_says_so(world, ana, sink, audience, ref, told):
    """Told when it is added, with the way out, and when it is added again; a sink that is not known here is left."""
    operator = world.operator
    operator.install_pack(world.pack())
    operator.add_project("apollo")
    options: dict[str, dict[str, object]] = {
        "jsonl": {"path": str(world.settings.home / "log.jsonl")},
        "workspace": {"workspace": True},
    }
    if sink == "webhook":
        row = {"tenant": "t-red", "name": "to", "kind": "telegraph", "audience": "tenant", "created_at": 1}
        world.put(SINK, **row, options=operator.seal("{}"))
    else:
        operator.add_sink("to", sink.replace("workspace", "jsonl"), options=options.get(sink), audience=audience)

    made = [operator.add_route("mail", ref, "to", owner="ana") for _ in range(2)]

    assert made[0] == made[1]
    if told is None:
        assert made[0].warnings == ()
    else:
        assert told in made[0].warnings[0]
        assert made[0].warnings[0].startswith("sink 'to' will get no event of ")
    assert [one.warnings for one in operator.list_routes()] == [()]


def test_removing_a_route_cancels_what_waits_for_it(world, ana):
    """What is not final is cancelled with the reason; what is settled, in a sink's hands or another route's stays."""
    world.operator.install_pack(world.pack())
    route, other = ana.add_route("mail", "new_item", "inbox"), world.operator.add_route("mail", "new_item", "inbox")
    kinds = ["pending", "retrying", "held", "delivering", "delivered", "denied", "dead", "cancelled"]
    for number, state in enumerate(kinds, 1):
        delivery(world, route.id, state, number)
        delivery(world, other.id, state, number, owner="operator")

    ana.remove_route(route.id)

    by_event = {(row.route_id, bytes(row.event_id)[0]): (row.state, row.reason) for row in world.rows(DELIVERY)}
    mine = [by_event[route.id, number] for number in range(1, 9)]
    assert mine == [*[("cancelled", "route removed or expired")] * 3, *((state, None) for state in kinds[3:])]
    assert [by_event[other.id, number][0] for number in range(1, 9)] == kinds
    assert route.id not in {one.id for one in world.operator.list_routes()}


def test_a_control_plane_pack_is_routed_like_any_other(world, ana):
    """Its plane is asked at every attempt, of the route's owner; not when the route is entered."""
    world.operator.install_pack(world.pack({**SURFACE, "plane": "control"}))

    assert ana.add_route("mail", "new_item", "inbox").owner == "ana"
