"""Lint of names: principals and secrets embedded in a pack (§9.3), and args that belong to the runtime (§4.5.2)."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any

from runtime_core.errors import LintIssue
from runtime_core.exact_json import pointer
from runtime_core.manifest_models import RESERVED_ARGS
from runtime_core.pack_file import FILE_NAMES
from runtime_core.schema_size import resolved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runtime_core.manifest import Manifest

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_EMBEDDED = {
    *("user", "users", "role", "roles", "tenant", "tenants", "principal", "principals", "grant", "grants"),
    *("acl", "acls", "allowlist", "denylist", "password", "passwords", "passwd", "secret", "secrets"),
    *("token", "tokens", "apikey", "apikeys", "credential", "credentials", "tenantid", "principalid", "userid"),
    *("allowusers", "denyusers"),
}
"""A key whose last word is one of these names who may act, or with what."""
_EMBEDDED_PAIRS = {
    (first, second)
    for firsts, seconds in (
        (("api", "access", "private", "secret", "signing"), ("key", "keys")),
        (("user", "tenant", "principal"), ("id", "ids")),
        (("allow", "deny"), ("list",)),
    )
    for first in firsts
    for second in seconds
}

_SAME_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_PLACE = ("if", "then", "else", "not")


def embedded_names(manifest: Manifest) -> Iterator[LintIssue]:
    """Yield the keys that embed user lists, roles or credentials (§9.3.embed).

    Only the tolerated fields at the top are open: every other object of a pack is closed, a JSON Schema, or a map whose
    keys are names of commands, triggers and mapped fields.
    """
    waiting: deque[tuple[tuple[str | int, ...], Any]] = deque([((), manifest.unknown)])
    while waiting:
        steps, value = waiting.popleft()
        members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in members:
            place = (*steps, key)
            if isinstance(key, str) and _is_embedded(key):
                reason = "packs embed no principals, roles or credentials"
                yield LintIssue("embedded_principal", f"{FILE_NAMES['surface']} {pointer(place)}", reason, "9.3.embed")
            waiting.append((place, inner))


def reserved_args(manifest: Manifest) -> Iterator[LintIssue]:
    """Yield the commands whose schema declares `confirm` or `apply`, which never reach it (§4.5.2)."""
    for key, verb in manifest.verbs.items():
        for name in sorted(_declared(verb.args.document) & RESERVED_ARGS):
            place = f"{FILE_NAMES['surface']} {pointer(['verbs', key, 'args'])}"
            reason = f"the schema declares {name}, which belongs to the runtime"
            yield LintIssue("reserved_arg", place, reason, "4.5.2")


def _is_embedded(key: str) -> bool:
    words = [word.lower() for word in _WORD.findall(key)]
    return bool(words) and (words[-1] in _EMBEDDED or tuple(words[-2:]) in _EMBEDDED_PAIRS)


def _declared(schema: Any) -> set[str]:
    """Return the names that a schema says anything about at its own level, through references within it too.

    A reference may lead to what is no schema where the validator never looks, as in an `if` alone.
    """
    names: set[str] = set()
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        for keyword in ("properties", "dependentRequired", "dependentSchemas"):
            names.update(_object(part, keyword))
        for required in (part.get("required"), *_object(part, "dependentRequired").values()):
            names.update(name for name in _list(required) if isinstance(name, str))
        waiting += [part[keyword] for keyword in _SAME_PLACE if keyword in part]
        waiting += [inner for keyword in _SAME_PLACE_LISTS for inner in _list(part.get(keyword))]
        waiting += _object(part, "dependentSchemas").values()
        waiting.append(_referenced(schema, part.get("$ref")))
    return names


def _object(part: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = part.get(keyword)
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _referenced(schema: Any, reference: Any) -> Any:
    """Return what a `#/…` reference names; None for another form."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    return resolved(schema, reference[1:])
