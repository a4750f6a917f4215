"""The inbox as a session reads and keeps it: what it may see now, and what it has done with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from runtime_core.errors import Denied, NotFound, UsageError
from sense_worker.operator.inbox import InboxCounts
from sense_worker.storage.schema import PRINCIPAL, SESSION
from sinks.inbox_tables import counter, item
from tests.sinks.deliveries import delivery
from tests.sinks.inboxes import counted, recounted, write


@pytest.fixture
def database_url(sqlite_url):
    """SQLite alone: that tables and queries do the same on PostgreSQL is shown in tests/sinks/test_inbox_model.py."""
    return sqlite_url


CHANGES = ("see", "read", "unread", "archive", "unarchive", "wake")


def arrive(world, number, principal="ana", **fields):
    """Deliver an item as the ledger does; returns its id."""
    given = {"tenant": "t-red", "land": "personal", "subject": None, "accepted_at": number, **fields}
    write(world.database, delivery(number, principal=principal, **given))
    return f"{number:032x}.rte_1"


def change(one, name, ids):
    return getattr(one, f"{name}_items")(ids)


def events(listed):
    return [int(one.event_id, 16) for one in listed]


def test_an_item_goes_through_its_states(world, ana):
    """Each change leads where it says, from where it says; counters and lists follow in the same moment."""
    one = arrive(world, 1)
    tale = [
        (name, change(ana, name, [one])[0].state) for name in ("unread", "see", "see", "read", "see", "unread", "read")
    ]
    assert [state for _, state in tale] == ["unseen", "seen", "seen", "read", "read", "seen", "read"]
    assert [found.state for found in ana.archive_items([one])] == ["archived"]
    assert (ana.list_inbox(), events(ana.list_inbox(state="archived"))) == ([], [1])
    assert ana.inbox_counts() == InboxCounts(0, 0, 0, archived=1, snoozed=0, unread=0)
    assert [change(ana, name, [one])[0].state for name in ("read", "unarchive")] == ["archived", "read"]

    arrive(world, 2)
    assert events(ana.list_inbox()) == [2, 1]
    assert (events(ana.list_inbox(state="unread")), events(ana.list_inbox(state="read"))) == ([2], [1])
    assert ana.inbox_counts() == InboxCounts(1, 0, 1, 0, 0, unread=1)


def test_a_snoozed_item_comes_back_by_itself(world, ana):
    """It is away until its moment by the database's clock; whoever reads then finds it unseen, newest and counted."""
    first, second = arrive(world, 1), arrive(world, 2)
    ana.read_items([first])

    [snoozed] = ana.snooze_items([first], for_s=3600)
    assert (snoozed.state, events(ana.list_inbox()), ana.inbox_counts().snoozed) == ("snoozed", [2], 1)
    world.change(item, item.c.snooze_ends_at.is_not(None), snooze_ends_at=1)

    assert ana.inbox_counts() == InboxCounts(2, 0, 0, 0, 0, unread=2)
    [back, _] = ana.list_inbox()
    assert (back.id, back.state, back.snooze_ends_at) == (first, "unseen", None)
    assert events(ana.list_inbox(after=2)) == [1]  # who reads onward meets it again
    assert counted(world.database) == recounted(world.database)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    [snoozed] = ana.snooze_items([second], until=tomorrow)
    assert snoozed.snooze_ends_at == int(tomorrow.timestamp() * 1e6)
    assert [one.state for one in ana.wake_items([second])] == ["unseen"]


def test_a_change_of_what_is_due_finds_it_awake(world, ana):
    """An item whose snooze is over can be read without being listed first."""
    one = arrive(world, 1)
    ana.snooze_items([one], for_s=60)
    world.change(item, snooze_ends_at=1)

    assert [found.state for found in ana.read_items([one])] == ["read"]
    assert counted(world.database) == recounted(world.database)


def test_another_principals_item_is_not_found(world, ana):
    """Neither for a neighbour nor for an operator, nor from another tenant, nor beside one's own: nothing changes."""
    mine, bens = arrive(world, 1), arrive(world, 2, "ben")
    world.principal("ben")
    blue = world.tenant("t-blue")
    before = counted(world.database)
    for name in CHANGES:
        for other, ids in ((ana, [mine, bens]), (world.operator, [bens]), (blue, [mine]), (ana, ["f" * 32])):
            with pytest.raises(NotFound) as refused:
                change(other, name, ids)
            assert f"there is no {ids[-1]!r}" in str(refused.value)
    with pytest.raises(NotFound):
        ana.snooze_items([bens], for_s=5)
    assert counted(world.database) == before == recounted(world.database)


def test_what_a_change_is_told_is_checked(world, ana):
    """Odd ids, too many, an end that is past or missing or without a zone: one line that says the way out."""
    one = arrive(world, 1)
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    for ask, place in (
        (lambda: ana.read_items(["nonsense"]), "item"),
        (lambda: ana.read_items([f"{n:032x}" for n in range(1001)]), "item"),
        (lambda: ana.snooze_items([one], for_s=0), "snooze"),
        (lambda: ana.snooze_items([one], for_s=1e12), "snooze"),
        (lambda: ana.snooze_items([one]), "snooze"),
        (lambda: ana.snooze_items([one], for_s=5, until=moment), "snooze"),
        (lambda: ana.snooze_items([one], until=moment), "snooze"),
        (lambda: ana.snooze_items([one], until=moment.replace(tzinfo=None)), "snooze"),
        (lambda: ana.list_inbox(state="new"), "state"),
        (lambda: ana.list_inbox(limit=0), "limit"),
        (lambda: ana.list_inbox(after=-1), "after"),
        (lambda: ana.list_inbox(after=1, before=2), "before"),
        (lambda: world.operator.list_inbox(after=1), "after"),
    ):
        with pytest.raises(UsageError) as refused:
            ask()
        assert refused.value.place == place
    assert ana.read_items([]) == []


def test_the_items_of_an_event_are_changed_by_its_id(world, ana):
    """An event that came by two routes is two items; its id means both, and only one's own."""
    for route in ("rte_1", "rte_2"):
        arrive(world, 1, route_id=route)
    arrive(world, 1, "ben", route_id="rte_3")

    assert [one.route_id for one in ana.read_items([f"{1:032x}"])] == ["rte_2", "rte_1"]
    assert counted(world.database)["t-red", "ben", ""] == {"unseen": 1}


def test_a_list_is_collapsed_by_subject(world, ana):
    """The newest of each subject of a pack, with how many there are; the rest is found by the subject."""
    for number, (pack, subject) in enumerate(
        [("git", "a"), ("mail", "a"), ("git", "b"), ("git", "a"), ("git", None)], 1
    ):
        arrive(world, number, pack_id=pack, subject=subject)
    arrive(world, 6)

    collapsed = ana.list_inbox(collapse=True)
    assert [(int(one.event_id, 16), one.total) for one in collapsed] == [(6, 1), (5, 1), (4, 2), (3, 1), (2, 1)]
    assert events(ana.list_inbox(pack="git", subject="a")) == [4, 1]
    ana.archive_items([collapsed[2].id])
    assert [(int(one.event_id, 16), one.total) for one in ana.list_inbox(collapse=True, limit=3, before=5)] == [
        (3, 1),
        (2, 1),
        (1, 1),
    ]
    assert [(int(one.event_id, 16), one.total) for one in world.operator.list_inbox(collapse=True)][:2] == [
        (6, 1),
        (5, 1),
    ]


def test_the_same_subject_of_two_projects_stays_apart(world, ana):
    """A branch `main` of one project is not that of another."""
    for number, project in enumerate(("apollo", "gemini", "apollo"), 1):
        arrive(world, number, project=project, subject="main")

    assert [(one.project, one.total) for one in ana.list_inbox(collapse=True)] == [("apollo", 2), ("gemini", 1)]


def test_pages_onward_and_back_meet_every_item_once(world, ana):
    """A number is a cursor: `after` goes on to the newest, `before` back to the oldest."""
    for number in range(1, 8):
        arrive(world, number)

    def pages(way, at):
        while page := ana.list_inbox(limit=3, **{way: at}):
            yield events(page)
            at = page[-1].number

    assert list(pages("after", 0)) == [[1, 2, 3], [4, 5, 6], [7]]
    assert list(pages("before", 10**6)) == [[7, 6, 5], [4, 3, 2], [1]]


@pytest.mark.spec("9.2.3")
def test_what_is_shared_in_a_project_is_for_who_is_a_member_now(world, ana):
    """Land brain: seen by its principal while it is a member of the project, in every view and count, and again after.

    What is personal stays, also where its activation named the project.
    """
    for project in ("apollo", "gemini"):
        world.operator.add_project(project)
    world.operator.add_member("apollo", "ana")
    shared = arrive(world, 1, land="brain", project="apollo")
    arrive(world, 2, project="apollo")
    arrive(world, 3, "ben", land="brain", project="apollo")
    elsewhere = arrive(world, 4, land="brain", project="gemini")

    assert (events(ana.list_inbox()), ana.inbox_counts().unseen) == ([2, 1], 2)
    assert (events(ana.list_inbox(project="apollo")), ana.inbox_counts(project="apollo").unseen) == ([1], 1)
    with pytest.raises(NotFound):
        ana.read_items([elsewhere])

    world.operator.remove_member("apollo", "ana")
    assert (events(ana.list_inbox()), ana.inbox_counts().unseen) == ([2], 1)
    with pytest.raises(NotFound):
        ana.archive_items([shared])
    for read in (ana.list_inbox, ana.inbox_counts):
        for project in ("apollo", "gemini", "nowhere"):
            with pytest.raises(Denied, match="denied: not a member of the project"):
                read(project=project)

    world.operator.add_member("apollo", "ana")
    assert events(ana.list_inbox(project="apollo")) == [1]


def test_an_operator_sees_the_tenant_and_keeps_its_own(world, ana):
    """All items or a principal's or a project's, whoever is a member; and no other tenant's."""
    world.operator.add_project("apollo")
    world.principal("ben")
    arrive(world, 1, land="brain", project="apollo")
    arrive(world, 2, "ben", land="brain", project="apollo")
    own = arrive(world, 3, "operator")
    arrive(world, 4, tenant="t-blue")
    world.tenant("t-blue")

    one = world.operator
    assert (events(one.list_inbox()), one.inbox_counts().unseen) == ([3, 2, 1], 3)
    assert (events(one.list_inbox(project="apollo")), one.inbox_counts(project="apollo").unseen) == ([2, 1], 2)
    assert (events(one.list_inbox(principal="ana")), one.inbox_counts(principal="ana").unseen) == ([1], 1)
    assert [found.state for found in one.see_items([own])] == ["seen"]
    for wrong in ({"principal": "nobody"}, {"project": "nowhere"}):
        with pytest.raises(NotFound):
            one.list_inbox(**wrong)
        with pytest.raises(NotFound):
            one.inbox_counts(**wrong)
    for read in (ana.list_inbox, ana.inbox_counts):
        with pytest.raises(Denied, match="requires an operator"):
            read(principal="ben")


@pytest.mark.parametrize(
    ("table", "change_of", "text"),
    [
        (PRINCIPAL, {"disabled_at": 1}, "denied: principal disabled"),
        (SESSION, {"revoked_at": 1}, "denied: session revoked"),
        (SESSION, {"expires_at": 1}, "denied: session expired"),
    ],
    ids=["disabled", "revoked", "expired"],
)
def test_who_no_longer_stands_sees_and_changes_nothing(world, ana, table, change_of, text):
    """From the next call on, whatever it asks."""
    one = arrive(world, 1)
    assert events(ana.list_inbox()) == [1]
    name = table.c.id if table is PRINCIPAL else table.c.principal
    world.change(table, name == "ana", **change_of)

    for call in (
        ana.list_inbox,
        ana.inbox_counts,
        lambda: ana.see_items([one]),
        lambda: ana.snooze_items([one], for_s=9),
    ):
        with pytest.raises(Denied, match=text):
            call()
    assert counted(world.database) == {("t-red", "ana", ""): {"unseen": 1}}


def test_old_items_go_when_an_operator_says_so(world, ana):
    """Archived ones by default, of all principals of its tenant, counted out in the same transaction and audited."""
    for number, who in enumerate(("ana", "ana", "operator"), 1):
        arrive(world, number, who)
    ana.archive_items([f"{1:032x}"])
    world.operator.archive_items([f"{3:032x}"])
    arrive(world, 4, tenant="t-blue")
    world.forget()

    assert world.operator.prune_inbox(older_than_s=60) == 2
    assert world.operator.prune_inbox(older_than_s=60) == 0
    assert (events(ana.list_inbox()), ana.inbox_counts().archived) == ([2], 0)
    assert counted(world.database) == recounted(world.database)
    assert world.operator.prune_inbox(older_than_s=3e9, state="open") == 0  # they are of 1970
    assert world.audited() == [("inbox.prune", True, "operator", None)]
    with pytest.raises(Denied, match="requires an operator"):
        ana.prune_inbox(older_than_s=60)
    assert world.count(item) == 2


def test_what_the_release_before_writes_is_taken_in_by_the_next_reader(world, ana):
    """In a rolling upgrade it inserts items without a number and counts nothing: they are numbered after the others."""
    arrive(world, 1)
    old = {"tenant": "t-red", "principal": "ana", "publisher": "ana", "pack_id": "git", "ref": "commit.created"}
    more = {"land": "personal", "occurred_at": "2026-06-01T12:00:00Z", "accepted_at": 9, "body": b"{}"}
    world.put(item, event_id=b"\2" * 16, route_id="rte_1", **old, **more)

    assert [one.number for one in ana.list_inbox()] == [2, 1]
    assert counted(world.database) == recounted(world.database) == {("t-red", "ana", ""): {"unseen": 2}}
    with world.database.read() as connection:
        assert connection.scalar(sa.select(sa.func.max(counter.c.number))) == 2
