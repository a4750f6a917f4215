"""What a pack is (§4, DESIGN §5): surface before policy before lint, read naively."""

from typing import Any

from tests.oracle.lint import lint
from tests.oracle.reading import FILE_LIMIT, KEY, PACK_ID, NotStrict, strict_json, too_large

ADAPTERS = ("wrap", "composite", "openapi", "sense_only")
MODES = ("public", "user", "local", "mothership", "mock")
HUBS = ("keyring", "local-credential", "public", "none")
LANDS = ("personal", "brain", "local")

ADAPTER_FIELDS = {"kind", "bin", "document", "allowedSubcommands", "maxArgv"}
BINDING_FIELDS = {"mode", "hub", "env", "headers"}
SANDBOX_FIELDS = {"posture", "bins", "timeout_s", "output_limit", "env"}
VERB_FIELDS = {"summary", "cli", "args", "connect", "steps", "operationId"}
TRIGGER_FIELDS = {"ref", "summary", "data"}


def read_pack(entry: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """The pack of a scenario's entry: id, state (installed, surface, policy, lint), kinds, surface, policy.

    `known` holds the packs already installed, by id: the commands a composite's step may name.
    """
    surface = _document(entry, "surface")
    policy = _document(entry, "policy")
    pack: dict[str, Any] = {"id": None, "state": "installed", "kinds": set(), "surface": surface, "policy": policy}
    if isinstance(surface, dict):
        pack["id"] = surface.get("id")
    if not good_surface(surface):
        pack["state"] = "surface"
    elif not good_policy(policy):
        pack["state"] = "policy"
    else:
        pack["kinds"] = lint(surface, policy, known)
        if pack["kinds"]:
            pack["state"] = "lint"
    return pack


def _document(entry: dict[str, Any], name: str) -> Any:
    if name in entry:
        return entry[name]
    text = entry[f"{name}_text"]
    if too_large(text, FILE_LIMIT):
        return None
    try:
        return strict_json(text)
    except NotStrict:
        return None


def good_policy(policy: Any) -> bool:
    """§4.1: closed at every level, version the integer 1, stimuli {} where absent; null is never absent."""
    if not isinstance(policy, dict):
        return False
    if set(policy) - {"surface_id", "version", "verbs", "stimuli"}:
        return False
    if not isinstance(policy.get("surface_id"), str) or not PACK_ID.fullmatch(policy["surface_id"]):
        return False
    if type(policy.get("version")) is not int or policy["version"] != 1:
        return False
    for entries in (policy.get("verbs"), policy.get("stimuli", {})):
        if not isinstance(entries, dict):
            return False
        for key, entry in entries.items():
            if not KEY.fullmatch(key) or not _good_entry(entry):
                return False
    return True


def _good_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or set(entry) - {"operation", "privacy", "confirm"}:
        return False
    if entry.get("operation") not in ("read", "write"):
        return False
    privacy = entry.get("privacy")
    if not isinstance(privacy, dict) or set(privacy) != {"land"} or privacy["land"] not in LANDS:
        return False
    return "confirm" not in entry or isinstance(entry["confirm"], bool)


def good_surface(surface: Any) -> bool:
    """DESIGN §5: unknown fields are tolerated at the top and nowhere else."""
    if not isinstance(surface, dict):
        return False
    if not isinstance(surface.get("id"), str) or not PACK_ID.fullmatch(surface["id"]):
        return False
    if surface.get("plane", "runtime") not in ("runtime", "control"):
        return False
    for name in ("version", "title", "family"):
        if name in surface and not isinstance(surface[name], str):
            return False
    if not _good_adapter(surface.get("adapter")) or not _good_binding(surface.get("binding")):
        return False
    sandbox = surface.get("sandbox", {})
    if not isinstance(sandbox, dict) or set(sandbox) - SANDBOX_FIELDS:
        return False
    return _good_verbs(surface) and _good_triggers(surface.get("stimulusTriggers", []))


def _good_adapter(adapter: Any) -> bool:
    if isinstance(adapter, str):
        return adapter in ADAPTERS
    return isinstance(adapter, dict) and not set(adapter) - ADAPTER_FIELDS and adapter.get("kind") in ADAPTERS


def _good_binding(binding: Any) -> bool:
    if not isinstance(binding, dict) or set(binding) - BINDING_FIELDS:
        return False
    return binding.get("mode") in MODES and binding.get("hub") in HUBS


def _good_verbs(surface: dict[str, Any]) -> bool:
    verbs = surface.get("verbs", {})
    if not isinstance(verbs, dict):
        return False
    if verbs and adapter_kind(surface) == "sense_only":
        return False
    for key, verb in verbs.items():
        if not KEY.fullmatch(key) or not isinstance(verb, dict) or set(verb) - VERB_FIELDS:
            return False
        if not isinstance(verb.get("args", {}), dict) or not isinstance(verb.get("connect", False), bool):
            return False
    return True


def _good_triggers(triggers: Any) -> bool:
    if not isinstance(triggers, list):
        return False
    for trigger in triggers:
        if not isinstance(trigger, dict) or set(trigger) - TRIGGER_FIELDS:
            return False
        if not isinstance(trigger.get("ref"), str) or not KEY.fullmatch(trigger["ref"]):
            return False
        if not isinstance(trigger.get("data", {}), dict):
            return False
    return True


def adapter_kind(surface: dict[str, Any]) -> str:
    """The adapter's kind, from its short form too."""
    adapter = surface["adapter"]
    if isinstance(adapter, str):
        return adapter
    return str(adapter["kind"])
