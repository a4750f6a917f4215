"""The envelopes and reports of a world."""

from typing import Any

from tests.oracle.tale import Tale

World = dict[str, Any]
BAD_RAWS = (
    "{",
    "[]",
    '{"pack_id":"git","verb_key":"git.log"}',
    '{"pack_id":"git","verb_key":"git.log","args":null}',
    '{"pack_id":"git","pack_id":"git","verb_key":"git.log","args":{}}',
    '{"pack_id":"git","verb_key":"git.log","args":{"x":NaN}}',
    '{"pack_id":"git","verb_key":"git.log","args":{"x":"\\u0000"}}',
)
EXTRAS: tuple[World, ...] = (
    {"tenant": "bolt"},
    {"principal": "eve"},
    {"operation": "read"},
    {"confirm": True},
    {"args": None},
    {"pack_id": None},
    {"verb_key": None},
)
BAD_ARGS: tuple[World, ...] = ({}, {"text": 5}, {"text": "a text too long for it"}, {"text": "a", "tenant": "bolt"})


def exec_case(tale: Tale, name: str) -> World:
    """A command of an activation's pack, three in four of them with all they ask for."""
    rng = tale.rng
    activation_id = tale.pick()
    activation = tale.activations[activation_id]
    pack_id = activation["pack"] if rng.random() < 0.94 else rng.choice(tale.names)
    pack = tale.packs[pack_id]
    verbs = list(pack["surface"]["verbs"]) if pack is not None else []
    verb_key = rng.choice(verbs) if verbs and rng.random() < 0.95 else rng.choice(("run", "git", "wipe2", "LIST"))
    case: World = {"pack_id": pack_id, "verb_key": verb_key, "args": _args(tale, pack, verb_key)}
    if rng.random() < 0.85:
        case = {"activation": activation_id, **case}
    else:
        case["session"] = activation["session"]
        if activation["project"] is not None and rng.random() < 0.8:
            case["project"] = activation["project"]
    _confirm(tale, case, pack)
    chance = rng.random()
    if chance < 0.03:
        case["envelope"] = rng.choice(EXTRAS)
    elif chance < 0.05:
        case["envelope"] = {"pack_id": None, "surface_id": pack_id}
    elif chance < 0.06:
        case["envelope"] = {"surface_id": pack_id}
    elif chance < 0.08:
        case = {key: case[key] for key in ("activation", "session", "project") if key in case}
        case["raw"] = rng.choice(BAD_RAWS)
    return {"exec": case}


def _args(tale: Tale, pack: World | None, verb_key: str) -> World:
    """What the schema asks for; one in ten something else, but never of a composite: the order is open there."""
    rng = tale.rng
    verb = pack["surface"]["verbs"].get(verb_key, {}) if pack is not None else {}
    spoil = rng.random() < 0.1 and "steps" not in verb
    if "args" in verb:
        return dict(rng.choice(BAD_ARGS)) if spoil else {"text": rng.choice(("a", "tenant bolt", "grüße"))}
    return {"entity": "x"} if spoil else {}


def _confirm(tale: Tale, case: World, pack: World | None) -> None:
    """Mostly a confirmation where one is asked for; its look-alikes on both faces."""
    rng = tale.rng
    entry = pack["policy"]["verbs"].get(case["verb_key"], {}) if pack is not None else {}
    if rng.random() < 0.4:
        case["face"] = rng.choice(("cli", "json"))
    if entry.get("confirm") is True or rng.random() < 0.08:
        word = rng.choice(("confirm", "confirm", "apply"))
        value = rng.choice((True, True, True, True, "true", "true", "True", False, 1, "yes"))
        if value is True or rng.random() < 0.7:
            case["args"][word] = value


def available_case(tale: Tale, name: str) -> World | None:
    """A report. The case has no project and no session: only of packs on a session that is well, without a project."""
    person, pack_id = tale.rng.choice(list(tale.people)), tale.rng.choice(tale.names)
    if person in tale.dead or tale.expired(person):
        return None
    for row in tale.activations.values():
        if row["session"] == person and row["live"] and row["project"] is not None:
            return None
    return {"available": {"principal": person, "pack": pack_id}}
