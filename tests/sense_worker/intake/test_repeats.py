"""One event an id: repeats, redelivered entries, conflicts (DESIGN §4, C12, C59)."""

from __future__ import annotations

import time

import pytest

from sense_worker.intake import record as record_module
from sense_worker.storage import tables
from sense_worker.wiring import build_ports
from tests.provision import POLICY, SURFACE, Rows


@pytest.mark.case("C12")
@pytest.mark.case("C59")
def test_a_repeat_is_counted_once_and_delivers_nothing(bench):
    """The same message under another stream id is a repeat; the same entry again is silent."""
    bench.granted()
    first = bench.entry(message_id="m")
    again = bench.entry(message_id="m", body=first.fields[b"b"])

    assert bench.record(first) == {"accepted": 1}
    assert bench.record(again) == {"repeat": 1}
    assert bench.record(again) == {}
    assert bench.record(first) == {"redelivered": 1}
    assert bench.query("SELECT repeats FROM sense_event") == [(1,)]
    assert bench.query("SELECT count(*) FROM inbox_item") == [(1,)]


@pytest.mark.case("C59")
def test_a_used_id_with_another_body_is_a_conflict_with_a_receipt(bench):
    """A message id that was used for another body is kept as a conflict, in a later batch and within one."""
    bench.granted()
    one, two, three = (bench.entry(message_id="m", data={"n": number}) for number in range(3))

    assert bench.record(one) == {"accepted": 1}
    assert bench.record(two) == {"conflict": 1}
    assert bench.record(three) == {"conflict": 1}
    four, five = (bench.entry(message_id="m2", data={"n": number}) for number in range(2))
    assert bench.record(four, five) == {"accepted": 1, "conflict": 1}
    assert {word for word, _ in bench.dead()} == {"conflict"}
    assert bench.query("SELECT count(*) FROM inbox_item") == [(2,)]


@pytest.mark.case("C59")
def test_two_tenants_and_two_principals_may_use_one_id(bench):
    """Neither another tenant nor another principal of the same tenant can suppress an event by using its id."""
    bench.granted()
    blue = Rows(bench.database, bench.vault, "t-blue")
    for rows, who in ((blue, "ana"), (bench.rows, "ben")):
        rows.principal(who)
        bench.activate(f"a-{rows.tenant}-{who}", who, rows)
        rows.grant(who)
        rows.route(who)
    blue.pack()

    counts = bench.record(
        bench.entry(message_id="e-1", data={"n": 1}),
        bench.entry(message_id="e-1", data={"n": 2}, activation="a-t-blue-ana", tenant="t-blue"),
        bench.entry(message_id="e-1", data={"n": 3}, activation="a-t-red-ben"),
    )

    assert counts == {"accepted": 3}
    assert bench.query("SELECT count(*) FROM inbox_item") == [(3,)]


@pytest.mark.case("C12")
def test_a_repeat_is_a_repeat_in_every_process(bench):
    """Recorders that share nothing but the database, as processes do, accept one message once between them."""
    bench.granted()
    others = [record_module.Recorder(build_ports(bench.settings)) for _ in range(2)]
    moment = f"{time.time() - 299:.0f}"
    first = bench.entry(message_id="m", signed_at=moment)
    copies = [bench.entry(message_id="m", signed_at=moment, body=first.fields[b"b"]) for _ in others]

    counts = [bench.record(first)]
    for other, copy in zip(others, copies, strict=True):
        parts = other.record([copy], int(time.time() * 1e6))
        counts.append({word: number for word, number in parts[0].counts.items() if number})
        other._ports.database.dispose()

    assert counts == [{"accepted": 1}, {"repeat": 1}, {"repeat": 1}]
    assert bench.query("SELECT count(*) FROM inbox_item") == [(1,)]


@pytest.mark.case("C59")
def test_one_id_under_two_packs_and_two_projects(bench):
    """The same message id of one principal is another event under another pack, and a conflict within one pack."""
    bench.granted()
    bench.rows.pack({**SURFACE, "id": "post"}, {**POLICY, "surface_id": "post"})
    bench.rows.put(
        tables.ActivationRow,
        id="a-post",
        session_id="ses-ana",
        pack_id="post",
        secret=bench.vault.seal(b"post secret"),
        previous_until=0,
        created_at=1,
    )
    bench.secrets["a-post"] = b"post secret"
    bench.activate("a-apollo", "ana", project="apollo")

    assert bench.record(
        bench.entry(message_id="e-1", data={"n": 1}),
        bench.entry(message_id="e-1", data={"n": 2}, activation="a-post"),
        bench.entry(message_id="e-1", data={"n": 3}, activation="a-apollo"),
    ) == {"accepted": 2, "conflict": 1}


@pytest.mark.parametrize(
    ("table", "key", "change", "word"),
    [
        (tables.ActivationRow, {"id": "a-ana"}, {"revoked_at": 5}, "activation_revoked"),
        (tables.SessionRow, {"id": "ses-ana"}, {"expires_at": 5}, "expired"),
        (tables.PackRow, {"pack_id": "mail"}, {"generation": None}, "pack_missing"),
    ],
)
def test_a_second_announcement_is_judged_by_what_stands_and_the_first_entry_is_not(bench, table, key, change, word):
    """After a withdrawal the entry that was accepted is only redelivered; another with its message is refused."""
    bench.granted()
    first = bench.entry(message_id="m")
    again = bench.entry(message_id="m", body=first.fields[b"b"])
    bench.record(first)
    bench.rows.change(table, key, **change)

    assert bench.record(first) == {"redelivered": 1}
    assert bench.dead() == []
    assert bench.record(again) == {word: 1}
    assert [found for found, _ in bench.dead()] == [word]


def test_an_entry_whose_id_was_bounded_is_known_again_without_its_body(bench):
    """An accepted entry with an id from the future, read again after its body is gone, is redelivered and no loss."""
    bench.granted()
    ahead = bench.entry()._replace(id=f"{int(time.time() * 1000) + 60_000}-1")
    assert bench.record(ahead) == {"accepted": 1}

    assert bench.record(ahead._replace(fields=None, deliveries=2)) == {"redelivered": 1}
    assert bench.dead() == []


def test_a_copy_with_a_fault_of_its_own_is_refused_as_ever(bench):
    """A stale copy of an accepted event and a forged one are no repeats, and the forged one names no event."""
    bench.granted()
    first = bench.entry(message_id="m")
    bench.record(first)
    body = first.fields[b"b"]
    stale = bench.entry(message_id="m", body=body, signed_at=f"{time.time() - 400:.0f}")
    forged = bench.entry(message_id="m", body=body, fields={b"s": b"0" * 64})

    assert bench.record(stale, forged) == {"stale": 1, "bad_signature": 1}
    named = dict(bench.query("SELECT word, event_id FROM sense_dead_entry"))
    assert bytes(named["stale"]) == bytes(bench.query("SELECT id FROM sense_event")[0][0])
    assert named["bad_signature"] is None
