"""A route with a filter gets a Delivery of those events for which it is true (DESIGN §6.2, issue 5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from runtime_core.errors import NotFound
from sense_worker import filters
from sense_worker.cli.explained import told
from sense_worker.explain import explain
from sense_worker.intake import candidates as candidates_module
from sense_worker.intake import record as record_module
from sense_worker.storage.states import State

if TYPE_CHECKING:
    from sense_worker.explain import Explanation
    from tests.intake_bench import IntakeBench

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no statement of its own decides; the others run on PostgreSQL too."""
MAIN = 'data.branch == "main"'
NO_BRANCH = "filter error: no such key: branch"
NO_GRANT = "denied: missing sense.enable"


def explained(bench: IntakeBench, owner: str | None = None) -> Explanation:
    """Explain the only event, to an operator or to a principal."""
    return explain(bench.database, "t-red", bench.query("SELECT id FROM sense_event")[0][0].hex(), owner)


def people(bench: IntakeBench, *names: str) -> None:
    """Make ana and these members of apollo, with the grant for its events; ana announces there as `a-apollo`."""
    bench.activate("a-apollo", "ana", project="apollo")
    bench.rows.member("apollo", "ana", *names)
    bench.rows.grant("ana", "shared_item")
    for name in names:
        bench.rows.principal(name)
        bench.rows.grant(name, "shared_item")


@on_sqlite
def test_true_is_a_delivery_and_false_is_no_match(bench):
    """Of three routes one says yes, one has no filter, and the third leaves no trace: it does not match."""
    bench.rows.grant("ana")
    bench.rows.route("ana", id="yes", filter=MAIN)
    bench.rows.route("ana", id="no", filter='data.branch == "dev"')
    bench.rows.route("ana", id="all")

    assert bench.record(bench.entry(data={"branch": "main"})) == {"accepted": 1}

    assert bench.outcomes() == {"yes": "delivered", "all": "delivered"}
    assert explained(bench).without == {}


@on_sqlite
def test_an_event_that_no_filter_lets_pass_has_no_route(bench):
    """The receipt says `no route`, as without any."""
    bench.rows.grant("ana")
    bench.rows.route("ana", filter='data.branch == "dev"')

    bench.record(bench.entry(data={"branch": "main"}))

    assert explained(bench).without == explained(bench, "ana").without == {"no route": 1}


def test_an_error_is_no_delivery_and_a_recorded_reason(bench):
    """Counted by text, told to operators and to the route's owner, in the audit, and never a match."""
    bench.rows.grant("ana")
    for number in range(3):
        bench.rows.route("ana", id=f"rte-{number}", filter=MAIN if number else "data.n > 'a'")

    bench.record(bench.entry(data={"n": 1}))

    expected = {NO_BRANCH: 2, "filter error: wrong type for > of int64, string": 1}
    assert bench.outcomes() == {}
    assert explained(bench).without == explained(bench, "ana").without == expected
    assert f"no delivery for 2 matching routes: {NO_BRANCH}" in list(told(_plain(explained(bench))))
    assert bench.audited()[-1]["reason"] == f"{NO_BRANCH} (2); filter error: wrong type for > of int64, string (1)"


def _plain(told_of: Explanation) -> dict[str, object]:
    from sense_worker.cli.render import plain

    return plain(told_of)


@on_sqlite
def test_an_owner_is_told_its_own_errors_alone(bench):
    """Of two members with failing filters each sees its own count; who has no route there does not know the event."""
    people(bench, "ben", "cyd", "dan")
    bench.rows.route("ben", "shared_item", filter=MAIN)
    bench.rows.route("cyd", "shared_item", id="one", filter=MAIN)
    bench.rows.route("cyd", "shared_item", id="two", filter="data.n == 1")

    bench.record(bench.entry("shared_item", activation="a-apollo"))

    assert explained(bench).without == {NO_BRANCH: 2, "filter error: no such key: n": 1}
    assert explained(bench, "ben").without == {NO_BRANCH: 1}
    assert explained(bench, "cyd").without == {NO_BRANCH: 1, "filter error: no such key: n": 1}
    assert explained(bench, "ana").without == {}
    with pytest.raises(NotFound):
        explained(bench, "dan")


@on_sqlite
def test_a_filter_sees_no_data_that_its_owner_may_not_have(bench, monkeypatch):
    """Who is no candidate, or has no grant, gets its text whatever the data is: no filter is asked for it.

    Else whoever may add a route could read any event, one question at a time.
    """
    people(bench, "ben")
    bench.rows.principal("eve")
    bench.rows.principal("nul")
    bench.rows.member("apollo", "nul")
    asked = []
    says = filters.Filtering.says
    monkeypatch.setattr(filters.Filtering, "says", lambda *of: asked.append(of[1]) or says(*of))
    for owner in ("ana", "ben", "eve", "nul"):
        for name, text in (("yes", MAIN), ("no", 'data.branch == "dev"')):
            bench.rows.route(owner, "shared_item", id=f"{owner}-{name}", filter=text)

    bench.record(bench.entry("shared_item", {"branch": "main"}, "a-apollo"))

    assert set(asked) == {"ana", "ben"}
    assert bench.outcomes() == {"ana-yes": "delivered", "ben-yes": "delivered"}
    assert explained(bench).without == {"denied: not a member of the project": 2, NO_GRANT: 2}
    assert explained(bench, "nul").without == {NO_GRANT: 2}


@on_sqlite
def test_a_strangers_filter_sees_no_personal_event(bench, monkeypatch):
    """Counted by its land's text, whatever the filter would say, and told to nobody but operators."""
    monkeypatch.setattr(filters.Filtering, "says", lambda *_: pytest.fail("asked"))
    bench.rows.principal("ben")
    bench.rows.grant("ben")
    bench.rows.route("ben", filter=MAIN)

    bench.record(bench.entry(data={"branch": "main"}))

    assert explained(bench).without == {"denied: privacy.land personal": 1}
    with pytest.raises(NotFound):
        explained(bench, "ben")


@on_sqlite
def test_the_publisher_knows_its_own_event(bench):
    """Without the grant its filter is asked all the same, and its delivery is denied, as one without a filter is."""
    bench.rows.route("ana", id="yes", filter=MAIN)
    bench.rows.route("ana", id="no", filter='data.branch == "dev"')

    bench.record(bench.entry(data={"branch": "main"}))

    assert bench.outcomes() == {"yes": NO_GRANT}


@on_sqlite
def test_a_route_that_may_not_match_asks_nothing(bench, monkeypatch):
    """Another project's and an expired one: neither its filter nor the event's data is looked at."""
    monkeypatch.setattr(filters.Filtering, "says", lambda *_: pytest.fail("asked"))
    bench.rows.grant("ana")
    bench.rows.route("ana", id="gone", filter="true", expires_at=5)
    bench.rows.route("ana", id="other", filter="true", project="apollo")
    bench.rows.route("ana", id="all")

    bench.record(bench.entry())

    assert bench.outcomes() == {"all": "delivered"}


@on_sqlite
def test_all_of_an_event_can_be_asked(bench):
    """ref, subject and the moment it occurred; a body without that moment has the one of its signature."""
    bench.rows.grant("ana")
    text = 'ref == "new_item" && subject == "main" && occurred_at == timestamp("2026-06-01T12:00:00Z")'
    bench.rows.route("ana", id="whole", filter=text)
    bench.rows.route("ana", id="bare", filter='subject == "" && occurred_at > timestamp("2026-06-01T12:00:00Z")')

    bench.record(bench.entry(subject="main"))
    assert bench.outcomes() == {"whole": "delivered"}
    bench.record(bench.entry(body=b'{"ref":"new_item","data":{}}', signed_at=None))

    assert bench.outcomes() == {"whole": "delivered", "bare": "delivered"}


@on_sqlite
def test_a_filter_is_asked_when_the_event_is_accepted_and_never_again(bench, monkeypatch):
    """A redelivered entry, a repeat and a later attempt decide by what was decided then."""
    bench.rows.sink("far", "redis_stream", {"stream": "x"}, audience="principal:ana")
    bench.rows.grant("ana")
    bench.rows.route("ana", sink="far", id="yes", filter=MAIN)
    entry = bench.entry(data={"branch": "main"}, message_id="m")
    bench.record(entry)
    monkeypatch.setattr(filters.Filtering, "says", lambda *_: filters.NO)

    assert bench.record(entry) == {"redelivered": 1}
    assert bench.record(bench.entry(data={"branch": "main"}, message_id="m")) == {"repeat": 1}

    assert list(bench.query("SELECT route_id FROM sense_delivery")) == [("yes",)]


def test_the_rest_of_a_long_fan_out_is_filtered_by_the_same_event(bench, monkeypatch):
    """The slices of later transactions read the event from its row: the same answers, errors counted once."""
    monkeypatch.setattr(record_module, "ROUTES_A_TRANSACTION", 2)
    bench.rows.grant("ana")
    for number in range(9):
        text = (
            'subject == "s" && data.n == 1 && occurred_at > timestamp("2026-06-01T00:00:00Z")',
            "data.n == 2",
            MAIN,
        )[number % 3]
        bench.rows.route("ana", id=f"rte-{number}", filter=text)

    # It does not say when it happened: the moment of its signature, which stands in the row, is asked for.
    bench.record(bench.entry(body=b'{"ref":"new_item","data":{"n":1},"subject":"s"}'))

    assert bench.outcomes() == dict.fromkeys(("rte-0", "rte-3", "rte-6"), State.DELIVERED)
    assert (explained(bench).complete, explained(bench).without) == (True, {NO_BRANCH: 3})


@on_sqlite
def test_a_receipt_keeps_a_bounded_number_of_reasons(bench, monkeypatch):
    """Beyond it they are counted together."""
    monkeypatch.setattr(candidates_module, "REASONS", 2)
    bench.rows.grant("ana")
    for number in range(5):
        bench.rows.route("ana", id=f"rte-{number}", filter=f"data.k{number} == 1")

    bench.record(bench.entry())

    assert explained(bench).without == {
        "filter error: no such key: k0": 1,
        "filter error: no such key: k1": 1,
        "filter error: others": 3,
    }


@on_sqlite
def test_without_the_library_filtered_routes_get_nothing(bench, monkeypatch):
    """Recorded as `filter unavailable`; routes without a filter go on."""
    monkeypatch.setattr(filters, "_library", lambda: None)
    filters._compiled.cache_clear()
    bench.rows.grant("ana")
    bench.rows.route("ana", id="filtered", filter="true")
    bench.rows.route("ana", id="all")

    bench.record(bench.entry())
    filters._compiled.cache_clear()

    assert bench.outcomes() == {"all": "delivered"}
    assert explained(bench).without == {"filter unavailable": 1}


@on_sqlite
def test_receipts_of_before_are_read(bench):
    """A receipt that another release wrote is text to count alone."""
    bench.rows.grant("ana")
    bench.rows.route("ana")
    bench.record(bench.entry())
    with bench.database.write() as connection:
        receipt = json.dumps({"denied: privacy.land personal": 2})
        connection.exec_driver_sql(f"UPDATE sense_event SET receipt = '{receipt}'".replace("%", "%%"))

    assert explained(bench).without == {"denied: privacy.land personal": 2}
    assert explained(bench, "ana").without == {}
