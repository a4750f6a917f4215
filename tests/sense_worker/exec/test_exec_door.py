"""The door of requests: its words in their order, closed documents, limits."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from runtime_core.envelope import ENVELOPE_LIMIT
from runtime_core.errors import INTAKE_WORDS, DoorError
from runtime_core.identity import Credential, Session
from sense_worker.exec.door import SEALED_LIMIT, Asked, RefusedExec, Withdrawn, admit_exec, exec_id
from sense_worker.exec.request import REQUEST_LIMIT, parse_request
from sense_worker.exec.wire import build_request
from sense_worker.intake.stream import StreamEntry

NOW = 1_780_315_200_000_000
SECRET = b"secret-of-ana"
PLAIN: dict[str, Any] = {
    "v": 1,
    "session_id": "ses-1",
    "message_id": "m-1",
    "project_id": None,
    "timeout_ms": 30_000,
    "idempotency_key": None,
    "lane": "interactive",
    "envelope": {"pack_id": "git", "verb_key": "git.log", "args": {"limit": 3}},
}
CANCEL: dict[str, Any] = {"v": 1, "session_id": "ses-1", "message_id": "m-1", "cancel": "m-0", "force": False}
WORDS = ["no_body", "too_large", "unknown_credential", "bad_signature", "stale", "early", "malformed", "unknown_field"]


def admitted(
    plain: dict[str, Any] | bytes = PLAIN,
    *,
    signed_at: str = "1780315200",
    secret: bytes = SECRET,
    arrival: int = NOW,
    credential: Credential = Credential(SECRET),  # noqa: B008 - frozen
    **changed: bytes,
) -> Asked | Withdrawn | RefusedExec:
    """Send a request through the door, its entry's fields replaced by `changed`, an empty value taking one away."""
    raw = plain if isinstance(plain, bytes) else json.dumps(plain).encode()
    built = build_request(secret, "ses-1", "m-1", signed_at, raw)
    fields = {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in built.items()}
    fields = {name: value for name, value in (fields | {k.encode(): v for k, v in changed.items()}).items() if value}
    session = Session("ses-1", "t-red", "ana", NOW, False, credential)
    authority = SimpleNamespace(session={"ses-1": session}.get)
    return admit_exec(StreamEntry("t-red", "sense:t-red:exec", f"{NOW // 1000}-0", fields, 1), authority, arrival, 300)


def word(*arguments: Any, **changed: Any) -> str:
    found = admitted(*arguments, **changed)
    assert isinstance(found, RefusedExec), found
    return found.word


def test_a_request_is_admitted():
    """A signed and sealed request comes out as it went in, with its sender."""
    found = admitted()
    assert isinstance(found, Asked)
    assert found.request.model_dump() == PLAIN
    assert (found.envelope.verb_key, found.signed_at) == ("git.log", NOW)
    assert (found.sender.session.principal, found.sender.secret, found.sender.message_id) == ("ana", SECRET, "m-1")
    cancel = admitted(CANCEL)
    assert isinstance(cancel, Withdrawn)
    assert (cancel.request.cancel, cancel.request.force) == ("m-0", False)


def test_each_fault_has_its_word_and_the_first_wins():
    """An entry with every fault is told the first; with that mended the next, in the order of the table."""
    faults: dict[str, dict[str, Any]] = {
        "no_body": {"b": b""},
        "too_large": {"b": b"x" * (SEALED_LIMIT + 1)},
        "unknown_credential": {"c": b"ses-none"},
        "bad_signature": {"s": b"0" * 64},
        "stale": {"arrival": NOW + 301_000_000},
        "malformed": {"v": b"2"},
        "unknown_field": {"tenant": b"t-blue"},
    }
    for first in range(len(faults)):
        left = dict(list(faults.items())[first:])
        given: dict[str, Any] = {}
        for fault in reversed(left.values()):  # of two bodies the earlier word's stands
            given |= fault
        assert word(**given) == next(iter(left))
    assert word(arrival=NOW - 301_000_000) == "early"
    assert [one for one in INTAKE_WORDS if one in WORDS] == WORDS
    gone = StreamEntry("t-red", "sense:t-red:exec", f"{NOW // 1000}-0", None, 2)
    found = admit_exec(gone, SimpleNamespace(session={}.get), NOW, 300)
    assert (found.word, found.sender) == ("no_body", None)


def test_only_a_known_sender_is_answered():
    """What is refused before the signature verified has no sender to answer; what is refused after has."""
    for changed in ({"b": b""}, {"c": b"ses-none"}, {"s": b"0" * 64}):
        assert admitted(**changed).sender is None
    for late in ({"arrival": NOW + 301_000_000}, {"v": b"2"}, {"x": b"1"}):
        assert admitted(**late).sender.secret == SECRET


@pytest.mark.case("C13")
def test_every_field_of_the_entry_is_bound():
    """An entry with one field of another's is refused: nothing is told of what it holds."""
    other = build_request(SECRET, "ses-1", "m-2", "1780315201", json.dumps(PLAIN).encode())
    for name in "itsb":
        value = other[name]
        assert word(**{name: value if isinstance(value, bytes) else value.encode()}) == "bad_signature"
    assert word({**PLAIN, "message_id": "m-2"}) == "malformed"
    assert word({**PLAIN, "session_id": "ses-2"}) == "malformed"
    assert word({**CANCEL, "message_id": "m-2"}) == "malformed"


def test_a_rotation_overlaps():
    """Within the overlap either secret opens the door, and is the one that the reply is sealed under."""
    both = Credential(b"new", SECRET, NOW + 1)
    for secret in (b"new", SECRET):
        assert admitted(secret=secret, credential=both).sender.secret == secret
    assert word(credential=Credential(b"new", SECRET, NOW)) == "bad_signature"
    assert word(credential=Credential(b"")) == "bad_signature"


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": True},
        {"v": 1.0},
        {"project_id": 1},
        {"timeout_ms": 0},
        {"timeout_ms": 1.5},
        {"timeout_ms": "1000"},
        {"timeout_ms": 86_400_001},
        {"idempotency_key": ""},
        {"idempotency_key": "a b"},
        {"idempotency_key": "x" * 129},
        {"lane": "fast"},
        {"envelope": None},
        {"envelope": []},
        {"envelope": {"pack_id": "git", "verb_key": "git.log"}},
        {"envelope": {"pack_id": "git", "verb_key": "git.log", "args": None}},
        {"envelope": {"pack_id": "GIT", "verb_key": "git.log", "args": {}}},
        {"envelope": {"pack_id": "git", "surface_id": "git", "verb_key": "git.log", "args": {}}},
    ],
    ids=repr,
)
def test_a_request_out_of_form_is_malformed(change):
    """Each member has its type and range; null is never absent."""
    assert word(PLAIN | change) == "malformed"


@pytest.mark.parametrize("name", list(PLAIN))
def test_no_member_may_be_left_out(name):
    """A request without one of its members is malformed."""
    assert word({key: value for key, value in PLAIN.items() if key != name}) == "malformed"


@pytest.mark.case("C13")
def test_a_further_member_is_refused():
    """A request, a cancel and an envelope are closed: nothing in them can name a tenant or a principal."""
    for name in ("tenant", "principal", "confirm", "X"):
        assert word(PLAIN | {name: "x"}) == "unknown_field"
        assert word(CANCEL | {name: "x"}) == "unknown_field"
        assert word(PLAIN | {"envelope": PLAIN["envelope"] | {name: "x"}}) == "unknown_field"


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b"\xff{}", b'{"v":1,"v":1}', b'{"v":NaN}', b"\xef\xbb\xbf{}", b'{"a":"\\u0000"}']
)
def test_what_is_no_strict_json_is_malformed(raw):
    """The plain request passes the one strict parser."""
    assert word(raw) == "malformed"


def test_a_request_at_its_limit_is_read():
    """An envelope of 262144 bytes fits with the fields around it; a plain request over its limit is too large."""
    args = {"x": ""}
    request = PLAIN | {"envelope": PLAIN["envelope"] | {"args": args}}
    args["x"] = "x" * (ENVELOPE_LIMIT - len(json.dumps(request["envelope"])))
    assert isinstance(admitted(request), Asked)
    args["x"] += "x" * (REQUEST_LIMIT - len(json.dumps(request)))
    assert isinstance(admitted(request), Asked)
    args["x"] += "x"
    assert word(request) == "too_large"
    with pytest.raises(DoorError):
        parse_request(json.dumps(request).encode())


def test_two_requests_of_one_meaning_have_one_digest():
    """What an idempotency key compares is what is asked for, however it is written, and not how long it may take."""
    one, turned = admitted(), admitted(dict(reversed(PLAIN.items())) | {"timeout_ms": 1, "lane": "bulk"})
    assert one.digest == turned.digest
    assert admitted(PLAIN | {"project_id": "apollo"}).digest != one.digest
    assert admitted(PLAIN | {"envelope": PLAIN["envelope"] | {"args": {"limit": 4}}}).digest != one.digest


def test_the_id_of_a_request_keeps_its_parts_apart():
    """Tenant, session and message make the id, length by length."""
    assert exec_id("ab", "c", "d") != exec_id("a", "bc", "d")
    assert len(exec_id("t", "s", "m")) == 16
