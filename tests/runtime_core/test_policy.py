"""policy.json at its door: the schema of §4.1, strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime_core.errors import PackParseError
from runtime_core.pack_file import FILE_LIMIT
from runtime_core.policy import parse_policy

CASES = Path(__file__).parents[1] / "cases"
READ = {"operation": "read", "privacy": {"land": "personal"}}
WRITE = {"operation": "write", "privacy": {"land": "brain"}, "confirm": True}


def policy(**changes: Any) -> bytes:
    """Return a good policy with top-level fields replaced; `...` takes one away."""
    whole = {"surface_id": "mail", "version": 1, "verbs": {"a": READ, "b": WRITE}, "stimuli": {"s": READ}, **changes}
    return json.dumps({name: value for name, value in whole.items() if value is not ...}).encode()


def refusal(raw: bytes) -> str:
    """Return the message of the refusal, which is one about this file and in one line."""
    with pytest.raises(PackParseError) as caught:
        parse_policy(raw)
    assert caught.value.file == "policy"
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_good_policy() -> None:
    """Every field is read as it stands."""
    read = parse_policy(policy())
    assert (read.surface_id, read.version, list(read.verbs)) == ("mail", 1, ["a", "b"])
    assert (read.verbs["b"].operation, read.verbs["b"].privacy.land, read.verbs["b"].confirm) == (
        "write",
        "brain",
        True,
    )
    assert [entry.says_confirm for entry in read.verbs.values()] == [False, True]


@pytest.mark.spec("4.1.stimuli-default")
def test_stimuli_default_to_none() -> None:
    """Without stimuli the file has none; null is not absence."""
    assert parse_policy(policy(stimuli=...)).stimuli == {}
    assert refusal(policy(stimuli=None)) == "policy.json /stimuli: must be an object, not null"


@pytest.mark.spec("4.0.object")
@pytest.mark.parametrize(("raw", "kind"), [(b"[]", "a list"), (b"null", "null"), (b'"x"', "text"), (b"1", "a number")])
def test_not_an_object(raw: bytes, kind: str) -> None:
    """A policy that is no object is refused."""
    assert refusal(raw) == f"policy.json: must be an object, not {kind}"


@pytest.mark.spec("4.0.strict")
@pytest.mark.parametrize(
    ("place", "raw"),
    [
        ("/owner", policy(owner="x")),
        ("/verbs/a/role", policy(verbs={"a": {**READ, "role": "admin"}})),
        ("/verbs/a/privacy/tenant", policy(verbs={"a": {**READ, "privacy": {"land": "brain", "tenant": "t"}}})),
        ("/stimuli/s~1t/to", policy(stimuli={"s/t": {**READ, "to": None}})),
    ],
)
def test_unknown_fields(place: str, raw: bytes) -> None:
    """An unknown field fails the parse, at any level, and is named by its place."""
    assert refusal(raw) == f"policy.json {place}: unknown field"


@pytest.mark.spec("4.1.version")
@pytest.mark.parametrize(
    ("version", "found"),
    [
        (True, "true"),
        (1.0, "1.0"),
        ("1", '"1"'),
        (None, "null"),
        (2, "2"),
        (0, "0"),
        ([1], "a list"),
        ({}, "an object"),
    ],
)
def test_version_by_type_and_value(version: object, found: str) -> None:
    """Only the integer 1 is version 1."""
    assert refusal(policy(version=version)) == f"policy.json /version: must be the integer 1, not {found}"


@pytest.mark.spec("4.3.1")
@pytest.mark.spec("4.3.3")
@pytest.mark.parametrize("land", ["tenant", "Personal", "", "brain ", None, 1, ["brain"]])
def test_land_tokens(land: object) -> None:
    """A land token other than the three is refused."""
    message = refusal(policy(stimuli={"s": {"operation": "read", "privacy": {"land": land}}}))
    assert message.startswith("policy.json /stimuli/s/privacy/land: must be 'personal', 'brain' or 'local', not ")


@pytest.mark.parametrize(
    ("place", "raw"),
    [
        ("/surface_id", policy(surface_id=...)),
        ("/version", policy(version=...)),
        ("/verbs", policy(verbs=...)),
        ("/verbs/a/privacy", policy(verbs={"a": {"operation": "read"}})),
        ("/verbs/a/operation", policy(verbs={"a": {"privacy": {"land": "brain"}}})),
        ("/verbs/a/privacy/land", policy(verbs={"a": {"operation": "read", "privacy": {}}})),
    ],
)
def test_required_fields(place: str, raw: bytes) -> None:
    """A missing field is named by the place where it should stand."""
    assert refusal(raw) == f"policy.json {place}: required field is missing"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (policy(surface_id=None), "/surface_id: must be text, not null"),
        (policy(verbs=[]), "/verbs: must be an object, not a list"),
        (policy(verbs={"a": None}), "/verbs/a: must be an object, not null"),
        (
            policy(verbs={"a": {**READ, "operation": "READ"}}),
            "/verbs/a/operation: must be 'read' or 'write', not \"READ\"",
        ),
        (policy(verbs={"a": {**READ, "privacy": None}}), "/verbs/a/privacy: must be an object, not null"),
        (policy(verbs={"a": {**WRITE, "confirm": "true"}}), '/verbs/a/confirm: must be true or false, not "true"'),
        (policy(verbs={"a": {**WRITE, "confirm": 1}}), "/verbs/a/confirm: must be true or false, not 1"),
        (policy(verbs={"a": {**WRITE, "confirm": None}}), "/verbs/a/confirm: must be true or false, not null"),
    ],
)
def test_types_are_strict(raw: bytes, message: str) -> None:
    """No value is turned into another type, and null is never absence."""
    assert refusal(raw) == f"policy.json {message}"


def test_many_faults_make_one_line() -> None:
    """The first fault is told in full, the others are counted."""
    verbs = {f"v{n}": {"operation": "read"} for n in range(50)}
    assert refusal(policy(verbs=verbs)) == "policy.json /verbs/v0/privacy: required field is missing (and 49 more)"


@pytest.mark.case("C20")
@pytest.mark.parametrize(
    ("name", "place", "key"),
    [
        ("C20-duplicate-operation.json", "/verbs/mail.send/operation (line 3, column 44)", "operation"),
        ("C20-duplicate-entry.json", "/verbs/mail.send (line 4, column 11)", "mail.send"),
        ("C20-duplicate-stimuli.json", "/stimuli (line 5, column 2)", "stimuli"),
    ],
)
def test_the_handed_duplicates(name: str, place: str, key: str) -> None:
    """A key that stands twice is named; no copy wins."""
    assert refusal((CASES / name).read_bytes()) == f'policy.json {place}: the key "{key}" stands twice'


@pytest.mark.case("C20")
def test_a_duplicate_by_another_spelling() -> None:
    """A key written with an escape is the same key."""
    raw = policy().replace(b'"b": {', b'"\\u0061": {')
    assert 'the key "a" stands twice' in refusal(raw)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("C06-invalid-utf8.bin", "encoding error: not UTF-8", marks=pytest.mark.case("C06")),
        pytest.param("C07-nan-event.json", "'NaN' is no JSON number", marks=pytest.mark.case("C07")),
        pytest.param("C07-infinity-event.json", "'Infinity' is no JSON number", marks=pytest.mark.case("C07")),
        pytest.param("C08-deep-array.json", "nested deeper than 64 levels", marks=pytest.mark.case("C08")),
        pytest.param("C08-deep-object.json", "nested deeper than 64 levels", marks=pytest.mark.case("C08")),
        pytest.param("C08-long-int.json", "an integer of 5000 digits", marks=pytest.mark.case("C08")),
        pytest.param("C09-nul-key.json", "NUL (\\u0000) in text", marks=pytest.mark.case("C09")),
        pytest.param("C09-nul-value.json", "NUL (\\u0000) in text", marks=pytest.mark.case("C09")),
        pytest.param("C22-bom-policy.json", "begins with a UTF-8 byte-order mark", marks=pytest.mark.case("C22")),
        pytest.param("C22-utf16-policy.json", "encoding error: UTF-16", marks=pytest.mark.case("C22")),
    ],
)
def test_handed_documents(name: str, reason: str) -> None:
    """The handed documents are refused as policy.json, with their reason."""
    assert reason in refusal((CASES / name).read_bytes())


@pytest.mark.case("C08")
def test_a_policy_of_32_mib() -> None:
    """A text of 32 MiB is refused by its size, naming the limit; a file at the limit is read."""
    assert (
        refusal(b'{"surface_id":"' + b"x" * (32 << 20) + b'"}') == "policy.json: 33554449 bytes, the limit is 1048576"
    )
    assert parse_policy(policy() + b" " * (FILE_LIMIT - len(policy()))).surface_id == "mail"
