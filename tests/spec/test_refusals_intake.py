"""The adversarial matrix of intake: whatever else is wrong with an entry, the first word of the table refuses it.

Entries are built as on the wire and judged at the door over rows in memory; `conflict`, which is found in the ledger,
is held against every earlier word on both databases.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.errors import INTAKE_WORDS
from runtime_core.event import BODY_LIMIT
from runtime_core.identity import Activation, Credential, Principal, Session
from runtime_core.memory import MemoryAuthority
from runtime_core.pack import PackRevision, read_pack
from sense_worker.intake.door import Turned, admit
from sense_worker.intake.stream import StreamEntry
from sense_worker.storage import tables
from sense_worker.wire import build_entry, stream_of
from tests.intake_bench import IntakeBench
from tests.spec.documents import policy, surface
from tests.spec.matrix import Fault, Matrix, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database

ORDER = [
    *("no_body", "too_large", "unknown_credential", "bad_signature", "stale", "early", "activation_revoked"),
    *("session_revoked", "principal_disabled", "expired", "malformed", "unknown_field", "pack_missing"),
    *("undeclared_ref", "invalid_data", "conflict", "crashed"),
]
"""DESIGN §7, written out once more: a change of the table's order is a change of what people are told."""
NOW = 1_780_315_200
SECRET = b"secret of a1"

# A body that is gone, or is no JSON, has no ref, no data and no fields: these slots are then taken.
NO_FIELDS = {"ref": "new_item", "data": None, "more": {}}
FAULTS = [
    Fault("no_body", "absent", {"body": None, "padding": 0, **NO_FIELDS}),
    Fault("no_body", "empty", {"body": b"", "padding": 0, **NO_FIELDS}),
    Fault("too_large", "over the limit", {"padding": BODY_LIMIT}),
    Fault("unknown_credential", "a stranger's id", {"c": "nobody"}),
    Fault("unknown_credential", "no id at all", {"c": ""}),
    Fault("unknown_credential", "an activation of another tenant", {"home": "other"}),
    Fault("bad_signature", "another secret", {"s": b"another secret"}),
    Fault("bad_signature", "no signature", {"s": None}),
    Fault("stale", "signed long ago", {"t": f"{NOW - 301}"}),
    Fault("early", "signed in the future", {"t": f"{NOW + 301}"}),
    Fault("activation_revoked", "deactivated", {"activation": "revoked"}),
    Fault("session_revoked", "revoked", {"session": "revoked"}),
    Fault("principal_disabled", "disabled", {"principal": "disabled"}),
    Fault("expired", "ended before arrival", {"ends": NOW - 1}),
    Fault("expired", "ends at arrival", {"ends": NOW}),
    Fault("malformed", "another version of the wire", {"v": b"2"}),
    Fault("malformed", "no message id", {"i": "not one"}),
    Fault("malformed", "signed at no moment", {"t": "soon"}),
    Fault("malformed", "no JSON", {"body": b"{", **NO_FIELDS}),
    Fault("malformed", "ref outside its pattern", {"ref": "new item"}),
    Fault("malformed", "data that is no object", {"data": []}),
    Fault("unknown_field", "of the entry", {"field": b"tenant"}),
    Fault("unknown_field", "of the body", {"more": {"tenant": "other"}}),
    Fault("pack_missing", "removed", {"installed": False}),
    Fault("undeclared_ref", "no trigger of it", {"ref": "old_item"}),
    Fault("invalid_data", "not as declared", {"data": {"n": "one"}}),
]
IN_THE_LEDGER = {
    "a conflict is found in the ledger, after the door: `test_a_conflict_gives_way_to_every_earlier_word`": [
        (word, "conflict") for word in ORDER[:-2]
    ]
}
EXCLUDED = {
    "a body that is not there is not large, has no ref and no data": [
        ("no_body", "too_large"),
        ("no_body", "undeclared_ref"),
        ("no_body", "invalid_data"),
    ],
    "one moment is not both before and after arrival": [("stale", "early")],
    "an entry that ended its process three times alone is buried without a look, so no other word is found for it": [
        (word, "crashed") for word in ORDER[:-1]
    ],
}
MATRIX = Matrix(ORDER, FAULTS, EXCLUDED | IN_THE_LEDGER)
TRIGGERS = [
    {"ref": ref, "data": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    for ref in ("new_item", "shared_item", "saved_item")
]


def word(slots: dict[str, Any]) -> str | None:
    """Return the word for the entry of these slots, or None where it is admitted."""
    authority = _rows(slots).snapshot("acme")
    entry = StreamEntry("acme", stream_of("acme"), f"{NOW * 1000}-0", _fields(slots), 1)
    verdict = admit(entry, authority, NOW * 1_000_000, 300.0)
    return verdict.word if isinstance(verdict, Turned) else None


def _rows(slots: dict[str, Any]) -> MemoryAuthority:
    rows, home = MemoryAuthority(), slots.get("home", "acme")
    rows.put_principal(Principal(home, "ana", "human", operator=False, disabled="principal" in slots))
    rows.put_session(Session("s1", home, "ana", slots.get("ends", NOW + 1) * 1_000_000, revoked="session" in slots))
    activation = Activation("a1", home, "s1", "mail", None, None, "activation" in slots, Credential(SECRET))
    rows.put_activation(activation)
    if slots.get("installed", True):
        manifest = json.dumps(surface(stimulusTriggers=TRIGGERS)).encode()
        pack = read_pack(manifest, json.dumps(policy()).encode(), b"# Mail\n")
        for tenant in ("acme", "other"):
            rows.put_revision(PackRevision(tenant, 1, pack, {}))
    return rows


def _fields(slots: dict[str, Any]) -> dict[bytes, bytes]:
    data = {"n": 1} if slots.get("data") is None else slots["data"]
    written = json.dumps({"ref": slots.get("ref", "new_item"), "data": data, **slots.get("more", {})}).encode()
    body = slots.get("body", written)
    signed = (b"" if body is None else body) + b" " * slots.get("padding", 0)
    names = slots.get("c", "a1"), slots.get("i", "m1"), slots.get("t", f"{NOW}")
    built = build_entry(slots.get("s") or SECRET, *names, signed)
    fields = {key.encode(): value if isinstance(value, bytes) else value.encode() for key, value in built.items()}
    fields |= {b"v": slots.get("v", b"1")} | ({slots["field"]: b"x"} if "field" in slots else {})
    gone = ({b"b"} if body is None else set()) | ({b"s"} if slots.get("s", SECRET) is None else set())
    return {name: value for name, value in fields.items() if name not in gone}


def test_the_table_is_the_designs():
    """Every word of DESIGN §7, in its order; none is missing here and none more is in the code."""
    assert list(INTAKE_WORDS) == ORDER


def test_every_pair_is_tested_or_excluded():
    """No two words are left out silently, and no pair is called impossible that the faults here bring about."""
    assert MATRIX.wrong() == []


def test_without_a_fault_it_is_admitted():
    """The control: the entry that every fault is put on is an event."""
    assert word({}) is None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.refusal}-{fault.name}")
def test_each_fault_alone_is_its_word(fault):
    """So a fault that is put on beside another does apply."""
    assert word(fault.slots) == fault.refusal


@pytest.mark.parametrize("pair", MATRIX.pairs, ids=" before ".join)
def test_of_two_at_once_the_first_wins(pair):
    """In every way the two can be brought about together: the earlier word."""
    worlds = {f"{one.name}, {other.name}": merged(one, other) or {} for one, other in MATRIX.both(*pair)}

    assert {names: word(slots) for names, slots in worlds.items()} == dict.fromkeys(worlds, pair[0])


@pytest.mark.parametrize("refusal", ORDER[:-2])
def test_with_all_later_ones_at_once_the_first_wins(refusal):
    """Each fault of it, and one of every later word that can join; at least one entry has all."""
    joined = [MATRIX.all_later(first) for first in MATRIX.faults[refusal]]

    assert [word(merged(*faults) or {}) for faults in joined] == [refusal] * len(joined)
    assert [] in [MATRIX.left_out(faults) for faults in joined]


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """A recorder on each of the two databases."""
    bench = IntakeBench(tmp_path, database)
    yield bench
    bench.close()


def _disable(bench: IntakeBench, who: str) -> None:
    bench.rows.change(tables.PrincipalRow, {"id": who}, disabled_at=1)


ROWS: dict[str, Callable[[IntakeBench, str], None]] = {
    "activation_revoked": lambda bench, who: bench.rows.change(tables.ActivationRow, {"id": f"a-{who}"}, revoked_at=1),
    "session_revoked": lambda bench, who: bench.rows.change(tables.SessionRow, {"id": f"ses-{who}"}, revoked_at=1),
    "principal_disabled": _disable,
    "expired": lambda bench, who: bench.rows.change(tables.SessionRow, {"id": f"ses-{who}"}, expires_at=1),
    "pack_missing": lambda bench, who: bench.rows.change(tables.PackRow, {"pack_id": "mail"}, generation=None),
}
"""What is wrong with a row, for the principal of that name."""
ENTRIES: dict[str, dict[str, Any]] = {
    "no_body": {"fields": {b"b": b""}},
    "too_large": {"body": b'{"ref":"new_item","data":{}}' + b" " * BODY_LIMIT},
    "unknown_credential": {"fields": {b"c": b"nobody"}},
    "bad_signature": {"fields": {b"s": b"0" * 64}},
    "stale": {"signed_at": "1"},
    "early": {"signed_at": "9999999999"},
    "malformed": {"body": b"[]"},
    "unknown_field": {"tenant_id": "t-blue"},
    "undeclared_ref": {"ref": "never_declared"},
    "invalid_data": {"ref": "counted_item", "data": {"n": "x"}},
}
"""What is wrong with an entry."""


@pytest.mark.case("C59")
def test_a_conflict_gives_way_to_every_earlier_word(bench):
    """The message id was used for another body, and something else is wrong: the word is that of the other fault."""
    told = {}
    words = [one for one in ORDER[:-1] if one != "pack_missing"]
    for who in [*(one.replace("_", "-") for one in words), "pack-missing"]:
        at = who.replace("-", "_")
        bench.rows.principal(who)
        bench.activate(f"a-{who}", who)
        first = {"activation": f"a-{who}", "message_id": "m-1"}
        assert bench.record(bench.entry(**first)) == {"accepted": 1}
        if at in ROWS:
            ROWS[at](bench, who)
        told[at] = bench.record(bench.entry(**first, **{"data": {"n": 2}, **ENTRIES.get(at, {})}))

    assert told == {one: {one: 1} for one in ORDER[:-1]}
