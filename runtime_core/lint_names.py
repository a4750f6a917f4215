"""Lint of names: principals and secrets embedded in a pack (§9.3), and args that belong to the runtime (§4.5.2)."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any

from runtime_core.errors import LintIssue
from runtime_core.exact_json import pointer
from runtime_core.manifest_models import RESERVED_ARGS
from runtime_core.pack_file import FILE_NAMES
from runtime_core.schema_names import declared_names

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
        for name in sorted(declared_names(verb.args.document) & RESERVED_ARGS):
            place = f"{FILE_NAMES['surface']} {pointer(['verbs', key, 'args'])}"
            reason = f"the schema declares {name}, which belongs to the runtime"
            yield LintIssue("reserved_arg", place, reason, "4.5.2")


def _is_embedded(key: str) -> bool:
    words = [word.lower() for word in _WORD.findall(key)]
    return bool(words) and (words[-1] in _EMBEDDED or tuple(words[-2:]) in _EMBEDDED_PAIRS)
