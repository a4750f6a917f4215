"""Policy, manifest and whole pack, against the second look: both accept the same, and find the same lint kinds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runtime_core.errors import DoorError, PackLintError, PackParseError
from runtime_core.lint import warnings
from runtime_core.manifest import parse_manifest
from runtime_core.pack import lint_pack, read_pack
from runtime_core.pack_file import FILE_LIMIT
from runtime_core.policy import parse_policy
from runtime_core.strict_json import parse
from tests.fuzz.door import Door, corpus, one_line
from tests.fuzz.json_doors import exact
from tests.fuzz.mutation import TOKENS, chance, drawn, json_bytes, with_bytes
from tests.fuzz.second_look import lint_kinds, manifest_holds, policy_holds, soft_kinds

if TYPE_CHECKING:
    import random

PACKS = [(json.dumps(one["surface"]), json.dumps(one["policy"])) for one in map(json.loads, corpus("pack"))]
SURFACES, POLICIES = [one[0] for one in PACKS], [one[1] for one in PACKS]
WORDS = (
    *("id", "version", "title", "plane", "family", "adapter", "binding", "sandbox", "verbs"),
    *("stimulusTriggers", "kind"),
    *("bin", "document", "allowedSubcommands", "maxArgv", "mode", "hub", "env", "headers", "posture"),
    *("bins", "timeout_s"),
    *("output_limit", "summary", "args", "connect", "cli", "steps", "operationId", "ref", "data", "flag"),
    *("when", "host"),
    *("pack_id", "verb_key", "$arg", "$step", "surface_id", "stimuli", "operation", "privacy", "land"),
    *("confirm", "apply"),
    *("properties", "required", "$ref", "$defs", "allOf", "if", "then", "default", "$id"),
    *("$schema", "dependentRequired"),
    *("dependentSchemas", "pattern", "type", "users", "x", "api_key", "apiKey", "tenant"),
    *("stimulus_triggers", "max_argv"),
    *("git.log", "GIT.log", "new_item", "New_item", "pack.run", "_private", "model_config", "__class__", "copy"),
)
PARTS: tuple[Any, ...] = (
    *("wrap", "composite", "openapi", "sense_only", "public", "none", "keyring", "local-credential"),
    *("mothership", "mock"),
    *("write", "read", "Read", "brain", "cloud", "control", "native-local", "git", "new_item", "git.log"),
    *("pack.run", "a.b"),
    *({"operation": "write", "privacy": {"land": "brain"}, "confirm": True}, {"operation": "read", "privacy": None}),
    *({"mode": "user", "hub": "keyring"}, {"mode": "mock", "hub": "keyring"}, {"kind": "wrap", "bin": "../sh"}),
    *({"flag": "-x", "when": "x"}, ["a", "{b}"], []),
    *({"verb_key": "git.log"}, {"verb_key": "pack.run", "pack_id": "other"}),
    *({"$arg": "confirm"}, {"$arg": ""}, {"$step": [0, "a"]}, {"$step": [True]}),
    *({"$step": [-1]}, {"$arg": "a", "$step": [0]}),
    *({"type": "object"}, {"type": 5}, {"$ref": "#"}, {"$ref": "#/$defs/x"}),
    *({"$ref": "#/default"}, {"$ref": "http://x/y"}),
    *({"properties": {"confirm": True}}, {"properties": 5}, {"required": 5}, {"required": ["apply"]}, {"allOf": 5}),
    *({"allOf": [{"$ref": "#/default"}], "default": {"required": [[]]}}, {"if": {"$ref": "#/default"}, "default": 5}),
    *(),
    *(
        {"if": {"$ref": "#/default"}, "default": {"properties": 5}},
        {"if": {"$ref": "#/examples/0"}, "examples": [{"allOf": 1}]},
    ),
    *({"pattern": "(a+)+$"}, {"pattern": "("}),
    *({"pattern": "(?=a)\\1"}, {"$schema": "http://json-schema.org/draft-07/schema"}),
    *({"$id": "x", "$ref": "#/y", "y": {"$ref": "#/y"}}, {"$dynamicRef": "#a"}),
    *({"$anchor": "a", "$ref": "#a"}, {"$id": "::"}),
    *({"minimum": 1e308, "multipleOf": 0}, {"enum": []}, {"const": None}, {"maxLength": 2**62}),
    *({"format": "regex"}, False),
    *(0, 86_400, 86_401, 1e-9, 64 << 20, (64 << 20) + 1, "x" * 64, "x" * 65, "PATH", "A=B", "X-Token"),
    *("X Token", "1.0.0"),
)

NAMES = ("git.log", "GIT.log", "git.commit", "new_item", "New_item", "shared_item", "pack.run", "pack.inner", "a.b")
MODES, HUBS = ("public", "user", "local", "mothership", "mock"), ("keyring", "local-credential", "public", "none")
TOLERATED = tuple(word for word in WORDS if word not in {"verbs", "stimulusTriggers"})
TABLES = ("$defs", "properties", "dependentSchemas")
SCHEMAS: tuple[Any, ...] = (
    *({}, {"type": "object"}, {"$ref": "#"}, {"$ref": "#/default"}, {"$ref": "#/$defs/a"}, {"$ref": "#/examples/0"}),
    *({"$ref": f"#/allOf/{'0' * 4400}"}, {"$ref": "#/properties/a"}, {"$ref": "#/if"}),
    *({"$ref": "#a"}, {"required": ["a"]}),
    *({"dependentRequired": {"a": ["apply"]}}, {"properties": {"confirm": True}}, {"properties": 5}, {"required": 5}),
    *({"required": [[]]}, {"allOf": 5}, {"allOf": {"a": 1}}),
    *({"dependentRequired": []}, {"dependentRequired": {"a": 5}}),
    *({"dependentSchemas": [1]}, {"properties": [["a"]]}, {"properties": ["confirm"]}, 5, None, [], True, False, "x"),
)


def _parsed(door: Any, file: str, holds: Any, raw: bytes) -> str:
    try:
        door(raw)
    except PackParseError as error:
        assert error.file == file
        one_line(error)
        assert not _holds(holds, raw), f"refused, and the second look accepts: {error}"
        return "refused"
    assert holds(exact(raw, FILE_LIMIT)), "accepted, and the second look refuses"
    return "accepted"


def _holds(holds: Any, raw: bytes) -> bool:
    try:
        value = parse(raw, limit=FILE_LIMIT, what="d")
    except DoorError:
        return False
    return bool(holds(value))


def _policy(raw: bytes) -> str:
    return _parsed(parse_policy, "policy", policy_holds, raw)


def _manifest(raw: bytes) -> str:
    return _parsed(parse_manifest, "surface", manifest_holds, raw)


def _edited(rng: random.Random) -> tuple[bytes, bytes, bytes]:
    """Return a pack whose files mostly parse, with what lint looks for."""
    surface, policy = (json.loads(text) for text in rng.choice(PACKS))
    for _ in range(rng.choice((1, 1, 2, 3))):
        verbs, entries, stimuli = surface.get("verbs", {}), policy["verbs"], policy.get("stimuli", {})
        verb = verbs.get(rng.choice([*verbs, ""]), {})
        table = rng.choice((entries, stimuli))
        entry = table.get(rng.choice([*table, ""]), {})
        kind = rng.randrange(9)
        if kind == 0:
            entry["operation"] = rng.choice(("read", "write"))
        elif kind == 1:
            entry["confirm"] = rng.choice((True, False))
        elif kind == 2 and table:
            table[rng.choice(NAMES)] = table[rng.choice(list(table))]
        elif kind == 3:
            table.pop(rng.choice([*table, ""]), None)
        elif kind == 4:
            surface["binding"] = {"mode": rng.choice(MODES), "hub": rng.choice(HUBS)}
        elif kind == 5:
            surface.setdefault(rng.choice(TOLERATED), rng.choice(({"a": [{rng.choice(WORDS): 1}]}, None, [], 1)))
        elif kind == 6:
            verbs[rng.choice(NAMES)] = verb
        elif kind == 7 and "steps" in verb:
            verb["steps"].append({"verb_key": rng.choice(list(verbs)), "args": {rng.choice(WORDS): drawn(rng, PARTS)}})
        else:
            rng.choice([verb, *surface.get("stimulusTriggers", [])])[rng.choice(("args", "data"))] = _schema(rng, 3)
    return json.dumps(surface).encode(), json.dumps(policy).encode(), b""


def _schema(rng: random.Random, levels: int) -> Any:
    """Return a schema, or what is one only where a library looks."""
    if not levels or chance(rng, 3):
        return drawn(rng, SCHEMAS)
    inner = _schema(rng, levels - 1)
    word = rng.choice(
        ("if", "not", "then", "default", "examples", "$defs", "allOf", "anyOf", "properties", "dependentSchemas")
    )
    return {
        word: [inner] if word.endswith("Of") or word == "examples" else {"a": inner} if word in TABLES else inner,
        **drawn(rng, SCHEMAS[:12]),
    }


def _make_pack(rng: random.Random) -> tuple[bytes, bytes, bytes]:
    if chance(rng, 2):
        return _edited(rng)
    surface, policy = (text.encode() for text in rng.choice(PACKS))
    kind = rng.randrange(8)
    if kind <= 4 and kind != 3:
        surface = json_bytes(rng, [surface.decode()], WORDS, PARTS)
    if kind >= 3:
        policy = json_bytes(rng, [policy.decode()], WORDS, PARTS)
    if chance(rng, 20):
        return surface, policy, with_bytes(rng, rng.choice(TOKENS) * 3)
    return surface, policy, b"# A pack\n"


def _pack(files: tuple[bytes, bytes, bytes]) -> str:
    surface, policy, _ = files
    try:
        pack = read_pack(*files)
        issues = []
    except PackParseError as error:
        assert error.file in {"surface", "policy", "harness"}
        one_line(error)
        return error.file
    except PackLintError as error:
        one_line(error)
        issues = list(error.issues)
        assert issues
        assert len(surface) % 4 or issues == lint_pack(*files)
        assert all(str(issue).isprintable() for issue in issues)
        pack = None
    documents = json.loads(surface), json.loads(policy)
    assert manifest_holds(documents[0])
    assert policy_holds(documents[1])
    plain, kinds = lint_kinds(*documents), {issue.kind for issue in issues}
    assert kinds - {"embedded_principal", "reserved_arg", "composite_escalation"} == plain
    if plain:  # the others are looked at where verbs and entries belong to each other
        return "lint"
    assert soft_kinds(*documents) <= kinds
    if pack is None:
        return "lint"
    assert all(one.startswith(("surface.json /", "policy.json /")) for one in warnings(pack.manifest, pack.policy))
    assert {ref: trigger.land for ref, trigger in pack.triggers.items()} == {
        ref: entry["privacy"]["land"] for ref, entry in documents[1].get("stimuli", {}).items()
    }
    return "accepted"


def _with_args(args: Any) -> tuple[bytes, bytes, bytes]:
    surface = {"id": "git", "adapter": "wrap", "verbs": {"git.log": {"args": args}}}
    entry = {"operation": "read", "privacy": {"land": "local"}}
    return (
        json.dumps(surface).encode(),
        json.dumps({"surface_id": "git", "version": 1, "verbs": {"git.log": entry}}).encode(),
        b"",
    )


KNOWN = [
    *(_with_args({"if": {"$ref": "#/default"}, "default": schema}) for schema in SCHEMAS),
    *(_with_args({"$ref": f"#/allOf/{index}", "allOf": [{}, True]}) for index in ("0" * 4400, "01", "1", "1" * 5000)),
]
DOORS = {
    "policy": Door("policy", lambda rng: json_bytes(rng, POLICIES, WORDS, PARTS), _policy, corpus("json")),
    "manifest": Door("manifest", lambda rng: json_bytes(rng, SURFACES, WORDS, PARTS), _manifest, corpus("json")),
    "pack": Door("pack", _make_pack, _pack, KNOWN),
}
