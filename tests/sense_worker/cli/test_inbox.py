"""The inbox at a terminal and as JSON."""

from __future__ import annotations

import pytest

from sense_worker.storage.engine import Database
from tests.sinks.deliveries import delivery
from tests.sinks.inboxes import write

FIELDS = {
    "event_id",
    "route_id",
    "principal",
    "project",
    "pack_id",
    "ref",
    "subject",
    "occurred_at",
    "accepted_at",
    "body",
}
"""Of the first version of this contract."""


@pytest.fixture
def cli(mail):
    """Three items of the operator, two of them about one subject, and one of ana."""
    database = Database(f"sqlite:///{mail.home}/sense.db")
    shared = {"tenant": "default", "land": "personal", "project": None, "ref": "new_item", "pack_id": "mail"}
    for number, (who, subject) in enumerate((("operator", "a"), ("operator", "b"), ("operator", "a"), ("ana", "a")), 1):
        write(
            database,
            delivery(number, principal=who, subject=subject, accepted_at=1_767_225_600_000_000 + number, **shared),
        )
    database.dispose()
    return mail


def ids(number):
    return f"{number:032x}"


def test_a_list_keeps_its_fields_and_gains_some(cli):
    """Whoever reads the JSON of before reads on; a state, a number and the id are new."""
    [one] = cli.json("inbox", "list", "--principal", "ana")["items"]

    assert set(one) == FIELDS | {"id", "number", "state", "snooze_ends_at", "total"}
    assert (one["id"], one["state"], one["number"]) == (f"{ids(4)}.rte_1", "unseen", 1)


def test_items_are_kept_and_counted(cli):
    """See, read, archive and their ways back print the items as they are now; counts follow."""
    assert [one["state"] for one in cli.json("inbox", "see", ids(1), f"{ids(2)}.rte_1")["items"]] == ["seen", "seen"]
    for command, state in (("read", "read"), ("unread", "seen"), ("archive", "archived"), ("unarchive", "read")):
        assert [one["state"] for one in cli.json("inbox", command, ids(1))["items"]] == [state]
    counts = cli.json("inbox", "counts", "--principal", "operator")
    assert {name: counts[name] for name in ("unseen", "seen", "read", "unread")} == {
        "unseen": 1,
        "seen": 1,
        "read": 1,
        "unread": 2,
    }
    assert cli.ids("inbox", "list", "--state", "read", field="event_id") == [ids(1)]
    assert cli("inbox", "counts").out.splitlines()[0].split() == ["unseen", "2"]


def test_a_snooze_ends_at_a_moment_that_is_shown(cli):
    """For a time or until a moment; waking ends it."""
    row = cli.json("inbox", "snooze", ids(1), "--until", "2099-01-01t00:00:00+01:00")["items"][0]
    assert (row["state"], row["snooze_ends_at"]) == ("snoozed", "2098-12-31T23:00:00.000000Z")
    assert "  until 2098-12-31 23:00:00" in cli("inbox", "list", "--state", "snoozed").out.splitlines()
    assert cli.json("inbox", "snooze", ids(1), "--for", "12h")["items"][0]["snooze_ends_at"] < "2090"
    assert cli.json("inbox", "wake", ids(1))["items"][0]["state"] == "unseen"


def test_a_list_is_collapsed_and_paged(cli):
    """One card a subject says how many there are; a number goes on from there."""
    own = ("inbox", "list", "--principal", "operator")
    assert cli.ids(*own, "--collapse", field="total") == [2, 1]
    assert cli(*own, "--collapse").out.splitlines()[:3] == [
        "unseen  new_item  operator  a  2026-01-01 00:00:00",
        f"  {ids(3)}",
        "  the newest of 2 about this subject",
    ]
    assert cli.ids(*own, "--subject", "a", "--pack", "mail", field="event_id") == [ids(3), ids(1)]
    assert cli.ids(*own, "--after", "1", "--limit", "1", field="event_id") == [ids(2)]
    assert cli.ids(*own, "--before", "3", field="event_id") == [ids(2), ids(1)]


def test_old_items_are_removed_by_an_operator(cli, monkeypatch):
    """Archived ones, unless another state is named; for anybody else it is denied."""
    cli.json("inbox", "archive", ids(1))
    assert cli.json("inbox", "prune", "--older-than", "1s")["removed"] == 1
    assert cli.json("inbox", "prune", "--older-than", "1s", "--state", "open")["removed"] == 3
    monkeypatch.setenv("SENSE_SESSION_FILE", cli.json("session", "create", "ana")["file"])
    assert cli("inbox", "prune", "--older-than", "1s").code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("read", "nonsense"), 2, "item: 'nonsense' is no id of an item (see `sense-worker inbox list`)"),
        (("read", "f" * 32), 1, f"there is no '{'f' * 32}'"),
        (("read", ids(4)), 1, f"there is no '{ids(4)}'"),
        (("snooze", ids(1)), 2, "has no end, or two (give --for DURATION or --until MOMENT)"),
        (("snooze", ids(1), "--for", "1h", "--until", "2099-01-01T00:00:00Z"), 2, "has no end, or two"),
        (("snooze", ids(1), "--for", "soon"), 2, "--for: 'soon' is no duration"),
        (("snooze", ids(1), "--until", "tomorrow"), 2, "--until: 'tomorrow' is no moment"),
        (("snooze", ids(1), "--until", "2016-12-31T23:59:60Z"), 2, "--until: '2016-12-31T23:59:60Z' is no moment"),
        (
            ("snooze", ids(1), "--until", "2020-01-01T00:00:00Z"),
            2,
            "snooze: must be between a moment and a hundred years",
        ),
        (("list", "--state", "new"), 2, "state: 'new' is none (one of open, unread, unseen"),
        (("list", "--after", "1"), 2, "after: numbers are a principal's own (name whose)"),
        (("list", "--project", "nowhere"), 1, "there is no 'nowhere'"),
        (("prune", "--older-than", "x"), 2, "--older-than: 'x' is no duration"),
    ],
)
def test_a_mistake_is_one_line_with_its_way_out(cli, arguments, code, said):
    """Place, reason, way out; nothing is changed."""
    done = cli("inbox", *arguments)

    assert (done.code, done.out, len(done.err.splitlines())) == (code, "", 1), done.err
    assert said in done.err
    assert cli.json("inbox", "counts")["unseen"] == 4
