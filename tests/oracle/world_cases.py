"""The cases of a world: announcements good and bad, `again`, installs; steps and envelopes have their own files."""

import json
from typing import Any

from tests.oracle.pool import BAD_DATA, GOOD_DATA
from tests.oracle.tale import Tale
from tests.oracle.world_exec import available_case, exec_case
from tests.oracle.world_steps import step_case

World = dict[str, Any]
LIMIT = 256 * 1024
MALFORMED = (
    "{",
    "[]",
    "null",
    '"text"',
    "{}",
    '{"ref":"bell"}',
    '{"data":{}}',
    '{"ref":"bell","data":[]}',
    '{"ref":"bell","data":null}',
    '{"ref":"bell","data":"{}"}',
    '{"ref":5,"data":{}}',
    '{"ref":"-bell","data":{}}',
    '{"ref":"a b","data":{}}',
    '{"ref":"bell\\n","data":{}}',
    '{"ref":"","data":{}}',
    '{"ref":"' + "x" * 129 + '","data":{}}',
    '{"ref":"bell","ref":"bell","data":{}}',
    '{"ref":"bell","data":{"a":{"b":1,"b":1}}}',
    '{"ref":"bell","data":{"x":NaN}}',
    '{"ref":"bell","data":{"x":-Infinity}}',
    '{"ref":"bell","data":{"x":1e999}}',
    '{"ref":"bell","data":{"x":1000000000000000000000000000000}}',
    '{"ref":"bell","data":{"x":"\\ud800"}}',
    '{"ref":"bell","data":{"x":"a\\u0000b"}}',
    '{"ref":"bell","data":{"\\u0000":1}}',
    '{"ref":"bell","data":{"x":' + "[" * 80 + "]" * 80 + "}}",
    '\ufeff{"ref":"bell","data":{}}',
    '{"ref":"bell","data":{}} x',
    '{"ref":"bell","data":{},"subject":null}',
    '{"ref":"bell","data":{},"occurred_at":null}',
    "{'ref':'bell','data':{}}",
)
MALFORMED_MESSAGES: tuple[World, ...] = (
    {"ref": None},
    {"data": None},
    {"subject": 5},
    {"subject": "x" * 257},
    {"occurred_at": "2026-06-01T12:00:00"},
    {"occurred_at": "yesterday"},
    {"occurred_at": 1780315200},
    {"subject": 5, "tenant": "bolt"},
)
UNKNOWN_FIELDS: tuple[World, ...] = (
    {"tenant": "bolt"},
    {"principal": "eve"},
    {"pack_id": "git"},
    {"operation": "write"},
    {"Ref": "bell"},
    {"x": {}, "subject": "s"},
)
GOOD_MESSAGES: tuple[World, ...] = (
    {"occurred_at": "2026-06-01T11:59:00Z"},
    {"occurred_at": "2026-06-01T13:59:00.25+02:00"},
    {"subject": "x" * 256},
    {"subject": "größe 1"},
)
# Inside data names and shapes mean nothing to the runtime; these stand just inside the limits of the parser.
INSIDE = (
    '{"deep":' + "[" * 50 + "]" * 50 + "}",
    '{"long":9223372036854775807,"low":-9223372036854775808}',
    '{"text":"\\\\u0000","pair":"\\ud83c\\udf0d"}',
    ' { "spaced" : [ 1.5e3 , -0 ] } ',
)


def cases(tale: Tale, count: int) -> list[World]:
    """The cases of a world, in order; the tale changes with them."""
    rng = tale.rng
    tale.begun = True
    words, weights = ["sense", "again"], [62, 10]
    for word, weight in (("install", 5), ("step", 17), ("exec", 60), ("available", 8)):
        if word in tale.kinds:
            words.append(word)
            weights.append(weight)
    result: list[World] = []
    for word in rng.choices(words, weights, k=count):
        name = f"case {len(result)}"
        # What a step changes shows best on what was open before it.
        after_step = bool(result) and "step" in result[-1] and rng.random() < 0.4
        case = again_case(tale, name) if after_step else MAKERS[word](tale, name)
        if case is None:
            case = sense_case(tale, name)
        result.append({"name": name, **case})
    return result


def sense_case(tale: Tale, name: str) -> World:
    """An announcement, four in five of them good."""
    rng = tale.rng
    activation_id = tale.pick()
    activation = tale.activations[activation_id]
    triggers = tale.triggers(activation["pack"])
    ref = rng.choice(list(triggers))
    case: World = {"activation": activation_id, "ref": ref, "data": rng.choice(GOOD_DATA[triggers[ref]])}
    chance = rng.random()
    if chance < 0.22:
        return {"sense": _worse(tale, case, triggers[ref])}
    if chance < 0.25 and triggers[ref] == "any":
        if tale.usable(activation):
            tale.accepted.append(name)
        return {"sense": {"activation": activation_id, "raw": f'{{"ref":"{ref}","data":{rng.choice(INSIDE)}}}'}}
    if chance < 0.35:
        case["subject"] = f"branch {rng.randint(1, 3)}"
    elif chance < 0.40:
        case["message"] = rng.choice(GOOD_MESSAGES)
    if rng.random() < 0.4:
        case["id"] = f"m:{name[5:]}"
    if rng.random() < 0.14:
        case["hold"] = True
    if tale.usable(activation):
        _note(tale, name, activation["pack"], case)
    return {"sense": case}


def _note(tale: Tale, name: str, pack_id: str, case: World) -> None:
    """What intake took: for `again`, and for a message id that comes a second time."""
    tale.accepted.append(name)
    if "hold" in case:
        tale.held.append((name, pack_id, case["ref"]))
    if "id" in case:
        tale.sent.append(case)


def _worse(tale: Tale, case: World, schema: str) -> World:
    """An announcement with something in it to refuse, or one that was made before."""
    rng = tale.rng
    way = rng.choices(range(9), (10, 24, 10, 10, 16, 16, 5, 30, 3))[0]
    if way == 0:
        return {**case, "activation": "nobody"}
    if way == 1:
        return {"activation": case["activation"], "raw": rng.choice(MALFORMED)}
    if way == 2:
        return {**case, "message": rng.choice(MALFORMED_MESSAGES)}
    if way == 3:
        return {**case, "message": rng.choice(UNKNOWN_FIELDS)}
    if way == 4:
        return {**case, "ref": rng.choice(("nothing", "Commit.created", case["ref"] + "x", "bell2"))}
    if way == 5 and BAD_DATA[schema]:
        return {**case, "data": rng.choice(BAD_DATA[schema])}
    if way == 6:
        return {**case, "id": rng.choice(("a b", "é", "x" * 129, "line\n"))}
    if way == 7 and tale.sent:
        return _before(tale)
    if way == 8:
        return _large(tale, case)
    return {**case, "message": {"user": "eve"}}


def _before(tale: Tale) -> World:
    """A message id that was used: by the same announcement, by another, or through another activation."""
    rng = tale.rng
    case = {name: value for name, value in rng.choice(tale.sent).items() if name != "hold"}
    activation = tale.activations[case["activation"]]
    chance = rng.random()
    if chance < 0.4:
        case["subject"] = "another"
        case.pop("message", None)
    elif chance < 0.6:
        same = [name for name, row in tale.activations.items() if row["pack"] == activation["pack"]]
        case["activation"] = rng.choice(same)
    return case


def _large(tale: Tale, case: World) -> World:
    """A body of exactly the limit, or one byte more; of an unknown activation too."""
    head, tail = '{"ref":' + json.dumps(case["ref"]) + ',"data":{"x":"', '"}}'
    length = LIMIT - len(head) - len(tail) + tale.rng.choice((0, 1, 1))
    activation = "nobody" if tale.rng.random() < 0.2 else case["activation"]
    return {"activation": activation, "raw": head + "x" * length + tail}


def again_case(tale: Tale, name: str) -> World | None:
    """A further attempt at what is open of an event that was accepted: of late, or without an attempt as yet."""
    if tale.held and tale.rng.random() < 0.7:
        touched = [row for row in tale.held if row[1] in tale.touched]
        row = tale.rng.choice(touched or tale.held)
        tale.held.remove(row)
        return {"again": row[0]}
    if not tale.accepted:
        return None
    return {"again": tale.rng.choice(tale.accepted[-6:])}


def install_case(tale: Tale, name: str) -> World | None:
    """An install by someone who is well, of a pack that no step has touched: the text is silent on the others."""
    packs = [pack for pack in tale.names if pack not in tale.touched]
    people = [person for person in tale.people if tale.well(person, person)]
    if not packs or not people:
        return None
    return {"install": {"principal": tale.rng.choice(people), "pack": tale.rng.choice(packs + packs[-1:])}}


MAKERS: dict[str, Any] = {
    "sense": sense_case,
    "again": again_case,
    "install": install_case,
    "step": step_case,
    "exec": exec_case,
    "available": available_case,
}
