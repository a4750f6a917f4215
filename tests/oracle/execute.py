"""One envelope against the rows: EXEC_STEPS, composites, install, availability (DESIGN §5, §7, §8, §10)."""

import json
from typing import Any

from tests.oracle.packs import adapter_kind
from tests.oracle.reading import KEY, PACK_ID, NotStrict, fits, strict_json, too_large
from tests.oracle.state import family, granted, member

Fact = dict[str, Any]
NO_ARGS = {"type": "object", "properties": {}, "additionalProperties": False}
KEPT_MODES = ("user", "local", "mothership")  # a hub mints these; public and mock need no connection


def execute(state: Fact, case: Fact) -> Fact:
    """An exec case: ok, error, minted, ran, steps."""
    log: Fact = {"minted": False, "steps": []}
    word, envelope = _envelope(case)
    if word is not None:
        error: str | None = f"refused: {word}"
    else:
        session, project = case.get("session"), case.get("project")
        if "activation" in case:
            session = state["activations"][case["activation"]]["session"]
            project = state["activations"][case["activation"]]["project"]
        args = dict(envelope["args"])
        confirmed = args.pop("confirm", None) is True
        confirmed = args.pop("apply", None) is True or confirmed
        caller = {"session": session, "project": project, "confirmed": confirmed}
        error = _run(state, caller, envelope["pack_id"], envelope["verb_key"], args, log)
    return {
        "ok": error is None,
        "error": error,
        "minted": log["minted"],
        "ran": bool(log["steps"]),
        "steps": log["steps"],
    }


def _envelope_text(case: Fact) -> str:
    """`raw`, or the three fields with `envelope` over them; null takes a field away."""
    if "raw" in case:
        return str(case["raw"])
    fields = {name: case[name] for name in ("pack_id", "verb_key", "args") if name in case}
    if case.get("face", "json") == "cli":
        fields["args"] = _from_cli(fields["args"])
    for name, value in case.get("envelope", {}).items():
        if value is None:
            fields.pop(name, None)
        else:
            fields[name] = value
    return json.dumps(fields)


def _envelope(case: Fact) -> tuple[str | None, Any]:
    """The door of the envelope: too_large, malformed, unknown_field; else pack_id, verb_key, args."""
    text = _envelope_text(case)
    if too_large(text):
        return "too_large", None
    try:
        envelope = strict_json(text)
    except NotStrict:
        return "malformed", None
    if not isinstance(envelope, dict) or not _good_fields(envelope):
        return "malformed", None
    if set(envelope) - {"pack_id", "verb_key", "args"}:
        return "unknown_field", None
    return None, envelope


def _good_fields(envelope: Fact) -> bool:
    """The three fields; surface_id is read in place of pack_id, both are refused."""
    if "surface_id" in envelope:
        if "pack_id" in envelope:
            return False
        envelope["pack_id"] = envelope.pop("surface_id")
    for name, pattern in (("pack_id", PACK_ID), ("verb_key", KEY)):
        if not isinstance(envelope.get(name), str) or not pattern.fullmatch(envelope[name]):
            return False
    return isinstance(envelope.get("args"), dict)


def _from_cli(args: Fact) -> Fact:
    """Exactly the text `true` under confirm and apply is the boolean on this face."""
    result = dict(args)
    for name in ("confirm", "apply"):
        if result.get(name) == "true":
            result[name] = True
    return result


def _run(state: Fact, caller: Fact, pack_id: str, verb_key: str, args: Fact, log: Fact) -> str | None:
    """The whole pipeline for one command; None when it ran, else the error."""
    error = _gate(state, caller, pack_id, verb_key)
    if error is not None:
        return error
    session = state["sessions"][caller["session"]]
    tenant, principal = session["tenant"], session["principal"]
    surface = state["installed"][tenant, pack_id]["surface"]
    verb = surface["verbs"][verb_key]
    if not fits(args, verb.get("args", NO_ARGS)):
        return "invalid args: …"
    if adapter_kind(surface) == "composite":
        return _composite(state, caller, pack_id, verb, args, log)
    if verb.get("connect") is True:
        state["connected"].add((tenant, principal, family(state, tenant, pack_id)))
    elif surface["binding"]["mode"] in KEPT_MODES:
        if (tenant, principal, family(state, tenant, pack_id)) not in state["connected"]:
            return f"not connected: {pack_id}"
        log["minted"] = True
    log["steps"].append(verb_key)
    return None


def _composite(state: Fact, caller: Fact, pack_id: str, verb: Fact, args: Fact, log: Fact) -> str | None:
    error = _preflight(state, caller, pack_id, verb)
    if error is not None:
        return error
    for step in verb["steps"]:
        given = {}
        for name, value in step["args"].items():
            if isinstance(value, dict) and "$arg" in value:
                if value["$arg"] in args:
                    given[name] = args[value["$arg"]]
            else:
                given[name] = value
        given.pop("confirm", None)
        given.pop("apply", None)
        error = _run(state, caller, step.get("pack_id", pack_id), step["verb_key"], given, log)
        if error is not None:
            return error
    return None


def _preflight(state: Fact, caller: Fact, pack_id: str, verb: Fact) -> str | None:
    """§9.5 1 to 4 for every step, also inside composites among them, before the first runs."""
    session = state["sessions"][caller["session"]]
    for step in verb["steps"]:
        step_pack = step.get("pack_id", pack_id)
        error = _gate(state, caller, step_pack, step["verb_key"])
        if error is not None:
            return error
        inner = state["installed"][session["tenant"], step_pack]["surface"]["verbs"][step["verb_key"]]
        if "steps" in inner:
            error = _preflight(state, caller, step_pack, inner)
            if error is not None:
                return error
    return None


def _activation(state: Fact, caller: Fact, pack_id: str) -> Fact | None:
    for activation in state["activations"].values():
        if activation["revoked"] or activation["session"] != caller["session"]:
            continue
        if activation["pack"] == pack_id and activation["project"] == caller["project"]:
            found: Fact = activation
            return found
    return None


def _gate(state: Fact, caller: Fact, pack_id: str, verb_key: str) -> str | None:
    """EXEC_STEPS to `confirm required`: the first refusal wins."""
    session = state["sessions"][caller["session"]]
    tenant, principal = session["tenant"], session["principal"]
    pack = state["installed"].get((tenant, pack_id))
    if pack is None:
        return f"pack not installed: {pack_id}"
    activation = _activation(state, caller, pack_id)
    if activation is None:
        return f"pack not activated: {pack_id}"
    if verb_key not in pack["surface"].get("verbs", {}):
        return f"unknown command: {verb_key}"
    if session["revoked"]:
        return "denied: session revoked"
    if session["expires"] is not None and state["now"] >= session["expires"]:
        return "denied: session expired"
    if state["principals"][tenant, principal]["disabled"]:
        return "denied: principal disabled"
    return _scope_and_capability(state, caller, pack, activation, verb_key)


def _scope_and_capability(state: Fact, caller: Fact, pack: Fact, activation: Fact, verb_key: str) -> str | None:
    who = (activation["tenant"], activation["principal"])
    operator = state["principals"][who]["operator"]
    entry = pack["policy"]["verbs"][verb_key]
    land, project = entry["privacy"]["land"], None
    if land == "brain":
        project = activation["project"]
        if project is None:
            return "denied: privacy.land brain requires project_id"
        if not member(state, who[0], project, who[1]):
            return "denied: not a member of the project"
    if pack["surface"].get("plane", "runtime") == "control" and not operator:
        return "denied: control plane requires an operator"
    if land == "local" and not activation["workspace"]:
        return "denied: privacy.land local requires a workspace"
    denial = _capability(state, who, pack, verb_key, project)
    if denial is not None:
        return denial
    if entry.get("confirm") is True and not caller["confirmed"]:
        return "confirm required"
    return None


def _capability(state: Fact, who: tuple[str, str], pack: Fact, verb_key: str, project: str | None) -> str | None:
    """pack.connect before verb.exec, then the elevation of §9.8."""
    operation = pack["policy"]["verbs"][verb_key]["operation"]
    connects = pack["surface"]["verbs"][verb_key].get("connect") is True
    mothership = pack["surface"]["binding"]["mode"] == "mothership" and not state["principals"][who]["operator"]
    if connects and not granted(state, who, "pack.connect", pack["id"], verb_key, project):
        return "denied: missing pack.connect"
    if not granted(state, who, f"verb.exec.{operation}", pack["id"], verb_key, project):
        return f"denied: missing verb.exec.{operation} for {_long_name(pack['id'], verb_key)}"
    if mothership and not granted(state, who, "mothership.elevate", pack["id"], verb_key, project):
        return "denied: mothership binding requires an operator"
    return None


def _long_name(pack_id: str, verb_key: str) -> str:
    if verb_key.startswith(pack_id + "."):
        return verb_key
    return f"{pack_id}.{verb_key}"


def install(state: Fact, case: Fact) -> Fact:
    """An install case: control plane first, then the grant, then the pack's own issues."""
    tenant = state["home"][case["principal"]]
    who = (tenant, case["principal"])
    pack = state["offered"][case["pack"]]
    surface = pack["surface"] if isinstance(pack["surface"], dict) else {}
    if surface.get("plane", "runtime") == "control" and not state["principals"][who]["operator"]:
        return {"ok": False, "error": "denied: control plane requires an operator"}
    if not granted(state, who, "pack.install", case["pack"]):
        return {"ok": False, "error": "denied: missing pack.install"}
    if pack["state"] != "installed":
        return {"ok": False, "error": "…"}  # its first issue, whose words are the product's
    state["installed"][tenant, case["pack"]] = pack
    return {"ok": True, "error": None}


def available(state: Fact, case: Fact) -> Fact:
    """Installed, activated, connected, and the commands that nothing but confirm or args could refuse."""
    session_id, pack_id = case["principal"], case["pack"]
    tenant = state["home"][session_id]
    pack = state["installed"].get((tenant, pack_id))
    if pack is None:
        return {"installed": False, "activated": False, "connected": False, "executable": {}}
    live = [
        activation
        for activation in state["activations"].values()
        if activation["session"] == session_id and activation["pack"] == pack_id and not activation["revoked"]
    ]
    callers = [{"session": session_id, "project": row["project"], "confirmed": True} for row in live]
    return {
        "installed": True,
        "activated": bool(live),
        "connected": _is_connected(state, tenant, session_id, pack_id),
        "executable": {
            verb_key: any(_could_run(state, caller, pack_id, verb_key) for caller in callers)
            for verb_key in pack["surface"].get("verbs", {})
        },
    }


def _is_connected(state: Fact, tenant: str, principal: str, pack_id: str) -> bool:
    if state["installed"][tenant, pack_id]["surface"]["binding"]["mode"] not in KEPT_MODES:
        return True
    return (tenant, principal, family(state, tenant, pack_id)) in state["connected"]


def _could_run(state: Fact, caller: Fact, pack_id: str, verb_key: str) -> bool:
    if _gate(state, caller, pack_id, verb_key) is not None:
        return False
    session = state["sessions"][caller["session"]]
    verb = state["installed"][session["tenant"], pack_id]["surface"]["verbs"][verb_key]
    for step in verb.get("steps", []):
        if not _could_run(state, caller, step.get("pack_id", pack_id), step["verb_key"]):
            return False
    if verb.get("connect") is True:
        return True
    return _is_connected(state, session["tenant"], session["principal"], pack_id)
