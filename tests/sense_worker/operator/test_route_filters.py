"""Routes with a filter: kept as given, tried on recorded events before they are saved (issue 5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from runtime_core.errors import Denied, NotFound, UsageError
from sense_worker import filters
from sense_worker.storage.schema import DELIVERY, EVENT, ROUTE

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no statement of its own decides; the others run on PostgreSQL too."""
MAIN = 'data.branch == "main"'


@pytest.fixture
def mail(world, ana):
    """The tenant with the pack `mail`, and ana, activated and granted."""
    world.operator.install_pack(world.pack())
    world.operator.add_grant("ana", "sense.enable", pack="mail")
    return world


def event(world, number: int, activation, data: Any, ref: str = "new_item", publisher: str = "ana", **more: Any) -> str:
    """Record an event as intake would; returns its id."""
    body = json.dumps({"ref": ref, "data": data}).encode()
    facts = {"pack_id": "mail", "ref": ref, "activation_id": activation.id, "publisher": publisher, "digest": "d"}
    wire = {"message_id": str(number), "occurred_at": "2026-06-01T12:00:00Z", "stream_id": f"{number}-0", "body": body}
    row = facts | wire | {"signed_at": 1, "accepted_at": number, "generation": 1, "repeats": 0, "tenant": "t-red"}
    world.put(EVENT, id=bytes([number]) * 16, body_digest=b"d" * 32, **(row | more))
    return bytes([number]).hex() * 16


def tried(rows: Any) -> list[tuple[int, bool, str | None]]:
    """Return the number of each event with what was answered."""
    return [(row.accepted_at, row.matches, row.reason) for row in rows]


@on_sqlite
def test_a_filter_is_kept_with_its_route(mail, ana):
    """As it was written, with the route's end, in the listing too; one that is none makes no route."""
    made = ana.add_route("mail", "new_item", "inbox", filter=MAIN, expires_in_s=3600)

    assert (made.filter, made.expires_at is None) == (MAIN, False)
    assert [(one.id, one.filter, one.expires_at) for one in ana.list_routes()] == [(made.id, MAIN, made.expires_at)]
    with pytest.raises(UsageError) as refused:
        ana.add_route("mail", "new_item", "inbox", filter="data.branch = 1")
    assert refused.value.place == "filter, column 13"
    assert len(ana.list_routes()) == 1
    assert ana.remove_route(made.id).filter == MAIN


def test_an_equal_route_has_an_equal_filter(mail, ana):
    """The same filter returns the route that stands; another, or none, is another route."""
    first = ana.add_route("mail", "new_item", "inbox", filter=MAIN)
    bare = ana.add_route("mail", "new_item", "inbox")
    version = mail.version()

    assert ana.add_route("mail", "new_item", "inbox", filter=MAIN).id == first.id
    assert ana.ensure_route("mail", "new_item", "inbox").id == bare.id
    assert mail.version() == version
    other = ana.add_route("mail", "new_item", "inbox", filter='data.branch == "dev"')
    assert len({first.id, bare.id, other.id}) == len(ana.list_routes()) == 3


@on_sqlite
def test_a_filter_needs_the_library(mail, ana, monkeypatch):
    """Where it has no build, the route is refused with the way out, and nothing is made."""
    monkeypatch.setattr(filters, "_library", lambda: None)
    filters._environment.cache_clear()

    with pytest.raises(UsageError, match="filters need cel-expr-python, which is not installed here"):
        ana.add_route("mail", "new_item", "inbox", filter=MAIN)
    assert mail.count(ROUTE) == 0
    assert ana.add_route("mail", "new_item", "inbox").filter is None


def test_a_route_is_tried_on_recorded_events(mail, ana):
    """The newest first: which it would match, and why not the others. Nothing is written."""
    activation = ana.activate("mail")
    event(mail, 1, activation, {"branch": "main"})
    event(mail, 2, activation, {"branch": "dev"})
    event(mail, 3, activation, {"n": 1})
    event(mail, 4, activation, {"branch": "main"}, ref="counted_item")
    event(mail, 5, activation, {"branch": "main"}, body=json.dumps({"ref": "r", "data": {"x": "x" * 70_000}}).encode())
    route = ana.add_route("mail", "new_item", "inbox", filter=MAIN)
    before = mail.rows(EVENT), mail.rows(DELIVERY), mail.version()

    expected = [
        (5, False, "filter error: a body of more than 65536 bytes"),
        (3, False, "filter error: no such key: branch"),
        (2, False, "filter false"),
        (1, True, None),
    ]
    assert tried(ana.try_route(route.id)) == expected
    assert tried(ana.try_new_route("mail", "new_item", filter=MAIN)) == expected
    assert tried(ana.try_route(route.id, limit=2)) == expected[:2]
    assert tried(ana.try_route(route.id, filter='data.branch == "dev"'))[2:] == [
        (2, True, None),
        (1, False, "filter false"),
    ]
    assert [one.matches for one in ana.try_new_route("mail", "*", filter="has(data.branch)")][1:] == [
        True,
        False,
        True,
        True,
    ]
    assert tried(ana.try_new_route("mail", "counted_item")) == [(4, True, None)]
    assert (mail.rows(EVENT), mail.rows(DELIVERY), mail.version()) == before


@on_sqlite
def test_it_is_tried_as_its_owner(mail, ana):
    """Land, project, membership and grant are those of the owner, and its filter sees nothing it may not have."""
    ben = mail.principal("ben")
    mail.operator.add_project("apollo")
    for name in ("ana", "ben"):
        mail.operator.add_member("apollo", name)
    inside, bare = ana.activate("mail", project="apollo"), ana.activate("mail")
    event(mail, 1, bare, {"branch": "main"})
    event(mail, 2, inside, {"branch": "main"}, ref="shared_item", project="apollo")
    event(mail, 3, bare, {"branch": "main"}, ref="shared_item")
    one = mail.operator

    def of_ben(**more: Any) -> list[tuple[int, bool, str | None]]:
        return tried(one.try_new_route("mail", "*", owner="ben", filter=MAIN, **more))

    no_project, personal = "denied: privacy.land brain requires project_id", "denied: privacy.land personal"
    missing = "denied: missing sense.enable"
    assert of_ben() == [(3, False, no_project), (2, False, missing), (1, False, personal)]
    one.add_grant("ben", "sense.enable", pack="mail")
    assert of_ben()[1] == (2, True, None)
    assert of_ben(project="apollo") == [(3, False, "another project"), (2, True, None), (1, False, "another project")]
    assert tried(ben.try_new_route("mail", "*", filter=MAIN)) == []
    route = one.add_route("mail", "*", "inbox", owner="ana", filter=MAIN)
    assert [row.matches for row in one.try_route(route.id)] == [True, True, True]
    one.remove_pack("mail")
    assert of_ben()[0] == (3, False, "pack not installed: mail")


def test_one_tries_on_what_one_may_know_of(mail, ana):
    """Anyone on what one published or had routed, an operator on the tenant's, nobody on another tenant's."""
    ben = mail.principal("ben")
    mine = ana.activate("mail")
    event(mail, 1, mine, {})
    event(mail, 2, mine, {}, tenant="t-blue")
    key = bytes.fromhex(event(mail, 3, ben.activate("mail"), {}, publisher="ben"))
    row = {"tenant": "t-red", "lane": "t-red/inbox", "owner": "ana", "state": "denied", "due_at": 1, "created_at": 1}
    mail.put(DELIVERY, event_id=key, route_id="rte_1", alone=False, attempt=1, crashes=0, **row)

    def seen(by: Any) -> list[int]:
        return [one.accepted_at for one in by.try_new_route("mail", "new_item")]

    assert (seen(ana), seen(ben), seen(mail.operator)) == ([3, 1], [3], [3, 1])


@on_sqlite
def test_who_may_try_which_route(mail, ana):
    """One's own, an operator anyone's in its tenant; a filter that is none and an unknown route are told as such."""
    ben = mail.principal("ben")
    route = ana.add_route("mail", "new_item", "inbox")
    blue = mail.tenant("t-blue")

    assert mail.operator.try_route(route.id) == []
    for by in (ben, blue):
        with pytest.raises(NotFound, match="there is no"):
            by.try_route(route.id)
    with pytest.raises(Denied, match="requires an operator"):
        ben.try_new_route("mail", "new_item", owner="ana")
    with pytest.raises(NotFound, match="principal"):
        mail.operator.try_new_route("mail", "new_item", owner="zoe")
    with pytest.raises(UsageError, match="column 1"):
        ana.try_new_route("mail", "new_item", filter="branch == 1")
    with pytest.raises(UsageError, match="limit"):
        ana.try_route(route.id, limit=0)
    mail.change(ROUTE, ROUTE.c.id == route.id, removed_at=sa.text("1"))
    with pytest.raises(NotFound):
        ana.try_route(route.id)
