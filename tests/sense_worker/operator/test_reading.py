"""Reading: an operator sees the tenant's rows, everybody else their own."""

from __future__ import annotations

import pytest

from runtime_core.errors import Denied, NotFound, UsageError
from runtime_core.event import delivery_id
from sense_worker.audit_check import check_audit
from sense_worker.operator.views import LaneView
from sense_worker.storage.schema import ACTIVATION, DEAD_ENTRY, DELIVERY, EVENT
from sinks import inbox_tables


def event(world, number: int, publisher: str = "ana", tenant: str = "t-red") -> bytes:
    """Put an event into the ledger; returns its id."""
    key = bytes([number]) * 16
    facts = {"pack_id": "mail", "ref": "new_item", "activation_id": "act_1", "publisher": publisher, "digest": "d"}
    wire = {"message_id": "e-1", "occurred_at": "2026-06-01T12:00:00Z", "stream_id": f"{number}-0", "subject": "s"}
    moments = {"signed_at": 1, "accepted_at": number, "generation": 1, "repeats": 0}
    world.put(EVENT, id=key, tenant=tenant, body=b"{}", body_digest=b"d" * 32, **facts, **wire, **moments)
    return key


def delivery(
    world,
    key: bytes,
    owner: str,
    state: str = "delivered",
    tenant: str = "t-red",
    sink: str = "log",
    reason: str | None = None,
) -> str:
    """Put a delivery of an event into the ledger; returns its id."""
    route = f"rte_{owner}"
    row = {"event_id": key, "route_id": route, "tenant": tenant, "lane": f"{tenant}/{sink}", "owner": owner}
    facts = {"state": state, "reason": reason, "alone": False, "due_at": 1, "created_at": key[0]}
    world.put(DELIVERY, **row, **facts, attempt=1, crashes=0)
    return delivery_id(key, route)


def dead(world, number: int, activation: str | None, tenant: str = "t-red") -> str:
    """Put a refused entry into the ledger; returns its id."""
    row = {"stream": f"sense:{tenant}:events", "stream_id": f"{number}-0", "tenant": tenant, "at": number}
    raw = {"raw": "cmF3", "raw_length": 3, "raw_digest": "d", "detail": "because"}
    world.put(DEAD_ENTRY, **row, **raw, word="stale", activation_id=activation)
    return f"{number}-0"


def test_deliveries_are_the_owners(world, ana):
    """The newest first; narrowed by state, event and route; another tenant's never."""
    first, second, third = (event(world, number) for number in (1, 2, 3))
    event(world, 4, tenant="t-blue")
    mine = [delivery(world, key, "ana", state) for key, state in ((first, "delivered"), (second, "denied"))]
    theirs = delivery(world, third, "operator", "held")
    delivery(world, bytes([4]) * 16, "ana", tenant="t-blue")

    assert [one.id for one in world.operator.list_deliveries()] == [theirs, mine[1], mine[0]]
    assert [one.id for one in ana.list_deliveries()] == [mine[1], mine[0]]
    assert [one.id for one in ana.list_deliveries(state="denied")] == [mine[1]]
    assert [one.id for one in ana.list_deliveries(event=first.hex())] == [mine[0]]
    assert [one.id for one in world.operator.list_deliveries(route="rte_operator")] == [theirs]
    assert [one.id for one in world.operator.list_deliveries(limit=1)] == [theirs]
    shown = ana.show_delivery(mine[0])
    assert (shown.sink, shown.pack_id, shown.ref, shown.subject, shown.state) == (
        "log",
        "mail",
        "new_item",
        "s",
        "delivered",
    )
    assert world.operator.show_delivery(theirs).due_at == 1
    with pytest.raises(NotFound):
        ana.show_delivery(theirs)


def test_a_question_that_cannot_be_meant_is_refused(world):
    """A state, an id or a limit that is none: one line, with the place."""
    one = world.operator
    for ask, place in (
        (lambda: one.list_deliveries(state="done"), "state"),
        (lambda: one.list_deliveries(event="zz"), "event"),
        (lambda: one.list_deliveries(event="01" * 15), "event"),
        (lambda: one.list_deliveries(limit=0), "limit"),
        (lambda: one.list_inbox(limit=-1), "limit"),
        (lambda: one.list_dead(limit=10_001), "limit"),
        (lambda: one.show_delivery("zz.rte_1"), "delivery"),
        (lambda: one.list_deliveries(sink="none"), "sink"),
        (lambda: one.list_deliveries(sink=5), "sink"),
        (lambda: one.list_deliveries(event=b"01"), "event"),
        (lambda: one.list_deliveries(state=["dead"]), "state"),
        (lambda: one.list_deliveries(limit="5"), "limit"),
        (lambda: one.list_dead(limit=True), "limit"),
        (lambda: one.list_dead(limit=1.5), "limit"),
        (lambda: one.list_inbox(limit=None), "limit"),
        (lambda: one.list_inbox(principal="ana", after=True), "after"),
        (lambda: one.list_inbox(principal="ana", before="9"), "before"),
        (lambda: one.list_inbox(principal="ana", after=1.0), "after"),
        (lambda: one.list_inbox(state=["read"]), "state"),
        (lambda: one.list_inbox(subject=5), "subject"),
        (lambda: one.inbox_counts(project=5), "project"),
        (lambda: one.prune_inbox(older_than_s="5"), "older-than"),
        (lambda: one.snooze_items(["01" * 16], for_s=True), "snooze"),
        (lambda: one.read_items([5]), "item"),
        (lambda: one.try_new_route("mail", "*", limit="5"), "limit"),
        (lambda: one.rotate_sink("inbox", overlap_s="1h"), "overlap"),
    ):
        with pytest.raises(UsageError) as refused:
            ask()
        assert refused.value.place == place


def test_deliveries_of_a_sink(world, ana):
    """Those of its lane; a sink that was removed is still found by what went there; one without any has to exist."""
    world.operator.add_sink("quiet", "memory")
    key = event(world, 1)
    delivery(world, key, "ana", "delivered", sink="log")
    delivery(world, key, "operator", "denied", sink="inbox")

    assert [one.sink for one in world.operator.list_deliveries(sink="log")] == ["log"]
    assert [one.owner for one in ana.list_deliveries(sink="log")] == ["ana"]
    assert (ana.list_deliveries(sink="inbox"), world.operator.list_deliveries(sink="quiet")) == ([], [])


def test_the_inbox_is_the_principals(world, ana):
    """One's own items; an operator names whose, and nobody else may name another."""
    for number, (tenant, principal) in enumerate(
        [("t-red", "ana"), ("t-red", "operator"), ("t-blue", "ana"), ("t-red", "ana")], 1
    ):
        who = {"tenant": tenant, "principal": principal, "publisher": "ana", "pack_id": "mail", "ref": "new_item"}
        what = {"land": "personal", "occurred_at": "2026-06-01T12:00:00Z", "accepted_at": number, "body": b'{"n":1}'}
        world.put(inbox_tables.item, event_id=bytes([number]) * 16, route_id="rte_1", **who, **what)

    assert [one.accepted_at for one in ana.list_inbox()] == [4, 1]
    assert [one.accepted_at for one in ana.list_inbox(principal="ana", limit=1)] == [4]
    assert [one.accepted_at for one in world.operator.list_inbox()] == [4, 2, 1]
    assert [one.body for one in world.operator.list_inbox(principal="operator")] == ['{"n":1}']
    with pytest.raises(Denied, match="requires an operator"):
        ana.list_inbox(principal="operator")


def test_refused_entries_are_of_the_activations_that_announced_them(world, ana):
    """An operator sees the tenant's, a principal those under its own activations; raw fields only where shown."""
    world.operator.install_pack(world.pack())
    own = ana.activate("mail").id
    mine, unknown = dead(world, 1, own), dead(world, 2, None)
    others = dead(world, 3, world.operator.activate("mail").id)
    dead(world, 4, own, tenant="t-blue")

    assert [one.stream_id for one in world.operator.list_dead()] == [others, unknown, mine]
    assert [(one.stream_id, one.raw) for one in ana.list_dead()] == [(mine, "")]
    assert (ana.show_dead(mine).raw, ana.show_dead(mine).word) == ("cmF3", "stale")
    assert world.operator.show_dead(unknown).raw == "cmF3"
    for stranger in (others, unknown, "9-9"):
        with pytest.raises(NotFound):
            ana.show_dead(stranger)
    assert world.count(ACTIVATION) == 2


@pytest.mark.case("C59")
def test_the_same_id_in_two_tenants_is_two_events(world, ana):
    """Each tenant reads its own event of the id `e-1`, and learns nothing of the neighbour's."""
    blue = world.tenant("t-blue")
    red_event, blue_event = event(world, 1), event(world, 2, tenant="t-blue")
    red_delivery = delivery(world, red_event, "ana")
    blue_delivery = delivery(world, blue_event, "operator", tenant="t-blue")

    assert [one.id for one in world.operator.list_deliveries()] == [red_delivery]
    assert [one.id for one in blue.list_deliveries()] == [blue_delivery]
    for other, own in ((blue_event, world.operator), (red_event, blue)):
        assert own.list_deliveries(event=other.hex()) == []
        with pytest.raises(NotFound) as theirs:
            own.explain(other.hex())
        with pytest.raises(NotFound) as nobodys:
            own.explain("ff" * 16)
        assert str(theirs.value).replace(other.hex(), "ID") == str(nobodys.value).replace("ff" * 16, "ID")


def test_explain_tells_an_owner_its_own_route(world, ana):
    """An operator is told every route of an event, an owner its own."""
    key = event(world, 1, publisher="operator")
    for owner in ("ana", "operator"):
        delivery(world, key, owner)

    assert {one.owner for one in world.operator.explain(key.hex()).routes} == {"ana", "operator"}
    assert {one.owner for one in ana.explain(key.hex()).routes} == {"ana"}


def test_status_counts_what_one_may_see(world, ana):
    """By state and by lane: the tenant's to an operator, one's own to everybody else."""
    keys = [event(world, 1), event(world, 2, publisher="operator")]
    delivery(world, keys[0], "ana", "delivered")
    delivery(world, keys[1], "ana", "denied", sink="inbox")
    delivery(world, keys[1], "operator", "delivered")
    dead(world, 3, None)

    told = world.operator.status()
    assert (told.tenant, told.events, told.deliveries) == ("t-red", 2, {"delivered": 2, "denied": 1})
    assert told.lanes == (LaneView("inbox", {"denied": 1}), LaneView("log", {"delivered": 2}))
    assert world.operator.status().lanes[1].held_for == {}
    assert (told.dead_entries, told.waiting, told.pending) == ({"stale": 1}, None, None)
    own = ana.status()
    assert (own.events, own.deliveries, own.dead_entries) == (1, {"delivered": 1, "denied": 1}, {})


def test_status_tells_why_deliveries_are_held(world, ana):
    """How many wait for which reason, in each lane."""
    keys = [event(world, number) for number in range(1, 4)]
    for key, reason in zip(keys, ("sink paused", "sink paused", "workspace not served by this worker"), strict=True):
        delivery(world, key, "ana", "held", reason=reason)
    delivery(world, keys[0], "operator", "dead", reason="rejected")

    (lane,) = world.operator.status().lanes

    assert (lane.states, lane.held_for) == (
        {"held": 3, "dead": 1},
        {"sink paused": 2, "workspace not served by this worker": 1},
    )


def test_grants_and_sessions_are_ones_own(world, ana):
    """Everybody may look at what is theirs, and an operator at all of it."""
    world.operator.add_grant("ana", "sense.enable")

    assert {one.principal for one in world.operator.list_grants()} == {"ana", "operator"}
    assert {one.principal for one in ana.list_grants()} == {one.principal for one in ana.list_sessions()} == {"ana"}
    assert [one.id for one in ana.list_principals()] == ["ana"]
    with pytest.raises(Denied):
        ana.list_grants("operator")


def test_an_operators_change_is_anchored_with_it(world):
    """Without any worker, an audit that is emptied after a change does not verify."""
    world.operator.add_principal("eve")
    world.settings.audit_file.write_bytes(b"")

    assert check_audit(world.settings).ok is False
