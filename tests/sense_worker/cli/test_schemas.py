"""`schema`: what the parsers take is valid, and what has another structure is refused by both."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_core.closed import Misfit, fit
from runtime_core.errors import DoorError, PackParseError
from runtime_core.event import parse_body
from runtime_core.manifest import Manifest, parse_manifest
from runtime_core.policy import parse_policy
from sense_worker.cli import main
from sense_worker.cli.schemas import Document, schema_of
from sense_worker.scenario.model import Scenario
from sense_worker.scenario.yaml_text import parse_yaml

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "tests/cases"
_PARSERS = {Document.POLICY: parse_policy, Document.MANIFEST: parse_manifest, Document.EVENT: parse_body}
_VALIDATORS = {document: jsonschema_rs.Draft202012Validator(schema_of(document)) for document in Document}

ENTRY = {"operation": "write", "privacy": {"land": "brain"}, "confirm": True}
WRAP = {
    "cli": ["log", ["-n", "{limit}"], {"flag": "--all", "when": "all", "host": False}],
    "args": {"type": "object", "properties": {"limit": {"type": "integer"}}},
    "summary": "List",
    "connect": False,
}
STEP = {"pack_id": "git", "verb_key": "git.log", "args": {"a": {"$arg": "x"}, "b": {"$step": [0, "k", 1]}, "c": [1]}}
MANIFEST = {
    "id": "git",
    "version": "1.0.0",
    "title": "Git",
    "plane": "control",
    "family": "git",
    "adapter": {"kind": "wrap", "bin": "git"},
    "binding": {"mode": "user", "hub": "keyring", "env": {"TOKEN": "secret"}, "headers": {"X-Key": "secret"}},
    "sandbox": {"posture": "native-local", "bins": ["git"], "timeout_s": 2.5, "output_limit": 10, "env": ["LANG"]},
    "verbs": {"git.log": WRAP},
    "stimulusTriggers": [{"ref": "commit.created", "summary": "A commit", "data": True}],
    "colour": "green",
}
COMPOSITE = {"id": "all", "adapter": "composite", "verbs": {"all.run": {"steps": [{"verb_key": "x"}, STEP]}}}
OPENAPI = {"id": "web", "adapter": {"kind": "openapi", "document": "{}"}, "verbs": {"web.get": {"operationId": "get"}}}
GRANT = {
    "principal": "ana",
    "capability": "sense.enable",
    "pack": "git",
    "keys": ["x"],
    "project": "apollo",
    "expires": "+1h",
}
ACTIVATION = {"principal": "ana", "pack": "git", "project": "apollo", "workspace": True}
SCENARIO = {
    "scenario": 1,
    "now": "2026-06-01T12:00:00Z",
    "packs": ["../packs/git", {"surface": {}, "policy_text": "{}"}],
    "rejected": {"git": "lint"},
    "lint": {"git": ["extra_verb"]},
    "projects": {"apollo": "acme"},
    "principals": {"ana": {"kind": "human", "tenant": "acme", "projects": [], "operator": True, "expires": "-2h"}},
    "sessions": {"s2": {"principal": "ana", "tenant": "other"}},
    "grants": [GRANT],
    "activations": {"a1": {"session": "s2", "pack": "git"}},
    "routes": {"r1": {"principal": "ana", "pack": "git", "ref": "*", "sink": {"project": "apollo"}}},
    "connected": ["ana/git"],
    "cases": [
        {
            "name": "x",
            "sense": {"activation": 1, "ref": None, "id": 2, "hold": True, "message": {"a": None}},
            "expect": {},
        },
        {"sense": {"activation": "a1", "raw": "{"}, "expect": {"refused": "malformed"}},
        {"exec": {"session": "s2", "project": None, "face": "cli", "envelope": {}}, "expect": {"ok": False}},
        {"install": {"principal": "ana", "pack": None}, "expect": {}},
        {"available": {"principal": "ana", "pack": "git"}, "expect": {}},
        {"again": "x", "expect": {}},
        {"step": {"grant": GRANT}},
        {"step": {"leave": {"principal": "ana", "project": "apollo"}}},
        {"step": {"activate": {**ACTIVATION, "name": "a3"}}},
        {"step": {"disable": "ana"}},
        {"step": {"pause": "inbox"}},
        {"step": {"replace": {"surface_text": "", "policy": None}}},
        {"step": {"clock": "+400s"}},
    ],
}
GOOD: list[tuple[Document, Any]] = [
    (Document.POLICY, {"surface_id": "git", "version": 1, "verbs": {"a": ENTRY}, "stimuli": {"b": ENTRY}}),
    (Document.MANIFEST, MANIFEST),
    (Document.MANIFEST, COMPOSITE),
    (Document.MANIFEST, OPENAPI),
    (Document.MANIFEST, {"id": "s", "adapter": "sense_only"}),
    (
        Document.EVENT,
        {"ref": "new_item", "data": {"n": [1]}, "subject": "x" * 256, "occurred_at": "2026-06-01T12:00:00.5+02:00"},
    ),
    (Document.SCENARIO, SCENARIO),
]


def parser_takes(document: Document, value: Any) -> bool:
    """Tell whether the parser reads the value."""
    try:
        if document is Document.SCENARIO:
            fit(Scenario, value)
        else:
            _PARSERS[document](json.dumps(value).encode())
    except (Misfit, PackParseError, DoorError):
        return False
    return True


def schema_takes(document: Document, value: Any) -> bool:
    """Tell whether the schema does."""
    return _VALIDATORS[document].is_valid(value)


def places(value: Any, at: tuple[Any, ...] = ()) -> Any:
    """Yield the path of everything within a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from places(inner, (*at, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy with one place set, or taken away (`...`)."""
    changed = inner = copy.deepcopy(value)
    for key in path[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return changed


def differ(document: Document, value: Any) -> bool:
    """Tell whether model and schema disagree; what goes across the fields of a manifest is not the model's."""
    if document is Document.MANIFEST:
        try:
            fit(Manifest, value)
        except Misfit:
            return schema_takes(document, value)
        return not schema_takes(document, value)
    return parser_takes(document, value) != schema_takes(document, value)


@pytest.mark.parametrize("document", Document)
def test_it_is_printed_as_a_schema_of_2020_12(document, capsys):
    """One JSON document with title and description and no id; nothing in it is fetched from elsewhere."""
    assert main.run(["schema", document]) == 0
    shown = capsys.readouterr()
    schema = json.loads(shown.out)

    assert (shown.err, schema == schema_of(document)) == ("", True)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert (bool(schema["title"]), bool(schema["description"]), "$id" in schema) == (True, True, False)
    assert jsonschema_rs.meta.is_valid(schema)


def test_an_unknown_document_is_a_wrong_call(capsys):
    """The known ones are named."""
    assert main.run(["schema", "harness"]) == 2
    told = capsys.readouterr().err
    assert [document for document in Document if document not in told] == []


@pytest.mark.parametrize(("document", "value"), GOOD)
def test_a_full_document_is_taken_by_both(document, value):
    """Every field that there is, in its most uncommon form."""
    assert (parser_takes(document, value), schema_takes(document, value)) == (True, True)


@pytest.mark.parametrize(("document", "value"), GOOD)
@pytest.mark.parametrize(
    "new", [..., None, True, 0, 1, 2**40, -1.5, "", "x", "a b", "x" * 300, [], [[]], {}, {"x": 1}], ids=repr
)
def test_a_change_anywhere_is_judged_alike(document, value, new):
    """Each place of a full document taken away or set to another kind of value; a schema within is its own matter."""
    within = [path for path in places(value) if not {"args", "data", "envelope", "message"} & set(path[:-1])]
    wrong = [(path, new) for path in within if differ(document, put(value, path, new))]
    assert wrong == []


@pytest.mark.parametrize(("document", "value"), GOOD)
def test_an_unknown_field_anywhere_is_judged_alike(document, value):
    """Closed where the parser is closed; the manifest alone tolerates one at its top."""
    for path in [(), *places(value)]:
        inner = value
        for key in path:
            inner = inner[key]
        if isinstance(inner, dict):
            changed = put(value, (*path, "colour"), "green")
            assert not differ(document, changed), path


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_documents_made_of_the_words_of_the_form_are_judged_alike(data):
    """Objects that Hypothesis makes of the names and values that policies and events have."""
    scalars = st.sampled_from(["read", "write", "personal", "local", "git", "", True, False, 1, 2, None])
    names = st.sampled_from(["operation", "privacy", "land", "confirm", "verbs", "stimuli", "surface_id", "version"])
    objects = st.recursive(scalars, lambda inner: st.dictionaries(names, inner, max_size=4), max_leaves=8)
    fields = {"surface_id": scalars, "version": scalars, "verbs": objects}
    policy = data.draw(st.fixed_dictionaries(fields, optional={"stimuli": objects}))
    event = data.draw(
        st.fixed_dictionaries(
            {"ref": st.text(max_size=4) | st.just("new_item")},
            optional={"data": objects, "subject": st.text(max_size=300) | scalars, "occurred_at": scalars},
        )
    )
    assert not differ(Document.POLICY, policy)
    assert not differ(Document.EVENT, event)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (Document.EVENT, "2026-06-01T12:00:00Z"),
        (Document.EVENT, "2026-06-01t12:00:00z"),
        (Document.EVENT, "2016-12-31T23:59:60Z"),
        (Document.EVENT, "2026-06-01T12:00:00"),
        (Document.EVENT, "2026-06-01T24:00:00Z"),
        (Document.EVENT, "2026-06-01T12:00:00Z\n"),
        (Document.EVENT, "2026-06-01"),
        (Document.EVENT, "٢026-06-01T12:00:00Z"),
    ],
)
def test_moments_are_judged_alike(document, text):
    """All but the calendar."""
    assert not differ(document, {"ref": "x", "data": {}, "occurred_at": text})


def test_names_are_matched_whole_in_both():
    """A line break at the end is no part of a name."""
    for name in ("new_item", "new_item\n", "new item", ".x", "x" * 128, "x" * 129, "é", "x\u0301"):
        assert not differ(Document.EVENT, {"ref": name, "data": {}}), name
        assert not differ(Document.MANIFEST, {"id": "s", "adapter": "wrap", "verbs": {name: {}}}), name


@pytest.mark.parametrize("path", sorted((ROOT / "examples/packs").glob("*/*.json")), ids=str)
def test_the_example_packs_are_valid(path):
    """What an editor shows while one writes a pack."""
    document = {"policy.json": Document.POLICY, "surface.json": Document.MANIFEST}[path.name]
    assert schema_takes(document, json.loads(path.read_text()))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda path: path.name)
def test_the_example_scenarios_are_valid(path):
    """The same for scenarios."""
    assert schema_takes(Document.SCENARIO, parse_yaml(path.read_text()))


@pytest.mark.case("C21")
@pytest.mark.parametrize("name", sorted(path.name for path in CASES.glob("C21-*.json")))
def test_the_handed_policies_are_judged_alike(name):
    """Each nearly right policy is refused by the schema where its parse fails, and valid where only lint objects."""
    value = json.loads((CASES / name).read_text())
    if name != "C21-index.json":
        assert not differ(Document.POLICY, value)


def test_what_a_schema_cannot_say_is_said_by_the_parser_alone():
    """The list in the module: each rule has a document that is valid and refused."""
    alone = [
        (Document.EVENT, {"ref": "x", "data": {}, "occurred_at": "2026-02-30T12:00:00Z"}),
        (Document.EVENT, {"ref": "x", "data": {}, "occurred_at": "2026-06-01T12:00:60Z"}),
        (Document.POLICY, {"surface_id": "x", "version": 1.0, "verbs": {}}),
        (Document.MANIFEST, {"id": "x", "adapter": "sense_only", "verbs": {"a": {}}}),
        (Document.MANIFEST, {"id": "x", "adapter": {"kind": "openapi", "bin": "x"}}),
        (Document.MANIFEST, {"id": "x", "adapter": "composite", "verbs": {"a": {"steps": [STEP]}}}),
        (Document.MANIFEST, {**MANIFEST, "stimulusTriggers": [{"ref": "x", "data": {"$ref": "https://a.example/"}}]}),
        (Document.SCENARIO, {"scenario": 1, "now": "9999-01-01T00:00:00Z"}),
    ]
    for document, value in alone:
        assert (parser_takes(document, value), schema_takes(document, value)) == (False, True), value
