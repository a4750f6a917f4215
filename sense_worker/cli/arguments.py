"""The CLI form of a command's args: typed by its schema on the way in, and shown by it in the help (§1.7.faces)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runtime_core.errors import UsageError
from sense_worker.cli.values import json_object, json_value, pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runtime_core.pack import Pack

_PLACE = "--arg"
_FOLLOWED = 8
"""References followed to find the type of one arg."""
_FORMATS = {"path": "a path within the working folder"}
"""What a format means here; another one is named."""
_BOUNDS = (
    ("const", "always {}"),
    ("minimum", ">= {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "<= {}"),
    ("exclusiveMaximum", "< {}"),
    ("multipleOf", "a multiple of {}"),
    ("minItems", "{} items or more"),
    ("maxItems", "{} items or fewer"),
    ("minLength", "{} characters or more"),
    ("maxLength", "{} characters or fewer"),
    ("pattern", "like {}"),
    ("default", "default {}"),
)


def command_args(texts: Iterable[str], json_text: str | None, schema: Any) -> dict[str, Any]:
    """Return args from `--arg` and `--args-json` together, typed by the args schema of the command (None: unknown).

    `name=value` becomes what the schema says of `name`, text where it says nothing; `name:=json` is any JSON value.
    Raises UsageError for a value that cannot be of that type; whether it is valid is for the pipeline to say.
    """
    given = {} if json_text is None else json_object(json_text, "--args-json")
    for name, value in pairs(texts, _PLACE).items():
        plain = name.removesuffix(":")
        if plain in given:
            raise UsageError(_PLACE, f"{plain!r} is given twice", "give each name once")
        given[plain] = json_value(value, f"{_PLACE} {plain}") if name != plain else _typed(plain, value, schema)
    return given


def with_gates(args: dict[str, Any], gates: dict[str, bool]) -> dict[str, Any]:
    """Return args with the boolean true under each gate that was given as a flag. Raises UsageError for one in both."""
    for name, given in gates.items():
        if given and name in args:
            raise UsageError(f"--{name}", f"{name!r} is given twice", "give each name once")
    return args | {name: True for name, given in gates.items() if given}


def command_help(pack: Pack, verb_key: str) -> Iterator[str]:
    """Yield the lines of a command's help: what it does, its policy, its args."""
    verb, entry = pack.manifest.verbs[verb_key], pack.policy.verbs[verb_key]
    gate = ", needs --confirm" if entry.confirm else ""
    connect = ", connects" if verb.connect else ""
    yield f"Usage: sense-worker exec {pack.pack_id} {verb_key} [--arg NAME=VALUE]..."
    yield ""
    yield f"  {verb.summary}" if verb.summary else f"  {verb_key} of {pack.title}"
    yield f"  operation {entry.operation}, land {entry.privacy.land}{gate}{connect}"
    parts = _properties(verb.args.document)
    required = _required(verb.args.document)
    if parts:
        yield ""
        width = max(len(name) for name in parts)
        for name, part in parts.items():
            yield f"  {name:<{width}}  {_described(part, verb.args.document, required=name in required)}"
    yield ""
    yield "Example:  sense-worker exec " + " ".join([pack.pack_id, verb_key, *_example(parts, required, entry.confirm)])


def pack_help(pack: Pack) -> Iterator[str]:
    """Yield the lines of a pack's help: its commands."""
    yield f"Usage: sense-worker exec {pack.pack_id} VERB [--arg NAME=VALUE]..."
    yield ""
    width = max((len(key) for key in pack.manifest.verbs), default=0)
    for key, verb in pack.manifest.verbs.items():
        yield f"  {key:<{width}}  {pack.policy.verbs[key].operation:<5}  {verb.summary}".rstrip()
    yield ""
    yield f"`sense-worker exec {pack.pack_id} VERB --help` shows the args of one."


def _typed(name: str, text: str, schema: Any) -> Any:
    from runtime_core.manifest_models import RESERVED_ARGS  # late: the models cost the start of every other command

    types = set() if name in RESERVED_ARGS else _types(_properties(schema).get(name), schema)
    if not types or "string" in types:
        return text
    listed = " or ".join(sorted(types))
    try:
        return json_value(text, f"{_PLACE} {name}")
    except UsageError:
        raise UsageError(f"{_PLACE} {name}", f"{text!r} is no {listed}", f"write {name}=VALUE as JSON") from None


def _properties(schema: Any) -> dict[str, Any]:
    found = _resolved(schema, schema)
    properties = found.get("properties") if isinstance(found, dict) else None
    return properties if isinstance(properties, dict) else {}


def _required(schema: Any) -> list[str]:
    found = _resolved(schema, schema)
    return list(found.get("required", ())) if isinstance(found, dict) else []


def _types(part: Any, schema: Any, depth: int = 0) -> set[str]:
    """Return the names of the types that a schema allows; empty where it does not say."""
    part = _resolved(part, schema)
    if not isinstance(part, dict) or depth > _FOLLOWED:
        return set()
    said = part.get("type")
    if said is not None:
        return {said} if isinstance(said, str) else set(said)
    values = part.get("enum", [part["const"]] if "const" in part else [])
    if values:
        return {_type_of(value) for value in values}
    branches = [branch for key in ("anyOf", "oneOf") for branch in part.get(key, ())]
    found = [_types(branch, schema, depth + 1) for branch in branches]
    return set().union(*found) if found and all(found) else set()


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _resolved(part: Any, schema: Any) -> Any:
    """Follow `$ref` within the schema's own `$defs`; what leads elsewhere is left as it is."""
    for _ in range(_FOLLOWED):
        reference = part.get("$ref") if isinstance(part, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
            break
        part = schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
    return part


def _described(part: Any, schema: Any, *, required: bool) -> str:
    part = _resolved(part, schema)
    told = [" or ".join(sorted(_types(part, schema))) or "any JSON value"]
    if isinstance(part, dict):
        if isinstance(part.get("format"), str):
            told.append(_FORMATS.get(part["format"], f"format {part['format']}"))
        if "enum" in part:
            told.append("one of " + " ".join(json.dumps(value) for value in part["enum"]))
        told += [form.format(json.dumps(part[key])) for key, form in _BOUNDS if key in part]
    if required:
        told.append("required")
    summary = part.get("description", "") if isinstance(part, dict) else ""
    return ", ".join(told) + (f". {summary}" if summary else "")


def _example(parts: dict[str, Any], required: Iterable[str], confirm: bool) -> Iterator[str]:
    for name in required:
        if name in parts:
            yield f"--arg {name}=…"
    if confirm:
        yield "--confirm"
