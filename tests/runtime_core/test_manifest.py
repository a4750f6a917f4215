"""surface.json at its door: the manifest profile, closed but for unknown fields at the top."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from runtime_core.errors import PackParseError
from runtime_core.manifest import Manifest, parse_manifest
from runtime_core.manifest_models import Flag

CASES = Path(__file__).parents[1] / "cases"
WRAP: dict[str, Any] = {
    "id": "git",
    "version": "1.0.0",
    "title": "Git repository",
    "plane": "runtime",
    "family": "git",
    "adapter": {"kind": "wrap", "bin": "git"},
    "binding": {"mode": "public", "hub": "none", "env": {"GIT_TOKEN": "secret"}, "headers": {"X-Api-Key": "secret"}},
    "sandbox": {"posture": "sandbox", "bins": ["git"], "timeout_s": 30, "output_limit": 1048576, "env": ["LANG"]},
    "verbs": {
        "git.log": {
            "summary": "Show commits",
            "cli": ["log", ["-n", "{limit}"]],
            "args": {"type": "object", "properties": {"limit": {"type": "integer"}}, "additionalProperties": False},
        },
        "git.commit": {
            "cli": ["commit", "-m", "{message}", {"flag": "--confirm", "when": "confirm", "host": True}],
            "args": {"properties": {"message": {"type": "string"}}, "required": ["message"]},
        },
    },
    "stimulusTriggers": [{"ref": "commit.created", "summary": "A commit", "data": {"required": ["commit"]}}],
}
COMPOSITE: dict[str, Any] = {
    "id": "flow",
    "adapter": "composite",
    "verbs": {
        "flow.all": {
            "steps": [
                {"pack_id": "git", "verb_key": "git.log", "args": {"limit": {"$arg": "limit"}}},
                {"verb_key": "flow.one", "args": {"text": {"$step": [0, "result", 3]}, "plain": {"a": [1]}}},
            ]
        },
        "flow.one": {"steps": [{"pack_id": "mail", "verb_key": "mail.list"}]},
    },
}
OPENAPI: dict[str, Any] = {
    "id": "weather",
    "adapter": {"kind": "openapi", "document": {"openapi": "3.1.0", "paths": {}}},
    "verbs": {"weather.now": {"operationId": "getNow", "args": True}},
}


def surface(document: dict[str, Any], *path: str | int, to: Any = None) -> bytes:
    """Return the document with one place set to another value; `...` takes it away."""
    whole = copy.deepcopy(document)
    part: Any = whole
    for step in path[:-1]:
        part = part[step]
    if path and to is ...:
        del part[path[-1]]
    elif path:
        part[path[-1]] = to
    return json.dumps(whole).encode()


def refusal(raw: bytes) -> str:
    """Return the message of the refusal, which is one about this file and in one line."""
    with pytest.raises(PackParseError) as caught:
        parse_manifest(raw)
    assert caught.value.file == "surface"
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("surface.json ")


class TestReading:
    def test_every_field(self) -> None:
        """The fields of the profile are read as they stand; lists become tuples."""
        read = parse_manifest(surface(WRAP))
        assert (read.id, read.version, read.title, read.plane, read.family) == (
            *("git", "1.0.0", "Git repository", "runtime", "git"),
        )
        assert (read.adapter.kind, read.bin, read.binding.mode, read.binding.hub) == ("wrap", "git", "public", "none")
        assert (read.binding.env, read.binding.headers) == ({"GIT_TOKEN": "secret"}, {"X-Api-Key": "secret"})
        assert read.sandbox.model_dump() == {
            "posture": "sandbox",
            "bins": ("git",),
            "timeout_s": 30.0,
            "output_limit": 1048576,
            "env": ("LANG",),
        }
        assert read.verbs["git.log"].cli == ("log", ("-n", "{limit}"))
        assert read.verbs["git.commit"].cli[3] == Flag(flag="--confirm", when="confirm", host=True)
        assert [trigger.ref for trigger in read.stimulus_triggers] == ["commit.created"]
        assert read.warnings == ()

    def test_defaults(self) -> None:
        """Only id and adapter are required; what is absent is what can do least."""
        read = parse_manifest(b'{"id": "git", "adapter": "wrap"}')
        assert (read.version, read.title, read.plane, read.family, read.bin) == ("0.0.0", "", "runtime", "", "git")
        assert (read.binding.mode, read.binding.hub, read.sandbox.posture, read.sandbox.bins) == (
            *("public", "none", "sandbox", ()),
        )
        assert (read.verbs, read.stimulus_triggers) == ({}, ())

    @pytest.mark.spec("1.2.plane")
    def test_plane(self) -> None:
        """A plane is runtime or control."""
        assert parse_manifest(surface(WRAP, "plane", to="control")).plane == "control"
        assert refusal(surface(WRAP, "plane", to="data")) == "/plane: must be 'runtime' or 'control', not \"data\""

    @pytest.mark.spec("1.5.adapters")
    @pytest.mark.parametrize("kind", ["wrap", "composite", "sense_only"])
    def test_short_form_of_the_adapter(self, kind: str) -> None:
        """A text is short for the adapter of that kind."""
        assert parse_manifest(surface({"id": "p", "adapter": kind})).adapter.kind == kind

    @pytest.mark.spec("1.5.adapters")
    def test_all_kinds_of_adapter(self) -> None:
        """Composite and openapi are read with their own fields."""
        flow, weather = parse_manifest(surface(COMPOSITE)), parse_manifest(surface(OPENAPI))
        assert [(step.pack_id, step.verb_key) for step in flow.verbs["flow.all"].steps] == [
            ("git", "git.log"),
            ("", "flow.one"),
        ]
        assert weather.verbs["weather.now"].operation_id == "getNow"
        assert weather.adapter.document == {"openapi": "3.1.0", "paths": {}}

    def test_unknown_fields_at_the_top(self) -> None:
        """An unknown field at the top is tolerated with a warning that names it."""
        read = parse_manifest(surface({**WRAP, "x-note": {"a": 1}, "homepage": None}))
        assert read.warnings == (
            "surface.json /x-note: unknown field, ignored",
            "surface.json /homepage: unknown field, ignored",
        )
        assert read.unknown == {"x-note": {"a": 1}, "homepage": None}

    def test_the_passthrough_is_known(self) -> None:
        """The fields allowedSubcommands and maxArgv parse, whatever they hold, so that lint can report them."""
        read = parse_manifest(
            surface({**WRAP, "allowedSubcommands": None, "adapter": {"kind": "wrap", "maxArgv": "x"}})
        )
        assert read.warnings == ()


class TestSchemas:
    def test_args_and_data(self) -> None:
        """Args and data are checked by their schema, and a fault has a path and a reason without the value."""
        read = parse_manifest(surface(WRAP))
        args, data = read.verbs["git.log"].args, read.stimulus_triggers[0].data
        assert args.check({"limit": 3}) is None
        assert args.check({"limit": "s3cret"}) == '/limit: the value is not of type "integer"'
        assert data.check({"commit": 1}) is None
        assert data.check({}) == '/: "commit" is a required property'

    def test_absent(self) -> None:
        """Without a schema, args take no properties and data any object."""
        read = parse_manifest(surface({**WRAP, "verbs": {"git.gc": {}}, "stimulusTriggers": [{"ref": "r"}]}))
        args, data = read.verbs["git.gc"].args, read.stimulus_triggers[0].data
        assert (args.check({}), data.check({"any": [1]})) == (None, None)
        assert args.check({"x": 1}) == "/: the value has more than 0 properties"
        assert data.check([]) == '/: the value is not of type "object"'

    def test_a_key_of_the_data_stays_in_one_line(self) -> None:
        """A path made of hostile keys is escaped and cut."""
        schema = {"additionalProperties": {"type": "integer"}}
        read = parse_manifest(surface({**WRAP, "stimulusTriggers": [{"ref": "r", "data": schema}]}))
        reason = read.stimulus_triggers[0].data.check({"a\nb\u202e" + "x" * 5000: "no"})
        assert reason is not None
        assert reason.startswith("/a\\nb\\u202exxx")
        assert len(reason) < 300

    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            ({"type": "strng"}, '/type: no JSON Schema 2020-12: "strng" is not valid under any of the schemas'),
            (
                {"properties": {"a": {"minLength": -1}}},
                "/properties/a/minLength: no JSON Schema 2020-12: -1 is less than",
            ),
            ({"pattern": "("}, '/pattern: no JSON Schema 2020-12: "(" is not a "regex"'),
            ({"$ref": "#/$defs/none"}, ": no JSON Schema 2020-12: Pointer '/$defs/none' does not exist"),
            ({"$ref": "https://hook.test/s"}, ": no JSON Schema 2020-12: https://hook.test/s is outside the schema"),
            ({"$ref": "file:///etc/passwd"}, ": no JSON Schema 2020-12: file:///etc/passwd is outside the schema"),
            ({"$id": "http://hook.test/a", "$ref": "b"}, ": no JSON Schema 2020-12: http://hook.test/b is outside"),
            ({"$ref": "other.json"}, ": no JSON Schema 2020-12: Resource 'other.json'"),
            ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema: must be JSON Schema 2020-12"),
            ({"$schema": ["x"]}, "/$schema: must be JSON Schema 2020-12"),
            (None, ": must be a JSON Schema: an object, true or false"),
            ("object", ": must be a JSON Schema: an object, true or false"),
            ([], ": must be a JSON Schema: an object, true or false"),
        ],
    )
    def test_a_schema_that_does_not_compile(self, schema: object, message: str) -> None:
        """A schema that does not compile, or points outside itself, is refused at its place; nothing is fetched."""
        for place, path in (
            ("/verbs/git.log/args", ("verbs", "git.log", "args")),
            ("/stimulusTriggers/0/data", ("stimulusTriggers", 0, "data")),
        ):
            assert refusal(surface(WRAP, *path, to=schema)).startswith(place + message)

    def test_a_file_is_not_fetched(self, tmp_path: Path) -> None:
        """A reference to a schema file that exists is refused all the same."""
        (tmp_path / "s.json").write_text("{}")
        schema = {"$ref": (tmp_path / "s.json").as_uri()}
        assert "is outside the schema" in refusal(surface(WRAP, "verbs", "git.log", "args", to=schema))

    @pytest.mark.parametrize(
        "schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"properties": {"a": {"$ref": "#"}}}]
    )
    def test_schemas_that_lead_back_to_themselves(self, schema: dict[str, Any]) -> None:
        """A schema that refers to itself ends."""
        read = parse_manifest(surface(WRAP, "verbs", "git.log", "args", to=schema))
        assert read.verbs["git.log"].args.check({"a": {"a": {}}}) is None


NULLS = [
    *(("id",), ("version",), ("title",), ("plane",), ("family",), ("adapter",), ("binding",), ("sandbox",), ("verbs",)),
    *(("stimulusTriggers",), ("adapter", "kind"), ("adapter", "bin"), ("binding", "mode"), ("binding", "hub")),
    *(("binding", "env"), ("binding", "env", "GIT_TOKEN"), ("binding", "headers"), ("sandbox", "posture")),
    *(("sandbox", "bins"), ("sandbox", "timeout_s"), ("sandbox", "output_limit"), ("sandbox", "env")),
    *(("verbs", "git.log"), ("verbs", "git.log", "summary"), ("verbs", "git.log", "cli"), ("verbs", "git.log", "args")),
    *(("verbs", "git.log", "connect"), ("verbs", "git.log", "cli", 0), ("verbs", "git.log", "cli", 1, 0)),
    *(("verbs", "git.commit", "cli", 3, "flag"), ("verbs", "git.commit", "cli", 3, "host")),
    *(("stimulusTriggers", 0), ("stimulusTriggers", 0, "ref"), ("stimulusTriggers", 0, "summary")),
    ("stimulusTriggers", 0, "data"),
]


class TestRefusals:
    @pytest.mark.parametrize("path", NULLS)
    def test_null_is_never_absence(self, path: tuple[str | int, ...]) -> None:
        """A null is refused everywhere, at its place."""
        assert refusal(surface(WRAP, *path)).startswith("".join(f"/{step}" for step in path) + ": must be ")

    @pytest.mark.parametrize("path", [("id",), ("adapter",), ("adapter", "kind"), ("binding", "hub")])
    def test_required(self, path: tuple[str, ...]) -> None:
        """A missing field is named by the place where it should stand."""
        assert refusal(surface(WRAP, *path, to=...)) == f"/{'/'.join(path)}: required field is missing"

    @pytest.mark.parametrize(
        "path",
        [
            ("adapter", "users"),
            ("binding", "secret"),
            ("sandbox", "network"),
            ("verbs", "git.log", "policy"),
            ("verbs", "git.commit", "cli", 3, "else"),
            ("stimulusTriggers", 0, "operation"),
        ],
    )
    def test_everything_below_the_top_is_closed(self, path: tuple[str | int, ...]) -> None:
        """An unknown field below the top is refused."""
        place = "".join(f"/{step}" for step in path)
        assert refusal(surface(WRAP, *path, to={})) == f"{place}: unknown field"

    @pytest.mark.parametrize("pack_id", ["Git", "", "-git", "git/x", "gït", "g" * 129, "git\n", "../git", 5])
    def test_pack_ids(self, pack_id: object) -> None:
        """The id is matched whole."""
        assert refusal(surface(WRAP, "id", to=pack_id)).startswith("/id: must be ")

    @pytest.mark.spec("1.3.command")
    @pytest.mark.parametrize("name", ["git log", "", ".log", "git.log\n", "l" * 129, "git/log", "*", "lög"])
    def test_names(self, name: str) -> None:
        """verb_keys and refs are matched whole, patterns are none."""
        key = refusal(surface({**WRAP, "verbs": {name: {}}}))
        ref = refusal(surface(WRAP, "stimulusTriggers", 0, "ref", to=name))
        rule = "must be 1 to 128 letters, digits, dots, dashes and underscores, a letter or digit first"
        assert (key.endswith(rule), ref) == (True, f"/stimulusTriggers/0/ref: {rule}")

    @pytest.mark.parametrize("name", ["./git", "/usr/bin/git", "bin/../git", "git\n", "", "git log", "-git", "g" * 129])
    def test_binaries_are_plain_names(self, name: str) -> None:
        """A binary is a plain name, never a path."""
        rule = "must be the plain name of a binary, no path; the operator says where it is"
        assert refusal(surface(WRAP, "adapter", "bin", to=name)) == f"/adapter/bin: {rule}"
        assert refusal(surface(WRAP, "sandbox", "bins", 0, to=name)) == f"/sandbox/bins/0: {rule}"

    @pytest.mark.spec("1.4.binding-modes")
    @pytest.mark.parametrize("mode", ["Public", "oauth", "", 1])
    def test_binding_modes(self, mode: object) -> None:
        """A mode is one of the five."""
        modes = "'public', 'user', 'local', 'mothership' or 'mock'"
        assert refusal(surface(WRAP, "binding", "mode", to=mode)).startswith(f"/binding/mode: must be {modes}, not ")

    @pytest.mark.spec("1.4.hubs")
    @pytest.mark.parametrize("hub", ["vault", "Keyring", "", []])
    def test_hubs(self, hub: object) -> None:
        """A hub is one of the four."""
        hubs = "'keyring', 'local-credential', 'public' or 'none'"
        assert refusal(surface(WRAP, "binding", "hub", to=hub)).startswith(f"/binding/hub: must be {hubs}, not ")

    @pytest.mark.spec("1.5.adapters")
    @pytest.mark.parametrize("kind", ["Wrap", "mcp", "sense-only", "", 1])
    def test_adapter_kinds(self, kind: object) -> None:
        """An adapter is one of the four kinds."""
        rule = "must be 'wrap', 'composite', 'openapi' or 'sense_only'"
        assert refusal(surface(WRAP, "adapter", "kind", to=kind)).startswith(f"/adapter/kind: {rule}, not ")

    @pytest.mark.parametrize(
        ("path", "value", "message"),
        [
            (("version",), "", "/version: must not be empty"),
            (("version",), "1" * 65, f'/version: must be at most 64 characters, not "{"1" * 60}…"'),
            (("sandbox", "timeout_s"), 0, "/sandbox/timeout_s: must be greater than 0, not 0"),
            (("sandbox", "timeout_s"), 86401, "/sandbox/timeout_s: must be at most 86400, not 86401"),
            (("sandbox", "timeout_s"), True, "/sandbox/timeout_s: must be a number, not true"),
            (("sandbox", "output_limit"), 1.5, "/sandbox/output_limit: must be an integer, not 1.5"),
            (("sandbox", "posture"), "none", "/sandbox/posture: must be 'sandbox' or 'native-local', not \"none\""),
            (("sandbox", "env", 0), "LANG=C", "/sandbox/env/0: must be the name of an environment variable"),
            (("binding", "headers"), {"a b": "x"}, "/binding/headers/a b: must be the name of an HTTP header"),
            (("verbs", "git.log", "connect"), "yes", '/verbs/git.log/connect: must be true or false, not "yes"'),
            (("verbs", "git.log", "cli"), "log", '/verbs/git.log/cli: must be a list, not "log"'),
            (("verbs", "git.log", "cli", 1), [], "/verbs/git.log/cli/1: must not be empty"),
            (("verbs", "git.log", "cli", 1, 0), 5, "/verbs/git.log/cli/1/0: must be text, not 5"),
            (
                ("verbs", "git.log", "cli", 0),
                5,
                '/verbs/git.log/cli/0: must be text, a list of text, or {"flag", "when"}, not 5',
            ),
            (("verbs", "git.commit", "cli", 3, "when"), ..., "/verbs/git.commit/cli/3/when: required field is missing"),
            (("stimulusTriggers",), {}, "/stimulusTriggers: must be a list, not an object"),
        ],
    )
    def test_types_and_bounds(self, path: tuple[str | int, ...], value: object, message: str) -> None:
        """A value of another type or out of bounds is refused at its place, saying what it must be."""
        assert refusal(surface(WRAP, *path, to=value)) == message

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            (surface(WRAP, "adapter", to="sense_only"), "/verbs: a sense_only pack has no commands (and 2 more)"),
            (
                surface(WRAP, "adapter", to="composite"),
                "/verbs/git.log/cli: belongs to adapters of kind wrap, not composite (and 3 more)",
            ),
            (
                surface(WRAP, "verbs", "git.log", "steps", to=[]),
                "/verbs/git.log/steps: belongs to adapters of kind composite, not wrap",
            ),
            (
                surface(WRAP, "verbs", "git.log", "operationId", to="x"),
                "/verbs/git.log/operationId: belongs to adapters of kind openapi, not wrap",
            ),
            (
                surface(WRAP, "adapter", "document", to={}),
                "/adapter/document: belongs to adapters of kind openapi, not wrap",
            ),
            (
                surface({"id": "p", "adapter": {"kind": "sense_only", "bin": "x"}}),
                "/adapter/bin: belongs to adapters of kind wrap, not sense_only",
            ),
            (surface({"id": "p", "adapter": "openapi"}), "/adapter/document: required field is missing"),
            (
                surface(OPENAPI, "verbs", "weather.now", to={}),
                "/verbs/weather.now/operationId: required field is missing",
            ),
            (
                surface(COMPOSITE, "verbs", "flow.one", to={}),
                "/verbs/flow.one/steps: a composite command has at least one step",
            ),
        ],
    )
    def test_fields_of_another_adapter(self, raw: bytes, message: str) -> None:
        """What belongs to another kind of adapter, or is missing for this one, is refused."""
        assert refusal(raw) == message

    @pytest.mark.parametrize(
        "value",
        [
            *({"$arg": ""}, {"$arg": 1}, {"$arg": "a", "x": 1}, {"$arg": "a", "$step": [0]}, {"$step": []}),
            *(
                {"$step": 0},
                {"$step": ["a"]},
                {"$step": [-1]},
                {"$step": [True]},
                {"$step": [0, None]},
                {"$step": [0, 1.5]},
            ),
        ],
    )
    def test_references_of_steps(self, value: dict[str, Any]) -> None:
        """A reference has exactly one of its two forms."""
        message = refusal(surface(COMPOSITE, "verbs", "flow.all", "steps", 1, "args", "text", to=value))
        form = '"text" must be {"$arg": "name"} or {"$step": [0, "path"]} and nothing else'
        assert message == f"/verbs/flow.all/steps/1/args: {form}"

    @pytest.mark.parametrize("index", [1, 2])
    def test_references_to_later_steps(self, index: int) -> None:
        """A step can use only what ran before it."""
        raw = surface(COMPOSITE, "verbs", "flow.all", "steps", 1, "args", "text", to={"$step": [index]})
        assert refusal(raw) == f"/verbs/flow.all/steps/1/args/text: step {index} has not run before step 1"

    @pytest.mark.parametrize(("raw", "kind"), [(b"[]", "a list"), (b"null", "null"), (b'"x"', "text")])
    def test_not_an_object(self, raw: bytes, kind: str) -> None:
        """A manifest that is no object is refused."""
        with pytest.raises(PackParseError, match=f"surface.json: must be an object, not {kind}"):
            parse_manifest(raw)


@pytest.mark.case("C20")
@pytest.mark.parametrize(
    ("place", "key", "old", "new"),
    [
        ("/verbs/git.log/summary", "summary", b'"summary": "Show commits"', b'"summary": "a", "summary": "b"'),
        ("/verbs/git.log", "git.log", b'"git.commit":', b'"git.log":'),
        (
            "/stimulusTriggers",
            "stimulusTriggers",
            b'"stimulusTriggers":',
            b'"stimulusTriggers": [], "stimulusTriggers":',
        ),
        (
            "/verbs/git.log/args/properties/limit/type",
            "type",
            b'{"type": "integer"}',
            b'{"type": "integer", "type": "x"}',
        ),
    ],
)
def test_a_key_twice_in_the_manifest(place: str, key: str, old: bytes, new: bytes) -> None:
    """A key that stands twice is refused at its place, at any level, schemas included."""
    raw = surface(WRAP)
    assert raw.count(old) == 1
    message = refusal(raw.replace(old, new))
    assert (message.startswith(f"{place} (line 1"), f'the key "{key}" stands twice' in message) == (True, True)


@pytest.mark.case("C22")
@pytest.mark.parametrize(
    ("encoding", "reason"),
    [
        ("utf-8-sig", "begins with a UTF-8 byte-order mark (EF BB BF)"),
        ("utf-16", "encoding error: UTF-16"),
        ("utf-16-be", "encoding error: UTF-16 or UTF-32"),
        ("utf-32", "encoding error: UTF-32"),
    ],
)
def test_byte_order_marks(encoding: str, reason: str) -> None:
    """A mark at the beginning is refused by its name, another encoding as an encoding error."""
    assert reason in refusal(surface(WRAP).decode().encode(encoding))


def test_a_manifest_is_frozen() -> None:
    """What was judged does not change afterwards."""
    read: Manifest = parse_manifest(surface(WRAP))
    with pytest.raises(ValueError, match="frozen"):
        read.plane = "control"  # type: ignore[misc]
