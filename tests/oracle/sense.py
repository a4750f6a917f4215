"""One announcement against the rows: intake refusals, candidates, SENSE_STEPS (DESIGN §6, §7)."""

import json
from typing import Any

from tests.oracle.reading import KEY, MESSAGE_ID, NotStrict, fits, is_moment, strict_json, too_large
from tests.oracle.state import granted, member

Fact = dict[str, Any]


def body_text(case: Fact) -> str:
    """The body of a sense case: `raw`, or ref, data and subject with `message` over them; null takes a field away."""
    if "raw" in case:
        return str(case["raw"])
    body = {name: case[name] for name in ("ref", "data", "subject") if name in case}
    for name, value in case.get("message", {}).items():
        if value is None:
            body.pop(name, None)
        else:
            body[name] = value
    return json.dumps(body)


def announce(state: Fact, name: str, case: Fact) -> Fact:
    """A sense case: `{refused: WORD}`, `{repeat: True}` or an outcome for each route that matches."""
    text = body_text(case)
    message_id = case.get("id", f"own id of {name}")
    word = _credential(state, text, case["activation"])
    if word is None:
        word, body = _body(text, message_id if "id" in case else "x")
    if word is None:
        activation = state["activations"][case["activation"]]
        word = _pack(state, activation, body)
    if word is None:
        key = (activation["tenant"], activation["principal"], activation["pack"], message_id)
        if key in state["events"]:
            if state["events"][key] == text:
                return {"repeat": True}
            word = "conflict"
    if word is not None:
        return {"refused": word}
    state["events"][key] = text
    event = {"activation": activation, "ref": body["ref"], "outcomes": {}, "open": []}
    state["cases"][name] = event
    _accept(state, event, case.get("hold", False))
    return dict(event["outcomes"])


def again(state: Fact, name: str) -> Fact:
    """Attempt what is not delivered yet of the case of that name."""
    event = state["cases"][name]
    for route_name in list(event["open"]):
        _attempt(state, event, route_name)
    return dict(event["outcomes"])


def _credential(state: Fact, text: str, activation_id: str) -> str | None:
    """no_body to expired: before anything of the body is read."""
    if text == "":
        return "no_body"
    if too_large(text):
        return "too_large"
    activation = state["activations"].get(activation_id)
    if activation is None:
        return "unknown_credential"
    session = state["sessions"][activation["session"]]
    if activation["revoked"]:
        return "activation_revoked"
    if session["revoked"]:
        return "session_revoked"
    if state["principals"][activation["tenant"], activation["principal"]]["disabled"]:
        return "principal_disabled"
    if session["expires"] is not None and state["now"] >= session["expires"]:
        return "expired"
    return None


def _body(text: str, message_id: str) -> tuple[str | None, Any]:
    """malformed, then unknown_field; else the body."""
    try:
        body = strict_json(text)
    except NotStrict:
        return "malformed", None
    if not MESSAGE_ID.fullmatch(message_id) or not isinstance(body, dict):
        return "malformed", None
    if not isinstance(body.get("ref"), str) or not KEY.fullmatch(body["ref"]):
        return "malformed", None
    if not isinstance(body.get("data"), dict):
        return "malformed", None
    if "subject" in body and (not isinstance(body["subject"], str) or len(body["subject"]) > 256):
        return "malformed", None
    if "occurred_at" in body and not is_moment(body["occurred_at"]):
        return "malformed", None
    if set(body) - {"ref", "data", "subject", "occurred_at"}:
        return "unknown_field", None
    return None, body


def _pack(state: Fact, activation: Fact, body: Fact) -> str | None:
    """pack_missing, undeclared_ref, invalid_data."""
    pack = state["installed"].get((activation["tenant"], activation["pack"]))
    if pack is None:
        return "pack_missing"
    trigger = declared(pack, body["ref"])
    if trigger is None:
        return "undeclared_ref"
    if not fits(body["data"], trigger.get("data", {})):
        return "invalid_data"
    return None


def declared(pack: Fact, ref: str) -> Fact | None:
    """The trigger of that ref in the manifest."""
    for trigger in pack["surface"].get("stimulusTriggers", []):
        if trigger["ref"] == ref:
            found: Fact = trigger
            return found
    return None


def _accept(state: Fact, event: Fact, hold: bool) -> None:
    """Candidates get a delivery, attempted unless held; the others show the text of the land."""
    activation = event["activation"]
    pack = state["installed"][activation["tenant"], activation["pack"]]
    land = pack["policy"]["stimuli"][event["ref"]]["privacy"]["land"]
    for name, route in state["routes"].items():
        if route["tenant"] != activation["tenant"] or route["pack"] != activation["pack"]:
            continue
        if route["ref"] not in ("*", event["ref"]):
            continue
        text = _not_candidate(state, activation, land, route["principal"])
        if text is not None:
            event["outcomes"][name] = text
            continue
        event["open"].append(name)
        event["outcomes"][name] = "pending"
        if not hold:
            _attempt(state, event, name)


def _not_candidate(state: Fact, activation: Fact, land: str, owner: str) -> str | None:
    """Why the owner's route gets no delivery at all. The publishing principal's own always gets one."""
    if owner == activation["principal"]:
        return None
    if land == "personal":
        return "denied: privacy.land personal"
    if land == "local":
        return "denied: privacy.land local requires a workspace sink"
    if activation["project"] is None:
        return "denied: privacy.land brain requires project_id"
    if not member(state, activation["tenant"], activation["project"], owner):
        return "denied: not a member of the project"
    return None


def _attempt(state: Fact, event: Fact, route_name: str) -> None:
    route = state["routes"][route_name]
    if _held(state, event["activation"], route["sink"]):
        event["outcomes"][route_name] = "held"
        return
    denial = _denial(state, event, route)
    if denial is None:
        event["outcomes"][route_name] = "delivered"
        event["open"].remove(route_name)
    else:
        event["outcomes"][route_name] = denial


def _held(state: Fact, activation: Fact, sink: Any) -> bool:
    """Looked at before the steps: a paused sink."""
    return isinstance(sink, str) and sink in state["paused"]


def _denial(state: Fact, event: Fact, route: Fact) -> str | None:
    """SENSE_STEPS, in the order of the table: the first refusal wins."""
    activation = event["activation"]
    tenant, publisher, owner = activation["tenant"], activation["principal"], route["principal"]
    pack = state["installed"].get((tenant, activation["pack"]))
    if pack is None:
        return f"pack not installed: {activation['pack']}"
    if activation["revoked"]:
        return "denied: activation revoked"
    if declared(pack, event["ref"]) is None:
        return f"trigger not declared: {event['ref']}"
    if state["sessions"][activation["session"]]["revoked"]:
        return "denied: session revoked"
    if state["principals"][tenant, owner]["disabled"] or state["principals"][tenant, publisher]["disabled"]:
        return "denied: principal disabled"
    return _scope_and_capability(state, event, route, pack)


def _scope_and_capability(state: Fact, event: Fact, route: Fact, pack: Fact) -> str | None:
    activation, owner = event["activation"], route["principal"]
    tenant = activation["tenant"]
    land = pack["policy"]["stimuli"][event["ref"]]["privacy"]["land"]
    if land == "brain":
        denial = _project(state, activation, owner)
        if denial is not None:
            return denial
    if pack["surface"].get("plane", "runtime") == "control" and not state["principals"][tenant, owner]["operator"]:
        return "denied: control plane requires an operator"
    denial = _sink(activation, land, route)
    if denial is not None:
        return denial
    project = activation["project"] if land == "brain" else None
    if not granted(state, (tenant, owner), "sense.enable", pack["id"], event["ref"], project):
        return "denied: missing sense.enable"
    return None


def _project(state: Fact, activation: Fact, owner: str) -> str | None:
    """§9.2.2, §9.2.3: publisher and owner are members now."""
    if activation["project"] is None:
        return "denied: privacy.land brain requires project_id"
    for principal in (activation["principal"], owner):
        if not member(state, activation["tenant"], activation["project"], principal):
            return "denied: not a member of the project"
    return None


def _sink(activation: Fact, land: str, route: Fact) -> str | None:
    """What a land asks of the sink (DESIGN §6). A workspace sink's audience is the activation's principal."""
    sink, owner, publisher = route["sink"], route["principal"], activation["principal"]
    if land == "personal":
        if owner != publisher:
            return "denied: privacy.land personal"
        if sink in ("inbox", "own", "workspace"):
            return None
        return "denied: privacy.land personal"
    if land == "local":
        if owner == publisher and sink == "workspace" and activation["workspace"]:
            return None
        return "denied: privacy.land local requires a workspace sink"
    if sink in ("inbox", "own", "workspace"):  # kept apart, or a member's
        return None
    if isinstance(sink, dict) and sink["project"] == activation["project"]:
        return None
    return "denied: sink outside the project"
