"""Every path on which an entry can end leaves a receipt that `explain` tells (DESIGN §1.2)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from runtime_core.errors import INTAKE_WORDS, SENSE_REFUSALS, NotFound
from runtime_core.event import BODY_LIMIT, event_id
from sense_worker.drain import Drain
from sense_worker.explain import PASSED, explain
from sense_worker.intake.stream import StreamEntry
from sense_worker.storage import tables
from sense_worker.storage.states import State
from sense_worker.ways_out import Wanted, way_out
from sense_worker.wire import stream_of
from tests.intake_bench import IntakeBench
from tests.provision import POLICY, SURFACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sense_worker.explain import Explanation
    from sense_worker.storage.engine import Database


@pytest.fixture
def bench(tmp_path: Path, sqlite_url: str) -> Iterator[IntakeBench]:
    """A recorder with one principal, ana."""
    from sense_worker.storage.engine import Database

    database: Database = Database(sqlite_url)
    bench = IntakeBench(tmp_path, database)
    yield bench
    bench.close()
    database.dispose()


def told(bench: IntakeBench, about: str) -> Explanation:
    """Explain an id of tenant t-red."""
    return explain(bench.database, "t-red", about)


def bare(fields: dict[bytes, bytes] | None) -> StreamEntry:
    """Return an entry with these fields and no signature."""
    return StreamEntry("t-red", stream_of("t-red"), f"{int(time.time() * 1000)}-0", fields, 1)


def conflicting(bench: IntakeBench) -> StreamEntry:
    """Record an event, and return another under its id."""
    bench.record(bench.entry(message_id="m"))
    return bench.entry(message_id="m", data={"other": 1})


def after(table: type, key: dict[str, object], **change: object) -> Callable[[IntakeBench], StreamEntry]:
    """Return what changes a row and then makes an entry."""

    def make(bench: IntakeBench) -> StreamEntry:
        bench.rows.change(table, key, **change)
        return bench.entry()

    return make


REFUSED: dict[str, Callable[[IntakeBench], StreamEntry]] = {
    "no_body": lambda _: bare({b"x": b"y"}),
    "too_large": lambda bench: bench.entry(data={"x": "y" * BODY_LIMIT}),
    "unknown_credential": lambda bench: bench.entry(activation="a-nobody"),
    "bad_signature": lambda bench: bench.entry(fields={b"s": b"0" * 64}),
    "stale": lambda bench: bench.entry(signed_at=f"{time.time() - 400:.0f}"),
    "early": lambda bench: bench.entry(signed_at=f"{time.time() + 400:.0f}"),
    "activation_revoked": after(tables.ActivationRow, {"id": "a-ana"}, revoked_at=5),
    "session_revoked": after(tables.SessionRow, {"id": "ses-ana"}, revoked_at=5),
    "principal_disabled": after(tables.PrincipalRow, {"id": "ana"}, disabled_at=5),
    "expired": after(tables.SessionRow, {"id": "ses-ana"}, expires_at=5),
    "malformed": lambda bench: bench.entry(body=b"[]"),
    "unknown_field": lambda bench: bench.entry(tenant_id="t-blue"),
    "pack_missing": after(tables.PackRow, {"pack_id": "mail"}, generation=None),
    "undeclared_ref": lambda bench: bench.entry("never"),
    "invalid_data": lambda bench: bench.entry("counted_item", {"n": "x"}),
    "conflict": conflicting,
}


@pytest.mark.parametrize("word", INTAKE_WORDS)
def test_every_word_of_intake_is_told_with_the_entry_and_what_was_wrong(bench, word):
    """Each refusal of the table, in its order, is found by the id of its stream entry; so is one that crashed."""
    if word == "crashed":
        entry = bench.entry()
        bench.recorder.bury(entry, "crashed", "its process died 3 times while handling it alone")
    else:
        entry = REFUSED[word](bench)
        bench.record(entry)

    found = told(bench, entry.id).refusals

    assert [(one.word, one.text, one.stream_id) for one in found] == [(word, f"refused: {word}", entry.id)]
    assert found[0].detail
    assert set(REFUSED) | {"crashed"} == set(INTAKE_WORDS)


def test_a_conflict_is_told_with_the_event_whose_id_it_used(bench):
    """Explaining an event names the entries that reused its message id."""
    bench.record(conflicting(bench))
    event = bench.query("SELECT id FROM sense_event")[0][0].hex()

    assert [one.word for one in told(bench, event).refusals] == ["conflict"]


def denied_event(bench: IntakeBench, ref: str = "new_item", **entry: object) -> tuple[str, str]:
    """Return event and route of a delivery that is held at first, so that the world can change before its attempt."""
    route = bench.rows.route("ana", ref, "later")
    bench.rows.sink("later", "inbox")
    bench.rows.change(tables.SinkRow, {"name": "later"}, paused_at=5)
    bench.record(bench.entry(ref, **entry))
    return bench.query("SELECT id FROM sense_event")[0][0].hex(), route


def project(bench: IntakeBench, name: str | None) -> None:
    """Put ana's activation on a project."""
    bench.rows.change(tables.ActivationRow, {"id": "a-ana"}, project_id=name)


def control_plane(bench: IntakeBench) -> None:
    """Install the pack as one of the control plane."""
    bench.rows.pack({**SURFACE, "plane": "control"})


def without_trigger(bench: IntakeBench) -> None:
    """Install a revision without the trigger `new_item`."""
    triggers = [one for one in SURFACE["stimulusTriggers"] if one["ref"] != "new_item"]
    stimuli = {ref: entry for ref, entry in POLICY["stimuli"].items() if ref != "new_item"}
    bench.rows.pack({**SURFACE, "stimulusTriggers": triggers}, {**POLICY, "stimuli": stimuli})


def shared_sink(bench: IntakeBench) -> None:
    """Turn the sink into one that does not keep principals apart."""
    bench.rows.change(tables.SinkRow, {"name": "later"}, kind="memory")


DENIED: dict[str, tuple[str, Callable[[IntakeBench], object]]] = {
    "pack not installed: mail": (
        "new_item",
        lambda bench: bench.rows.change(tables.PackRow, {"pack_id": "mail"}, generation=None),
    ),
    "denied: activation revoked": (
        "new_item",
        lambda bench: bench.rows.change(tables.ActivationRow, {"id": "a-ana"}, revoked_at=5),
    ),
    "trigger not declared: new_item": ("new_item", without_trigger),
    "denied: session revoked": (
        "new_item",
        lambda bench: bench.rows.change(tables.SessionRow, {"id": "ses-ana"}, revoked_at=5),
    ),
    "denied: principal disabled": (
        "new_item",
        lambda bench: bench.rows.change(tables.PrincipalRow, {"id": "ana"}, disabled_at=5),
    ),
    "denied: privacy.land brain requires project_id": ("shared_item", lambda bench: project(bench, None)),
    "denied: not a member of the project": ("shared_item", lambda bench: project(bench, "nowhere")),
    "denied: control plane requires an operator": ("new_item", control_plane),
    "denied: privacy.land personal": ("new_item", shared_sink),
    "denied: privacy.land local requires a workspace sink": ("saved_item", lambda _: None),
    "denied: sink outside the project": (
        "shared_item",
        lambda bench: (bench.rows.member("apollo", "ana"), project(bench, "apollo"), shared_sink(bench)),
    ),
    "denied: missing sense.enable": ("new_item", lambda _: None),
}


@pytest.mark.parametrize("text", DENIED)
def test_every_text_of_an_attempt_is_told_with_its_step_and_clause(bench, text):
    """Each refusal of SENSE_STEPS ends the delivery with its exact text; steps before passed, later ones never ran."""
    ref, change = DENIED[text]
    event, route = denied_event(bench, ref)
    change(bench)
    bench.rows.change(tables.SinkRow, {"name": "later"}, paused_at=None)
    Drain(bench.ports).claim("t-red/later")

    receipt = told(bench, f"{event}.{route}").routes[0]

    refusal = next(one for one in SENSE_REFUSALS if one.text(text.rpartition(": ")[2]) == text)
    assert (receipt.state, receipt.text, receipt.clause) == ("denied", text, f"§{refusal.clause}")
    outcomes = {step.name: step.outcome for step in receipt.steps}
    names = list(outcomes)
    at = names.index(refusal.step)
    assert [outcomes[name] for name in names[: at + 1]] == [PASSED] * at + [text]
    assert {outcomes[name] for name in names[at + 1 : -1]} <= {"not reached"}
    assert outcomes["audit"] == "recorded"


def test_the_texts_tried_here_are_the_whole_table():
    """No row of the table of refusals is left out above."""
    tried = {text.replace("mail", "{}").replace("new_item", "{}") if ":" in text else text for text in DENIED}

    assert {one.template for one in SENSE_REFUSALS} == tried


def test_a_delivered_event_is_told_with_the_grant_that_allowed_it(bench):
    """All steps passed, and the receipt names the grant."""
    grant = bench.rows.grant("ana")
    bench.rows.route("ana")
    bench.record(bench.entry(subject="hello"))
    event = bench.query("SELECT id FROM sense_event")[0][0].hex()

    found = told(bench, event)

    assert found.subject == "hello"
    assert [(one.state, one.grant_id) for one in found.routes] == [("delivered", grant)]
    assert [step.outcome for step in found.routes[0].steps] == [PASSED] * 7 + ["recorded"]


def test_events_without_a_delivery_say_why(bench):
    """No route at all, and routes of others that get none, are told as counts by text."""
    bench.record(bench.entry())
    bench.rows.principal("ben")
    bench.rows.route("ben")
    bench.record(bench.entry(), bench.entry("shared_item"))

    found = {json.dumps(told(bench, row[0].hex()).without) for row in bench.query("SELECT id FROM sense_event")}

    assert found == {'{"no route": 1}', '{"denied: privacy.land personal": 1}'}


def test_waiting_and_cancelled_deliveries_and_repeats_are_told(bench):
    """Held with its reason, cancelled with its reason, and how often the message came again."""
    event, route = denied_event(bench, message_id="m")
    first = bench.query("SELECT body FROM sense_event")[0][0]
    bench.record(bench.entry(message_id="m", body=first))
    held = told(bench, event)
    bench.rows.change(tables.RouteRow, {"id": route}, removed_at=5)
    bench.rows.change(tables.SinkRow, {"name": "later"}, paused_at=None)
    Drain(bench.ports).claim("t-red/later")

    assert (held.repeats, held.routes[0].state, held.routes[0].text) == (1, State.HELD, "sink paused")
    assert told(bench, event).routes[0].state == State.CANCELLED


@pytest.mark.parametrize("about", ["0" * 32, "0" * 32 + ".rte_1", "1-1", "nonsense", ""])
def test_an_id_that_is_none_is_answered_with_a_way_out(bench, about):
    """Unknown ids raise NotFound naming where ids are listed."""
    with pytest.raises(NotFound, match="deliveries list"):
        told(bench, about)


def test_an_id_is_told_as_it_is_shown_and_no_other_way(bench):
    """An event in capitals or with blanks, and a delivery with no route, are ids of nothing."""
    bench.record(bench.entry())
    event = bench.query("SELECT id FROM sense_event")[0][0].hex()

    assert told(bench, event).id == event
    for about in (event.upper(), f" {event}", f"{event[:2]} {event[2:]}", f"{event}.", f"{event.upper()}.rte_1"):
        with pytest.raises(NotFound):
            told(bench, about)


@pytest.mark.spec("9.2.1")
def test_another_tenants_event_cannot_be_told_from_none(bench):
    """An id of another tenant is answered like one that does not exist."""
    bench.record(bench.entry())
    event = bench.query("SELECT id FROM sense_event")[0][0].hex()

    with pytest.raises(NotFound) as theirs:
        explain(bench.database, "t-blue", event)
    with pytest.raises(NotFound) as nobodys:
        explain(bench.database, "t-blue", "0" * 32)

    assert str(theirs.value).replace(event, "") == str(nobodys.value).replace("0" * 32, "")


def test_a_principal_is_told_of_its_own_routes_only(bench):
    """Without being an operator one sees one's own deliveries, and nothing of an event that is not one's business."""
    bench.rows.principal("ben")
    bench.rows.member("apollo", "ana", "ben")
    project(bench, "apollo")
    for who in ("ana", "ben"):
        bench.rows.route(who, "shared_item")
    bench.record(bench.entry("shared_item"))
    event = bench.query("SELECT id FROM sense_event")[0][0].hex()

    assert [one.owner for one in explain(bench.database, "t-red", event, "ben").routes] == ["ben"]
    with pytest.raises(NotFound):
        explain(bench.database, "t-red", event, "cyd")


def test_a_refused_event_is_told_by_the_id_its_publisher_has(bench):
    """An authenticated announcement that was refused is found by its event id; a forged one is not."""
    bench.record(
        bench.entry("counted_item", {"n": "x"}, message_id="m"), bench.entry(message_id="f", fields={b"s": b"0"})
    )
    event = event_id("t-red", "ana", "mail", "m").hex()

    assert [one.word for one in told(bench, event).refusals] == ["invalid_data"]
    assert [one.word for one in explain(bench.database, "t-red", event, "ana").refusals] == ["invalid_data"]
    for about, who in ((event, "ben"), (event_id("t-red", "ana", "mail", "f").hex(), None)):
        with pytest.raises(NotFound):
            explain(bench.database, "t-red", about, who)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("denied: privacy.land personal", "a route of ana's own: personal data goes to nobody else"),
        ("denied: sink outside the project", "--audience project:apollo` and a route to it"),
        ("denied: privacy.land local requires a workspace sink", "`sink add NAME jsonl --option workspace:=true "),
        ("denied: missing sense.enable", "`grant add ben sense.enable --pack mail --key new_item`, then `deliveries"),
        ("sink missing", "`sink add hook KIND`"),
        ("sink paused", "`sink resume hook`"),
        ("sink disabled: answered 410", "when the receiver takes events again: `sink resume hook`"),
        ("sink cannot be opened: options.url: …", "mend it where the worker runs, in its settings and packages"),
        ("answered 503", None),
        (None, None),
    ],
)
def test_what_to_do_about_a_reason(reason, told):
    """One line for each reason that somebody can end, with the names to use; nothing for what ends by itself."""
    found = way_out(reason, Wanted("ana", "ben", "mail", "new_item", "hook", "apollo"))

    assert (told is None) == (found is None)
    assert (told or "") in (found or "")
