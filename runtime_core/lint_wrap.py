"""Lint of wrap packs: what keeps a command from working as its manifest reads. Warnings, for no chapter forbids it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from runtime_core.adapters.argv import names
from runtime_core.exact_json import shown
from runtime_core.manifest_models import RESERVED_ARGS, Flag
from runtime_core.schema_names import declared_names, names_others, permitted_names, required_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runtime_core.manifest import Manifest
    from runtime_core.manifest_models import CliElement, Verb

_Fault = tuple["list[str | int]", str]
"""The steps to a place, and the reason."""
_LISTED: Final = 8
"""Names that one line lists."""


def wrap_faults(manifest: Manifest) -> Iterator[_Fault]:
    """Yield place and reason of everything in a manifest of kind wrap that cannot work, or not as it reads."""
    if manifest.verbs and manifest.bin not in manifest.sandbox.bins:
        why = "" if manifest.adapter.bin else " (the pack id, for adapter.bin is absent)"
        yield ["sandbox", "bins"], f"does not name {shown(manifest.bin)}{why}, so no command can run"
    for key, verb in manifest.verbs.items():
        place: list[str | int] = ["verbs", key]
        if "cli" not in verb.model_fields_set:
            yield [*place, "cli"], f"is missing: {manifest.bin} runs with no arguments; write [] where that is meant"
        for steps, reason in (*_unfilled(verb), *_unused(verb)):
            yield [*place, *steps], reason


def _unfilled(verb: Verb) -> Iterator[_Fault]:
    """Yield the elements of `cli` that name what no caller can give, or need not."""
    schema = verb.args.document
    declared, required, any_name = declared_names(schema), required_names(schema), names_others(schema)
    more = ", …" if len(declared) > _LISTED else ""
    listed = f"it declares {', '.join(sorted(declared)[:_LISTED]) or 'none'}{more}"
    for index, element in enumerate(verb.cli):
        place: list[str | int] = ["cli", index]
        for name in _named(element):
            if isinstance(element, Flag) and name in RESERVED_ARGS:
                continue
            if name in RESERVED_ARGS:
                yield place, f'names {name}, which belongs to the runtime: write {{"flag": …, "when": "{name}"}}'
            elif name not in declared and not any_name:
                yield place, f"names {shown(name)}, which args does not declare ({listed})"
            elif isinstance(element, str) and name not in required and not any_name:
                yield place, f"needs {shown(name)}, which args does not require: put it into a list, or require it"


def _unused(verb: Verb) -> Iterator[_Fault]:
    """Yield the args that a caller gives for nothing."""
    schema = verb.args.document
    used = {name for element in verb.cli for name in _named(element)}
    required = set(schema.get("required", ())) if isinstance(schema, dict) else set()
    for name in sorted((permitted_names(schema) | required) - used - RESERVED_ARGS):
        yield ["args"], f"{'requires' if name in required else 'declares'} {shown(name)}, which cli never uses"


def _named(element: CliElement) -> list[str]:
    """Return the args that an element of `cli` names, each once."""
    if isinstance(element, Flag):
        return [element.when]
    parts = (element,) if isinstance(element, str) else element
    return list(dict.fromkeys(name for part in parts for name in names(part)))
