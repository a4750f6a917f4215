"""Scenario files, as JSON and as YAML: read, and run where they can be; a wrong one ends with a place and a reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runtime_core.errors import DoorError
from runtime_core.strict_json import parse
from sense_worker.scenario.read import FILE_LIMIT, ScenarioError, _document, load
from sense_worker.scenario.run import run
from sense_worker.scenario.yaml_text import parse_yaml
from tests.fuzz.door import CORPUS, Door, corpus, one_line
from tests.fuzz.json_doors import check_value, exact
from tests.fuzz.mutation import TOKENS, chance, drawn, json_bytes, with_bytes
from tests.fuzz.pack_doors import PARTS as PACK_PARTS
from tests.fuzz.pack_doors import WORDS as PACK_WORDS

if TYPE_CHECKING:
    import random

FOLDER = CORPUS / "scenario"
TEXTS = [raw.decode() for raw in corpus("scenario")]
DOCUMENTS = [json.dumps(parse_yaml(text)) for text in TEXTS]
TOP = (
    *("scenario", "now", "packs", "rejected", "lint", "projects", "principals", "sessions", "grants", "activations"),
    *("routes", "connected", "cases"),
)
WORDS = (
    *TOP,
    *("name", "sense", "exec", "install", "available", "step", "again", "expect", "hold", "message", "raw"),
    *("envelope", "face"),
    *("grant", "revoke", "join", "leave", "activate", "deactivate", "disable", "enable", "revoke_session"),
    *("connect", "clock"),
    *("disconnect", "pause", "resume", "remove", "replace", "principal", "session", "pack", "project"),
    *("workspace", "keys"),
    *("capability", "expires", "tenant", "kind", "operator", "surface", "policy", "surface_text"),
    *("policy_text", "ana", "bo"),
    *("git", "a1", "r1", "apollo", "refused", "id", "subject", "activation", "sink", "ok", "error", *PACK_WORDS[:30]),
)
PARTS: tuple[Any, ...] = (
    *("ana", "bo", "git", "mail", "a1", "r1", "s2", "apollo", "acme", "inbox", "workspace", "own", "tenant"),
    *("ana/git", "/"),
    *("+1h", "-30s", "+999999999d", "-999999999d", "+0s", "1h", "+1w", "2026-06-01T12:00:00Z", "2026-06-01T12:00:60Z"),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-23:59", "2026-06-01T12:00:00.123456789012345678z"),
    *("sense.enable", "verb.exec.write", "pack.install", "mothership.elevate", "x" * 256),
    *("x" * 257, "k" * 300 + ".zip"),
    *("../scenario", "/", "no/such.tar.gz", {"project": "apollo"}, {"project": ""}, {"surface": 1, "policy": 2}),
    *({"surface_text": "{", "policy": {}}),
    *({"surface_text": '{"id": "bad"}', "policy_text": "\ufeff"}, {"clock": "+400s"}),
    *({"step": {"disable": "ana"}}, {"step": {"revoke_session": "ana"}}),
    *({"step": {"remove": "git"}}, {"again": "first"}),
    *({"step": {"grant": {"principal": "ana", "capability": "sense.enable", "pack": "*", "keys": []}}}, {"expect": {}}),
    *({"step": {"leave": {"principal": "ana", "project": "apollo"}}}),
    *({"step": {"pause": "inbox"}}, {"step": {"clock": "+1h"}}),
    *(),
    *(
        {"sense": {"activation": 5, "ref": [], "data": None, "id": {}, "subject": 1}, "expect": {}},
        {"tp": "x", "s": None},
    ),
    *({"sense": {"activation": "a1", "message": {"b": None, "t": 5, "\x7f": []}}, "expect": {"refused": "no_body"}}),
    *({"exec": {"session": "ana", "pack_id": [], "verb_key": 1, "args": None}, "expect": {"ok": False}}, "1.0"),
    *(1.0, True),
    *(),
    *(
        {"exec": {"activation": "a1", "raw": "{", "face": "cli"}, "expect": {}},
        {"available": {"principal": [], "pack": {}}},
    ),
)
YAML_TOKENS = (
    *("- ", ": ", "&a ", "*a", "*b", "<<: ", "!!python/object:os.system ", "!!int ", "! ", "? ", "| ", ">-\n"),
    *("---\n", "...\n"),
    *("%YAML 1.1\n", "%TAG ! !x\n", "'", '"', "#", "\t", "\n", "  ", "{", "}", "[", "]", ",", "~", "yes"),
    *("0x1F", "0o7", "1:30"),
    *("\u2028", "\x85", "\ufeff", "\x00", "\ud7ff", ".inf", ".nan", "1e999", "2026-06-01", "9" * 30),
    *("9" * 4400, "- " * 70),
    *("[" * 70, "&a [*a]", "{a: 1, a: 2}", "? [x] : y", '"\\x00"', '"\\ud800"', '"\\U0010ffff"', "="),
    *("null: 1", "k" * 1025 + ": 1"),
)
SPREADING = (b"a: &a " + b"k" * 200_000 + b"\nb: [" + b"*a," * 50_000 + b"]\n", False)
"""A long text that is named again and again: looked through each time, it would take hours."""


def _make(rng: random.Random) -> tuple[bytes, bool]:
    if chance(rng, 2):
        return json_bytes(rng, DOCUMENTS, WORDS, PARTS), not chance(rng, 6)
    kind = rng.randrange(8)
    if kind <= 3:
        return _edited(rng), not chance(rng, 4)
    text = rng.choice(TEXTS)
    if kind == 4:
        return with_bytes(rng, text.encode()), False
    lines = text.splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        line = lines[at]
        column = rng.choice((0, len(line) - len(line.lstrip()), line.find(":") + 1, rng.randrange(len(line) + 1)))
        other = rng.choice(
            (rng.choice(YAML_TOKENS), rng.choice(lines), "", rng.choice(TOKENS).decode("utf-8", "ignore"))
        )
        lines[at] = line[:column] + other + line[rng.choice((column, len(line))) :]
    return "".join(lines).encode("utf-8", "surrogatepass"), False


def _edited(rng: random.Random) -> bytes:
    """Return a scenario whose form mostly holds, with other steps and cases."""
    document = json.loads(rng.choice(DOCUMENTS))
    cases = document.setdefault("cases", [{"step": {"clock": "+1h"}}])
    for _ in range(rng.choice((1, 2, 3))):
        one = drawn(rng, rng.choice((cases, PARTS)))
        if isinstance(one, dict):
            kind = rng.choice([*one])
            if isinstance(one[kind], dict) and one[kind] and kind != "expect":
                one[kind][rng.choice([*one[kind]])] = drawn(rng, rng.choice((PARTS, PARTS, PACK_PARTS)))
            if not {"sense", "exec", "again", "available", "install"}.isdisjoint(one):
                one.setdefault("expect", {})
        cases.insert(rng.randrange(len(cases) + 1), one)
    return json.dumps(document).encode()


def _judge(given: tuple[bytes, bool]) -> str:
    raw, is_json = given
    try:
        document = _document(raw, "f", is_json=is_json)
    except ScenarioError as error:
        one_line(error)
        return "no document"
    if len(raw) % 4 == 0:  # the walk costs as much as all else, and has a door of its own
        check_value(document)
        assert not is_json or repr(exact(raw, FILE_LIMIT)) == repr(document)
    if not is_json:
        _same_as_json(raw, document)
    try:
        loaded = load(document, "f", FOLDER)
    except ScenarioError as error:
        one_line(error)
        return "refused"
    _second_look(document)
    try:
        results = run(loaded, FOLDER)
    except ScenarioError as error:
        one_line(error)
        return "not run"
    assert all(isinstance(result.ok, bool) for result in results)
    return "accepted"


def _same_as_json(raw: bytes, document: Any) -> None:
    """A file that is JSON means as YAML what it means as JSON; YAML folds three line ends that JSON does not know."""
    try:
        value = parse(raw, limit=FILE_LIMIT, what="f")
    except DoorError:
        return
    if not any(end in raw.decode() for end in ("\x85", "\u2028", "\u2029")):
        assert repr(value) == repr(document)


def _second_look(document: Any) -> None:
    assert type(document["scenario"]) is int
    assert document["scenario"] == 1
    assert set(document) <= set(TOP)
    people, sessions = document.get("principals", {}), document.get("sessions", {})
    assert all(grant["principal"] in people for grant in document.get("grants", []))
    assert all(route["principal"] in people for route in document.get("routes", {}).values())
    assert all(session["principal"] in people for session in sessions.values())
    for one in document.get("activations", {}).values():
        assert ("session" in one) != ("principal" in one)
        assert one.get("session", one.get("principal")) in {*people, *sessions}
    kinds = {"sense", "exec", "install", "available", "step", "again"}
    for case in document.get("cases", []):
        (kind,) = set(case) & kinds
        assert set(case) - {kind, "name"} == (set() if kind == "step" else {"expect"})
        assert kind != "step" or len(case["step"]) == 1


def _known() -> list[tuple[bytes, bool]]:
    return [*((text.encode(), False) for text in TEXTS), *((text.encode(), True) for text in DOCUMENTS), SPREADING]


DOORS = {"scenario": Door("scenario", _make, _judge, _known())}
