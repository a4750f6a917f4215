"""The lint kinds of §4.4 and DESIGN §5, one small function each; all are reported at once."""

from typing import Any

PAIRS = {
    "public": ("public", "none"),
    "user": ("keyring", "local-credential"),
    "local": ("local-credential",),
    "mothership": ("keyring", "local-credential"),
    "mock": ("none",),
}
PRINCIPAL_WORDS = {
    *("user", "users", "role", "roles", "allow_users", "deny_users", "tenant", "tenants", "tenant_id"),
    *("principal", "principals", "grant", "grants", "acl", "password", "secret", "token", "api_key"),
    *("credential", "credentials"),
}


def lint(surface: dict[str, Any], policy: dict[str, Any], known: dict[str, Any]) -> set[str]:
    """The kinds of a pack whose two files have parsed; `known`: the packs installed already, by id."""
    kinds = set()
    kinds |= _coverage(surface, policy)
    kinds |= _entries(surface, policy)
    kinds |= _same_keys(surface, policy)
    kinds |= _composites(surface, policy, known)
    if policy["surface_id"] != surface["id"]:
        kinds.add("surface_id_mismatch")
    if surface["binding"]["hub"] not in PAIRS[surface["binding"]["mode"]]:
        kinds.add("binding_pair")
    for place in (surface, surface["adapter"]):
        if isinstance(place, dict) and ("allowedSubcommands" in place or "maxArgv" in place):
            kinds.add("passthrough")
    if _embeds(surface):
        kinds.add("embedded_principal")
    for verb in surface.get("verbs", {}).values():
        declared = verb.get("args", {}).get("properties", {})
        if "confirm" in declared or "apply" in declared:
            kinds.add("reserved_arg")
    return kinds


def _refs(surface: dict[str, Any]) -> list[str]:
    return [trigger["ref"] for trigger in surface.get("stimulusTriggers", [])]


def _coverage(surface: dict[str, Any], policy: dict[str, Any]) -> set[str]:
    """§4.4.1 to §4.4.4."""
    kinds = set()
    for verb_key in surface.get("verbs", {}):
        if verb_key not in policy["verbs"]:
            kinds.add("missing_verb")
    for verb_key in policy["verbs"]:
        if verb_key not in surface.get("verbs", {}):
            kinds.add("extra_verb")
    for ref in _refs(surface):
        if ref not in policy.get("stimuli", {}):
            kinds.add("missing_stimulus")
    for ref in policy.get("stimuli", {}):
        if ref not in _refs(surface):
            kinds.add("extra_stimulus")
    return kinds


def _entries(surface: dict[str, Any], policy: dict[str, Any]) -> set[str]:
    """§4.2.5, §4.2.6, §4.5.1."""
    kinds = set()
    for ref, entry in policy.get("stimuli", {}).items():
        if ref in _refs(surface) and entry["operation"] != "read":
            kinds.add("write_stimulus")
        if "confirm" in entry:
            kinds.add("confirm_on_read")
    for verb_key, entry in policy["verbs"].items():
        if entry["operation"] == "read" and "confirm" in entry:
            kinds.add("confirm_on_read")
        verb = surface.get("verbs", {}).get(verb_key, {})
        if verb.get("connect") is True and entry["operation"] != "write":
            kinds.add("connect_not_write")
    return kinds


def _same_keys(surface: dict[str, Any], policy: dict[str, Any]) -> set[str]:
    """A ref declared twice; two verb_keys or two refs equal but for case."""
    lists = (list(surface.get("verbs", {})), _refs(surface), list(policy["verbs"]), list(policy.get("stimuli", {})))
    for keys in lists:
        small = [key.lower() for key in keys]
        if len(small) != len(set(small)):
            return {"duplicate_key"}
    return set()


def _embeds(surface: dict[str, Any]) -> bool:
    """Keys that name who may do what, outside schemas, names of commands and mapped fields."""
    for key, value in surface.items():
        if key in PRINCIPAL_WORDS:
            return True
        if key in ("verbs", "stimulusTriggers", "binding"):
            continue  # names of commands, schemas, mapped fields; what else stands there is closed by the parse
        if _embeds_deep(value):
            return True
    return False


def _embeds_deep(value: Any) -> bool:
    if isinstance(value, dict):
        return any(key in PRINCIPAL_WORDS or _embeds_deep(item) for key, item in value.items())
    if isinstance(value, list):
        return any(_embeds_deep(item) for item in value)
    return False


def _composites(surface: dict[str, Any], policy: dict[str, Any], known: dict[str, Any]) -> set[str]:
    """composite_escalation; a literal confirm in a step; a step that names no command."""
    packs = dict(known)
    packs[surface["id"]] = {"surface": surface, "policy": policy}
    kinds = set()
    for verb_key, verb in surface.get("verbs", {}).items():
        own = policy["verbs"].get(verb_key)
        for step in verb.get("steps", []):
            for name in ("confirm", "apply"):
                if name in step["args"] and step["args"][name] != {"$arg": "confirm"}:
                    kinds.add("reserved_arg")
            entry = _step_entry(packs, surface["id"], step)
            if entry is None:
                kinds.add("missing_verb")
            elif own is not None and _weaker(own, entry):
                kinds.add("composite_escalation")
        if _depth(packs, surface["id"], verb_key, ()) > 4 or len(verb.get("steps", [])) > 32:
            kinds.add("composite_escalation")
    return kinds


def _step_entry(packs: dict[str, Any], own_id: str, step: dict[str, Any]) -> dict[str, Any] | None:
    pack = packs.get(step.get("pack_id", own_id))
    if pack is None or step["verb_key"] not in pack["surface"].get("verbs", {}):
        return None
    entry: dict[str, Any] | None = pack["policy"]["verbs"].get(step["verb_key"])
    return entry


def _weaker(own: dict[str, Any], entry: dict[str, Any]) -> bool:
    if entry["operation"] == "write" and own["operation"] == "read":
        return True
    return entry.get("confirm") is True and own.get("confirm") is not True


def _depth(packs: dict[str, Any], pack_id: str, verb_key: str, above: tuple[tuple[str, str], ...]) -> int:
    """How many composites stand over each other here; a cycle is deeper than anything allowed."""
    if (pack_id, verb_key) in above:
        return 99
    pack = packs.get(pack_id)
    verb = pack["surface"].get("verbs", {}).get(verb_key, {}) if pack is not None else {}
    steps = verb.get("steps", [])
    if not steps:
        return 0
    here = (*above, (pack_id, verb_key))
    return 1 + max(_depth(packs, step.get("pack_id", pack_id), step["verb_key"], here) for step in steps)
