"""What became of events, as a person and as a program read it; the rows are put into the ledger by hand."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from runtime_core.errors import MISSING_SENSE_ENABLE
from runtime_core.pipeline import SENSE_STEPS
from sense_worker.cli import explained
from sense_worker.storage.engine import Database
from sense_worker.storage.schema import DEAD_ENTRY, DELIVERY, EVENT
from sinks.inbox_tables import item

AT = 1_767_225_600_000_000
EVENT_ID = "5c6ffbdd40d9556b73a21e63c3e0e904"
ROUTES = ("rte_0123456789abcdef", "rte_fedcba9876543210")
STEPS = [step.__name__ for step in SENSE_STEPS]
ODD = "a\nb\x1b[2J\u202e"
LONG = "x" * 3000
RAW = b"".join(b"%d:%b," % (len(part), part) for part in (b"c", b"act_1", b"b", f"{ODD}{LONG}".encode(), b"s", b"\xff"))


@pytest.fixture
def ledger(mail):
    """One event with an odd subject: delivered to the inbox, denied at the log, refused once more as a conflict."""
    body = json.dumps({"ref": "new_item", "data": {"n": 1}, "occurred_at": "2026-01-01T00:00:00Z"}).encode()
    key, shared = bytes.fromhex(EVENT_ID), {"tenant": "default", "subject": ODD, "accepted_at": AT}
    names = {"pack_id": "mail", "ref": "new_item", "publisher": "ana", "occurred_at": "2026-01-01T00:00:00Z"}
    wire = {"message_id": "m-1", "stream_id": "1-0", "activation_id": "act_1", "body": body, "body_digest": b"d" * 32}
    rest = {"generation": 1, "digest": "d1", "signed_at": AT, "repeats": 2, "receipt": '{"no route": 1}'}
    delivery = {"event_id": key, "tenant": "default", "owner": "ana", "due_at": 0, "created_at": AT, "attempt": 1}
    more = {"crashes": 0, "alone": False, "settled_at": AT, "digest": "d1"}
    denied = {"state": "denied", "reason": MISSING_SENSE_ENABLE.text(), "step": "require_capability"}
    dead = {"stream": "sense:default:events", "stream_id": "2-0", "word": "conflict", "detail": ODD, "at": AT}
    raw = {"raw": base64.b64encode(RAW).decode(), "raw_length": len(RAW), "raw_digest": "d", "activation_id": "act_1"}
    statements = [
        sa.insert(EVENT).values(id=key, **shared, **names, **wire, **rest),
        sa.insert(DELIVERY).values(
            **delivery, **more, route_id=ROUTES[0], lane="default/inbox", state="delivered", grant_id="grt_1"
        ),
        sa.insert(DELIVERY).values(**delivery, **more, **denied, route_id=ROUTES[1], lane="default/log"),
        sa.insert(item).values(
            event_id=key, route_id=ROUTES[0], principal="ana", land="personal", body=body, **shared, **names
        ),
        sa.insert(DEAD_ENTRY).values(tenant="default", event_id=key, **dead, **raw),
    ]
    database = Database(f"sqlite:///{mail.home}/sense.db")
    with database.write() as connection:
        for statement in statements:
            connection.execute(statement)
    database.dispose()
    return mail


def test_deliveries(ledger):
    """A line of aligned cells, then the whole id and the reason; filters narrow."""
    ids = [f"{EVENT_ID}.{route}" for route in ROUTES]

    shown = ledger("deliveries", "list").out.splitlines()
    assert shown == [
        "delivered  new_item  ana  inbox  2026-01-01 00:00:00",
        f"  {ids[0]}",
        "denied     new_item  ana  log    2026-01-01 00:00:00",
        f"  {ids[1]}",
        "  denied: missing sense.enable",
    ]
    assert ledger.ids("deliveries", "list") == ids
    assert ledger.ids("deliveries", "list", "--state", "denied") == [ids[1]]
    assert ledger.ids("deliveries", "list", "--route", ROUTES[0]) == [ids[0]]
    assert ledger.ids("deliveries", "list", "--event", EVENT_ID, "--limit", "1") == [ids[0]]
    row = ledger.json("deliveries", "show", ids[1])
    assert (row["state"], row["created_at"], row["due_at"]) == ("denied", "2026-01-01T00:00:00.000000Z", None)


def test_the_inbox(ledger, monkeypatch):
    """Who may see whose; the body is the signed JSON."""
    items = ledger.json("inbox", "list")["items"]

    assert [(one["event_id"], one["principal"]) for one in items] == [(EVENT_ID, "ana")]
    assert json.loads(items[0]["body"])["data"] == {"n": 1}
    assert ledger.json("inbox", "list", "--principal", "operator")["items"] == []
    assert '"data": {"n": 1}' in ledger("inbox", "list").out


def test_dead_entries(ledger):
    """Listed by entry and word; shown with the raw fields."""
    assert ledger.ids("dead", "list", field="stream_id") == ["2-0"]
    assert ledger.json("dead", "show", "2-0")["raw"] == base64.b64encode(RAW).decode()


def test_status_counts_what_is_there(ledger):
    """By state, by lane, by word."""
    row = ledger.json("status")

    assert (row["events"], row["deliveries"], row["dead_entries"]) == (
        1,
        {"delivered": 1, "denied": 1},
        {"conflict": 1},
    )
    assert ledger("status").out.splitlines()[-2:] == ["inbox  delivered 1", "log    denied 1"]


def test_explain_an_event(ledger):
    """The event, what got no delivery, each route with what passed, what ended it, by which text, clause and grant."""
    assert ledger("explain", EVENT_ID).out.splitlines() == [
        f"event {EVENT_ID}",
        "  new_item of mail, announced by ana in tenant default",
        "  accepted 2026-01-01 00:00:00, message m-1, entry 1-0",
        "  subject a\\nb\\x1b[2J\\u202e",
        "  announced again 2 times under the same message id: still one event",
        "",
        "no route: nobody asked for this trigger",
        "",
        "ana -> inbox: delivered",
        f"  delivery     {EVENT_ID}.{ROUTES[0]}",
        f"  passed       {', '.join(STEPS[:-1])}",
        "  recorded     audit",
        "  grant        grt_1 [§9.4.4]",
        "  pack digest  d1",
        "",
        "ana -> log: denied",
        f"  delivery     {EVENT_ID}.{ROUTES[1]}",
        f"  passed       {', '.join(STEPS[:5])}",
        "  ended at     require_capability: denied: missing sense.enable [§9.7.sense]",
        "  not reached  deliver",
        "  recorded     audit",
        "  what to do   `grant add ana sense.enable --pack mail --key new_item`, then `deliveries replay`",
        "  pack digest  d1",
        "",
        "entry 2-0 of sense:default:events",
        "  refused: conflict: a\\nb\\x1b[2J\\u202e",
        "  activation act_1",
    ]


def test_explain_a_delivery_and_an_entry(ledger):
    """Only that route; only that entry. In JSON it is the explanation with its fields."""
    one = ledger.json("explain", f"{EVENT_ID}.{ROUTES[1]}")

    assert [(route["route_id"], route["text"]) for route in one["routes"]] == [
        (ROUTES[1], "denied: missing sense.enable")
    ]
    assert {"name": "require_capability", "outcome": "denied: missing sense.enable"} in one["routes"][0]["steps"]
    assert ledger("explain", "2-0").out.splitlines()[0] == "entry 2-0 of sense:default:events"


def test_explain_is_for_those_whom_it_concerns(ledger, monkeypatch):
    """Ana sees her routes; ben, whom it does not concern, hears that there is no such event."""
    ledger.json("principal", "add", "ben")
    files = {name: ledger.json("session", "create", name)["file"] for name in ("ana", "ben")}

    monkeypatch.setenv("SENSE_SESSION_FILE", files["ana"])
    assert len(ledger.json("explain", EVENT_ID)["routes"]) == 2
    monkeypatch.setenv("SENSE_SESSION_FILE", files["ben"])
    assert (ledger("explain", EVENT_ID).code, ledger.ids("deliveries", "list"), ledger.ids("inbox", "list")) == (
        1,
        [],
        [],
    )


def test_what_waits_is_told_with_its_next_try():
    """A retrying delivery: the reason, when it is tried next, and the attempts before."""
    attempt = {"attempt": 1, "state": "retrying", "step": "deliver", "reason": "disk full", "by": "drain", "at": "x"}
    route = {
        **dict.fromkeys(("clause", "grant_id", "digest", "way_out")),
        "owner": "ana",
        "sink": "log",
        "state": "retrying",
        "delivery_id": "d",
        "text": "disk full",
        "due_at": "2026-01-01T00:05:00.000000Z",
        "attempts": [attempt],
        "steps": [{"name": "deliver", "outcome": "disk full"}],
    }
    row = {"accepted_at": None, "without": {}, "routes": [route], "refusals": []}

    assert list(explained.told(row)) == [
        "ana -> log: retrying",
        "  delivery     d",
        "  ended at     deliver: disk full",
        "  next try     2026-01-01 00:05:00",
        "  attempt 1    retrying by drain: disk full",
    ]


def test_a_refused_entry_is_shown_as_text(ledger):
    """A person reads its fields, escaped and bounded; what is no text is counted, and the raw form stands beside."""
    text = ledger("dead", "show", "2-0").out.splitlines()
    row = ledger.json("dead", "show", "2-0")

    assert text[-3:] == [
        "c: act_1",
        f"b: a\\nb\\x1b[2J\\u202e{'x' * 1992}… and 1008 characters more",
        "s: 1 bytes that are no UTF-8",
    ]
    assert row["text"] == text[-3:]
    assert base64.b64decode(row["raw"]) == RAW


@pytest.mark.parametrize(
    ("command", "way_out"),
    [
        (("deliveries", "list", "--route", "NONSENSE"), "sense-worker route list"),
        (("inbox", "list", "--principal", "NONSENSE"), "sense-worker principal list"),
        (("grant", "list", "--principal", "NONSENSE"), "sense-worker principal list"),
    ],
)
def test_a_filter_that_names_nothing_is_no_empty_answer(mail, command, way_out):
    """A mistyped name is told, with the list to look in; a name that is there and has nothing is an empty list."""
    done = mail(*command)

    assert (done.code, done.out) == (1, "")
    assert "there is no 'NONSENSE'" in done.err
    assert way_out in done.err
    assert mail.json("inbox", "list", "--principal", "ana")["items"] == []
    assert mail.json("grant", "list", "--principal", "ana")["items"] == []


def test_deliveries_of_one_sink(ledger):
    """As replay names it; a sink that is not there is one line."""
    assert [row["sink"] for row in ledger.json("deliveries", "list", "--sink", "log")["items"]] == ["log"]
    done = ledger("deliveries", "list", "--sink", "nothing")
    assert (done.code, done.err) == (1, "error: sink: there is no 'nothing' (see `sense-worker sink list`)\n")


def test_grants_tell_what_is_not_there_and_when_they_ended(mail):
    """A warning on standard error; revoked, the moment."""
    done = mail("grant", "add", "ana", "sense.enable", "--pack", "sortr")
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert done.err.startswith("warning: pack 'sortr' is not installed; ")
    assert "revoked" not in done.out
    (grant,) = (one["id"] for one in mail.json("grant", "list")["items"] if one["pack_id"] == "sortr")
    assert "revoked at  2" in mail("grant", "revoke", grant).out


def test_activations_show_the_file_of_each(mail):
    """Where the adapter reads; none where another host has it."""
    file = mail.json("activate", "mail")["file"]
    assert mail.json("activations")["items"][0]["file"] == file
    assert file in mail("activations").out
    Path(file).unlink()
    assert mail.json("activations")["items"][0]["file"] is None
