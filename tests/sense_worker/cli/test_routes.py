"""`route …` with a filter and `deliveries replay`, as a person and as a program read them."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from sense_worker.storage.engine import Database
from sense_worker.storage.schema import DELIVERY, EVENT

AT = 1_767_225_600_000_000
MAIN = 'data.branch == "main"'


@pytest.fixture
def ledger(mail):
    """Three recorded events of the operator's: of main, of dev, and one without a branch."""
    activation = mail.json("activate", "mail")["id"]
    mail.json("grant", "add", "operator", "sense.enable", "--pack", "mail")
    facts = {"tenant": "default", "pack_id": "mail", "ref": "new_item", "publisher": "operator", "digest": "d"}
    rest = {"signed_at": AT, "generation": 1, "repeats": 0, "body_digest": b"d" * 32, "activation_id": activation}
    database = Database(f"sqlite:///{mail.home}/sense.db")
    with database.write() as connection:
        for number, data in enumerate(({"branch": "main"}, {"branch": "dev"}, {"n": 1})):
            body = json.dumps({"ref": "new_item", "data": data}).encode()
            wire = {"message_id": f"m-{number}", "stream_id": f"{number}-0", "occurred_at": "2026-01-01T00:00:00Z"}
            moment = {"accepted_at": AT + number * 1_000_000, "subject": f"s{number}"}
            connection.execute(
                sa.insert(EVENT).values(id=bytes([number]) * 16, body=body, **facts, **rest, **wire, **moment)
            )
    database.dispose()
    return mail


def test_a_route_with_a_filter(mail):
    """Added, listed with its filter and end, in JSON too; adding an equal one again returns it."""
    made = mail.json("route", "add", "mail", "new_item", "inbox", "--filter", MAIN)
    ends = mail.json("route", "add", "mail", "new_item", "inbox", "--filter", "true", "--expires", "1h")

    assert (made["filter"], made["expires_at"]) == (MAIN, None)
    assert mail.json("route", "add", "mail", "new_item", "inbox", "--filter", MAIN)["id"] == made["id"]
    assert mail.json("route", "add", "mail", "new_item", "inbox")["filter"] is None
    items = mail.json("route", "list")["items"]
    assert {one["id"]: one["filter"] for one in items}.items() >= {made["id"]: MAIN, ends["id"]: "true"}.items()
    head, *lines = mail("route", "list").out.splitlines()
    assert head.split() == ["ROUTE", "OWNER", "PACK", "REF", "SINK", "PROJECT", "FILTER", "EXPIRES"]
    (line,) = (one for one in lines if ends["id"] in one)
    assert line.split()[6:] == ["true", *ends["expires_at"][:19].split("T")]


def test_a_filter_that_is_none_is_one_line_with_its_column(mail):
    """Exit 2, the place and the way out; no route is made."""
    done = mail("route", "add", "mail", "new_item", "inbox", "--filter", "branch == 1")

    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: filter, column 1: undeclared reference to 'branch' (variables are ref, subject, data and occurred_at)\n"
    )
    assert mail.json("route", "list")["items"] == []


def test_a_route_is_tested_before_it_is_saved(ledger):
    """A line an event with what was answered, its id and the reason; then the count."""
    test = ("route", "test", "--pack", "mail", "--ref", "new_item", "--filter", MAIN)

    assert ledger(*test).out.splitlines() == [
        "no match  new_item  s2  operator  2026-01-01 00:00:02",
        f"  {'02' * 16}",
        "  filter error: no such key: branch",
        "no match  new_item  s1  operator  2026-01-01 00:00:01",
        f"  {'01' * 16}",
        "  filter false",
        "matches   new_item  s0  operator  2026-01-01 00:00:00",
        f"  {'00' * 16}",
        "",
        "1 of 3 match",
    ]
    items = ledger.json(*test, "--limit", "2")["items"]
    assert [(one["matches"], one["reason"]) for one in items] == [
        (False, "filter error: no such key: branch"),
        (False, "filter false"),
    ]
    assert set(items[0]) == {
        *("event_id", "ref", "subject", "publisher", "project", "accepted_at", "matches", "reason"),
    }


def test_a_standing_route_is_tested(ledger):
    """By its id, with its own filter or with another; what cannot be meant is said."""
    route = ledger.json("route", "add", "mail", "new_item", "inbox", "--filter", MAIN)["id"]

    assert ledger("route", "test", route).out.splitlines()[-1] == "1 of 3 match"
    assert ledger("route", "test", route, "--filter", "has(data.branch)").out.splitlines()[-1] == "2 of 3 match"
    none = ledger("route", "test", "--pack", "mail", "--ref", "counted_item")
    assert (none.code, none.out) == (0, "no recorded events of this trigger\n")
    for wrong, code in (((), 2), (("--pack", "mail"), 2), ((route, "--pack", "mail"), 2), (("rte_none",), 1)):
        done = ledger("route", "test", *wrong)
        assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)


def test_deliveries_are_replayed(ledger):
    """What is replayed is counted, what is not is told with its reason, and the exit code says whether all were."""
    route = ledger.json("route", "add", "mail", "new_item", "inbox")["id"]
    database = Database(f"sqlite:///{ledger.home}/sense.db")
    with database.write() as connection:
        row = {"tenant": "default", "lane": "default/inbox", "owner": "operator", "due_at": 1, "created_at": 1}
        more = {"alone": False, "attempt": 3, "crashes": 0, "reason": "attempts used up: answered 503"}
        for number, state in enumerate(("dead", "delivered", "dead")):
            values = {"event_id": bytes([number]) * 16, "state": state, "route_id": route if number < 2 else "rte_gone"}
            connection.execute(sa.insert(DELIVERY).values(**values, **row, **more))
    database.dispose()
    ids = [f"{f'0{number}' * 16}.{'rte_gone' if number == 2 else route}" for number in range(3)]

    done = ledger("deliveries", "replay", *ids)
    assert (done.code, done.err) == (1, "")
    assert done.out.splitlines() == [
        "unchanged  operator  inbox",
        f"  {ids[1]}",
        "  is delivered already",
        "refused    operator  inbox",
        f"  {ids[2]}",
        "  route removed or expired",
        "1 replayed, 1 unchanged, 1 refused",
    ]
    assert ledger.ids("deliveries", "list", "--state", "pending") == [ids[0]]
    again = ledger("deliveries", "replay", "--sink", "inbox", "--json")
    assert (again.code, [one["outcome"] for one in again.json["items"]]) == (1, ["refused"])
    assert ledger.json("deliveries", "replay", "--route", route)["items"] == []
    assert ledger("deliveries", "replay", "--route", route).out == "nothing to replay\n"
    wrong = ledger("deliveries", "replay")
    assert (wrong.code, wrong.err) == (
        2,
        "error: replay: nothing, or two things, to replay (give delivery ids, or a route or sink)\n",
    )


def test_a_route_whose_events_would_be_denied_is_warned_of(mail):
    """On standard error, with the way out; in JSON as a field; the route is made all the same."""
    mail.json("sink", "add", "log", "jsonl", "--option", f"path={mail.home}/log.jsonl")

    done = mail("route", "add", "mail", "new_item", "log")

    assert done.code == 0
    assert done.err == (
        "warning: sink 'log' will get no event of new_item: each is denied: privacy.land personal (a sink's audience "
        "cannot be changed: `sink add NAME KIND --audience principal:operator` and a route to it, or to an inbox)\n"
    )
    assert "warnings" not in done.out
    told = mail.json("route", "add", "mail", "new_item", "log")["warnings"]
    assert done.err == f"warning: {told[0]}\n"
