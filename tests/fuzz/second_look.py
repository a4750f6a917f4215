"""A second, naive reading of chapter 4 and DESIGN §5, over plain parsed documents: what may be accepted as a pack."""

from __future__ import annotations

import re
from typing import Any

from runtime_core.schemas import SchemaFault, compile_schema

LANDS = ("personal", "brain", "local")
MODES = ("public", "user", "local", "mothership", "mock")
HUBS = ("keyring", "local-credential", "public", "none")
PAIRS = {
    *(("public", "public"), ("public", "none"), ("user", "keyring"), ("user", "local-credential"), ("mock", "none")),
    *(("local", "local-credential"), ("mothership", "keyring"), ("mothership", "local-credential")),
}
NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
PACK_ID = "[a-z0-9][a-z0-9._-]{0,127}"
EMBEDDED = {
    *("user", "users", "role", "roles", "allow_users", "deny_users", "tenant", "tenant_id", "principal", "principals"),
    *("grant", "grants", "acl", "password", "secret", "token", "api_key", "credential", "credentials"),
}
_TOP = {
    "id": PACK_ID,
    "version": "(?s).{1,64}",
    "title": "(?s).*",
    "plane": "runtime|control",
    "family": PACK_ID,
    **dict.fromkeys(("adapter", "binding", "sandbox", "verbs", "stimulusTriggers", "allowedSubcommands", "maxArgv")),
}


def _is(pattern: str, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _closed(value: Any, needed: str, allowed: str = "") -> bool:
    """Tell whether it is an object with all of the needed fields and no other than the allowed."""
    return isinstance(value, dict) and set(needed.split()) <= set(value) <= {*needed.split(), *allowed.split()}


def _each(value: Any, pattern: str) -> bool:
    return isinstance(value, list) and all(_is(pattern, one) for one in value)


def policy_holds(value: Any) -> bool:
    """Tell whether a document is a policy (§4.1)."""
    if not _closed(value, "surface_id version verbs", "stimuli") or type(value["version"]) is not int:
        return False
    tables = (value["verbs"], value.get("stimuli", {}))
    if (
        value["version"] != 1
        or not isinstance(value["surface_id"], str)
        or not all(isinstance(t, dict) for t in tables)
    ):
        return False
    return all(_entry(entry) for table in tables for entry in table.values())


def _entry(entry: Any) -> bool:
    return (
        _closed(entry, "operation privacy", "confirm")
        and entry["operation"] in ("read", "write")
        and _closed(entry["privacy"], "land")
        and entry["privacy"]["land"] in LANDS
        and isinstance(entry.get("confirm", True), bool)
    )


def manifest_holds(value: Any) -> bool:
    """Tell whether a document is a manifest (DESIGN §5); what is a JSON Schema is asked of the library."""
    if not isinstance(value, dict) or not {"id", "adapter"} <= set(value):
        return False
    if not all(pattern is None or name not in value or _is(pattern, value[name]) for name, pattern in _TOP.items()):
        return False
    adapter = value["adapter"]
    adapter = {"kind": adapter} if isinstance(adapter, str) else adapter
    parts = (_adapter(adapter), _binding(value), _sandbox(value.get("sandbox", {})))
    verbs, triggers = value.get("verbs", {}), value.get("stimulusTriggers", [])
    if not all(parts) or not isinstance(verbs, dict) or not isinstance(triggers, list):
        return False
    if adapter["kind"] == "sense_only" and verbs:
        return False
    return all(_is(NAME, key) and _verb(verb, adapter["kind"]) for key, verb in verbs.items()) and all(
        _closed(one, "ref", "summary data")
        and _is(NAME, one["ref"])
        and isinstance(one.get("summary", ""), str)
        and ("data" not in one or is_schema(one["data"]))
        for one in triggers
    )


def is_schema(value: Any) -> bool:
    """Tell whether it compiles."""
    try:
        compile_schema(value)
    except SchemaFault:
        return False
    return True


def _adapter(value: Any) -> bool:
    if not _closed(value, "kind", "bin document allowedSubcommands maxArgv"):
        return False
    kind = value["kind"]
    document = value.get("document")
    return (
        kind in ("wrap", "composite", "openapi", "sense_only")
        and ("bin" not in value or (kind == "wrap" and _is("[A-Za-z0-9][A-Za-z0-9._+-]{0,127}", value["bin"])))
        and ("document" not in value or (kind == "openapi" and isinstance(document, dict | str)))
        and (kind != "openapi" or bool(document))
    )


def _binding(manifest: Any) -> bool:
    if "binding" not in manifest:
        return True
    value = manifest["binding"]
    if not _closed(value, "mode hub", "env headers") or value["mode"] not in MODES or value["hub"] not in HUBS:
        return False
    names = (("env", "[A-Za-z_][A-Za-z0-9_]{0,127}"), ("headers", "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}"))
    for field, pattern in names:
        mapped = value.get(field, {})
        if not isinstance(mapped, dict) or not all(_is(pattern, k) and isinstance(v, str) for k, v in mapped.items()):
            return False
    return True


def _sandbox(value: Any) -> bool:
    if not _closed(value, "", "posture bins timeout_s output_limit env"):
        return False
    timeout, limit = value.get("timeout_s", 30), value.get("output_limit", 1)
    return (
        value.get("posture", "sandbox") in ("sandbox", "native-local")
        and _each(value.get("bins", []), "[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
        and _each(value.get("env", []), "[A-Za-z_][A-Za-z0-9_]{0,127}")
        and type(timeout) in {int, float}
        and 0 < timeout <= 86_400
        and type(limit) is int
        and 0 < limit <= 64 << 20
    )


def _verb(value: Any, kind: str) -> bool:
    if not _closed(value, "", "summary args connect cli steps operationId"):
        return False
    owners = {"cli": "wrap", "steps": "composite", "operationId": "openapi"}
    cli, steps = value.get("cli", []), value.get("steps", [])
    return (
        all(kind == owner for field, owner in owners.items() if field in value)
        and isinstance(value.get("summary", ""), str)
        and isinstance(value.get("connect", True), bool)
        and ("args" not in value or is_schema(value["args"]))
        and (kind != "openapi" or _is("(?s).+", value.get("operationId")))
        and (kind != "composite" or bool(steps))
        and isinstance(cli, list)
        and all(map(_element, cli))
        and isinstance(steps, list)
        and all(_step(step, index) for index, step in enumerate(steps))
    )


def _element(value: Any) -> bool:
    if isinstance(value, dict):
        texts = _closed(value, "flag when", "host") and _each([value["flag"], value["when"]], "(?s).+")
        return texts and isinstance(value.get("host", True), bool)
    return isinstance(value, str) or (_each(value, "(?s).*") and bool(value))


def _step(value: Any, index: int) -> bool:
    if not _closed(value, "verb_key", "pack_id args") or not _is(NAME, value["verb_key"]):
        return False
    args = value.get("args", {})
    named = "pack_id" not in value or _is(PACK_ID, value["pack_id"])
    return named and isinstance(args, dict) and all(_reference(arg, index) for arg in args.values())


def _reference(value: Any, index: int) -> bool:
    """Tell whether a value is literal, or a reference to an arg, or to a step that has run."""
    if not isinstance(value, dict) or not {"$arg", "$step"} & set(value):
        return True
    if len(value) != 1:
        return False
    if "$arg" in value:
        return _is("(?s).+", value["$arg"])
    path = value["$step"]
    if not isinstance(path, list) or not path or type(path[0]) is not int or not 0 <= path[0] < index:
        return False
    return all(type(step) in {int, str} for step in path)


def lint_kinds(surface: Any, policy: Any) -> set[str]:
    """Return the lint kinds of two documents that hold; of `composite_escalation` and of names only the plain ones."""
    verbs, entries = surface.get("verbs", {}), policy["verbs"]
    refs, stimuli = [one["ref"] for one in surface.get("stimulusTriggers", [])], policy.get("stimuli", {})
    binding = surface.get("binding", {"mode": "public", "hub": "none"})
    found = {
        "missing_verb": set(verbs) - set(entries) or [key for key, verb in verbs.items() if _lost(surface, verb)],
        "extra_verb": set(entries) - set(verbs),
        "missing_stimulus": set(refs) - set(stimuli),
        "extra_stimulus": set(stimuli) - set(refs),
        "write_stimulus": [ref for ref in refs if stimuli.get(ref, {}).get("operation") == "write"],
        "surface_id_mismatch": surface["id"] != policy["surface_id"],
        "confirm_on_read": [e for e in entries.values() if "confirm" in e and e["operation"] == "read"]
        + [e for e in stimuli.values() if "confirm" in e],
        "connect_not_write": [
            k for k, v in verbs.items() if v.get("connect") and entries.get(k, {}).get("operation") == "read"
        ],
        "binding_pair": (binding["mode"], binding["hub"]) not in PAIRS,
        "duplicate_key": any(len({n.lower() for n in names}) != len(names) for names in (list(verbs), refs)),
        "passthrough": [p for p in (surface, surface["adapter"]) for f in ("allowedSubcommands", "maxArgv") if f in p],
    }
    return {kind for kind, holds in found.items() if holds}


def soft_kinds(surface: Any, policy: Any) -> set[str]:
    """Return kinds that a good pack must not have, found by simpler rules than lint's own, which finds more."""
    found = set()
    if any(_embeds(value) or key in EMBEDDED for key, value in surface.items() if key not in _TOP):
        found.add("embedded_principal")
    for key, verb in surface.get("verbs", {}).items():
        schema = verb.get("args", {})
        declared = schema.get("properties", {}) if isinstance(schema, dict) else {}
        literal = [s for s in verb.get("steps", []) for n in ("confirm", "apply") if n in s.get("args", {})]
        if {"confirm", "apply"} & set(declared) or any(_is_literal(step) for step in literal):
            found.add("reserved_arg")
        own = policy["verbs"][key]
        for step in verb.get("steps", []):
            other = (
                policy["verbs"].get(step["verb_key"]) if step.get("pack_id", surface["id"]) == surface["id"] else None
            )
            weaker = other and (other["operation"] == "write") > (own["operation"] == "write")
            if weaker or (other and other.get("confirm", False) > own.get("confirm", False)):
                found.add("composite_escalation")
        if verb.get("steps") and _ran(surface, key, 5) is None:
            found.add("composite_escalation")
    return found


def _lost(surface: Any, verb: Any) -> bool:
    own, verbs = surface["id"], surface.get("verbs", {})
    return any(s.get("pack_id", own) == own and s["verb_key"] not in verbs for s in verb.get("steps", []))


def _embeds(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (isinstance(value, dict) and bool(EMBEDDED & set(value))) or any(map(_embeds, inner))


def _is_literal(step: Any) -> bool:
    args = [step["args"][name] for name in ("confirm", "apply") if name in step["args"]]
    return any(not (isinstance(a, dict) and a.get("$arg") in ("confirm", "apply")) for a in args)


def _ran(surface: Any, key: str, levels: int) -> int | None:
    """Return how many commands one call runs, by running it; None: too deep or too many."""
    steps = surface["verbs"].get(key, {}).get("steps", [])
    if not steps:
        return 1
    if levels == 1:
        return None
    counts = [
        _ran(surface, step["verb_key"], levels - 1) if step.get("pack_id", surface["id"]) == surface["id"] else 1
        for step in steps
    ]
    total = None if None in counts else sum(count or 0 for count in counts)
    return None if total is None or total > 32 else total
