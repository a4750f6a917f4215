"""The steps of a world: each changes a row that stands and leaves no step without effect."""

from typing import Any

from tests.oracle.pool import BAD, BROKEN, GOOD
from tests.oracle.tale import Tale

World = dict[str, Any]
FAMILIES = {"mail": "o", "cal": "o"}
CLOCKS = {"+401s": 401, "+1807s": 1807, "+3623s": 3623}  # no sum of them meets an expiry to the second


def step_case(tale: Tale, name: str) -> World | None:
    """A step that fits the rows as they are, or None."""
    rng = tale.rng
    words = rng.choices(list(STEPS), [weight for weight, _ in STEPS.values()], k=3)
    if tale.disabled and rng.random() < 0.35:
        words.insert(0, "enable")
    if tale.paused and rng.random() < 0.35:
        words.insert(0, "resume")
    for word in words:
        value = STEPS[word][1](tale)
        if value is not None:
            return {"step": {word: value}}
    return None


def _grant(tale: Tale) -> World | None:
    rng = tale.rng
    if "exec" in tale.kinds and rng.random() < 0.5:
        activation = rng.choice(list(tale.activations.values()))
        row = tale.exec_grant(activation, rng.choice(("verb.exec.read", "verb.exec.write", "pack.connect")))
    else:
        row = tale.sense_grant(rng.choice(list(tale.scenario["routes"].values())))
    return row if tale.distinct([row]) else None


def _revoke(tale: Tale) -> World | None:
    # After the clock has moved an expiry in the row could be read from either clock.
    rows = [row for row in tale.grants if tale.clock == 0 or "expires" not in row]
    if not rows:
        return None
    row = tale.rng.choice(rows)
    tale.grants.remove(row)
    return row


def _join(tale: Tale) -> World | None:
    projects = tale.scenario["projects"]
    free = [
        (project, name)
        for project, tenant in projects.items()
        for name, row in tale.people.items()
        if row["tenant"] == tenant and (project, name) not in tale.members
    ]
    if not free:
        return None
    project, name = tale.rng.choice(free)
    tale.members.add((project, name))
    return {"principal": name, "project": project}


def _leave(tale: Tale) -> World | None:
    if not tale.members:
        return None
    project, name = tale.rng.choice(sorted(tale.members))
    tale.members.discard((project, name))
    return {"principal": name, "project": project}


def _activate(tale: Tale) -> World | None:
    rng = tale.rng
    packs = [pack_id for pack_id, pack in tale.packs.items() if pack is not None]
    people = [name for name in tale.people if tale.well(name, name)]
    if not packs or not people or len(tale.activations) > 8:
        return None
    name, pack_id = rng.choice(people), rng.choice(packs)
    project = rng.choice((None, *tale.people[name]["projects"]))
    for row in tale.activations.values():
        if row["live"] and (row["session"], row["pack"], row["project"]) == (name, pack_id, project):
            return None
    result: World = {"name": f"b{len(tale.activations)}", "session": name, "pack": pack_id}
    if project is not None:
        result["project"] = project
    if pack_id in tale.written or rng.random() < 0.3:
        result["workspace"] = True
    tale.activate(result["name"], result)
    return result


def _deactivate(tale: Tale) -> str | None:
    live = [name for name, row in tale.activations.items() if row["live"]]
    if len(live) < 2:
        return None
    name = tale.rng.choice(live)
    tale.activations[name]["live"] = False
    return name


def _disable(tale: Tale) -> str | None:
    """Not of someone with a row in two tenants: the word could mean either row or both."""
    two = {row["principal"] for row in tale.scenario["sessions"].values()}
    free = [name for name in tale.people if name not in two and name not in tale.disabled]
    if not free:
        return None
    name = tale.rng.choice(free)
    tale.disabled.add(name)
    return str(name)


def _enable(tale: Tale) -> str | None:
    if not tale.disabled:
        return None
    name = tale.rng.choice(sorted(tale.disabled))
    tale.disabled.discard(name)
    return name


def _revoke_session(tale: Tale) -> str | None:
    free = [name for name in (*tale.people, *tale.scenario["sessions"]) if name not in tale.dead]
    if len(free) < 2:
        return None
    name = tale.rng.choice(free)
    tale.dead.add(name)
    return str(name)


def _connect(tale: Tale) -> str | None:
    if "exec" not in tale.kinds:
        return None
    rows = [row for row in tale.activations.values() if row["home"] and tale.packs[row["pack"]] is not None]
    if not rows:
        return None
    row = tale.rng.choice(rows)
    family = FAMILIES.get(row["pack"]) or row["pack"]
    tale.kept[row["owner"], family] = row["pack"]
    return f"{row['owner']}/{row['pack']}"


def _disconnect(tale: Tale) -> str | None:
    """Of a connection that a step made and none has ended."""
    pairs = [(key, pack) for key, pack in tale.kept.items() if tale.packs[pack] is not None]
    if not pairs:
        return None
    (owner, family), pack_id = tale.rng.choice(pairs)
    del tale.kept[owner, family]
    return f"{owner}/{pack_id}"


def _pause(tale: Tale) -> str | None:
    """Of a sink with one word: a project's sink has none."""
    words = {row["sink"] for row in tale.scenario["routes"].values() if isinstance(row["sink"], str)} - tale.paused
    if not words:
        return None
    word = tale.rng.choice(sorted(words))
    tale.paused.add(word)
    return str(word)


def _resume(tale: Tale) -> str | None:
    if not tale.paused:
        return None
    word = tale.rng.choice(sorted(tale.paused))
    tale.paused.discard(word)
    return word


def _remove(tale: Tale) -> str | None:
    """With commands about, not of a family: what becomes of its connection is not said."""
    free = [name for name, pack in tale.packs.items() if pack is not None]
    if "exec" in tale.kinds:
        free = [name for name in free if name not in FAMILIES]
    if not free:
        return None
    name = tale.rng.choice(free)
    tale.packs[name] = None
    tale.touched.add(name)
    return str(name)


def _replace(tale: Tale) -> World | None:
    rng = tale.rng
    name = rng.choice(tale.names)
    if tale.packs[name] is None and "exec" in tale.kinds:
        return None  # a pack that comes back: what becomes of its connections is not said
    tale.touched.add(name)
    if name not in GOOD:
        return _files(rng.choice(BAD["bad"]))
    if name in BROKEN and rng.random() < 0.2:
        return _files(BROKEN[name])
    waiting = [ref for _, pack_id, ref in tale.held if pack_id == name]
    without = [one for one in GOOD[name] if any(ref not in one["policy"]["stimuli"] for ref in waiting)]
    pack = rng.choice(without if without and rng.random() < 0.6 else GOOD[name])
    tale.packs[name] = pack
    return _files(pack)


def _files(pack: World) -> World | None:
    """Only inline files: the step names no other form."""
    return pack if "policy" in pack else None


def _clock(tale: Tale) -> str:
    word = tale.rng.choice(list(CLOCKS))
    tale.clock += CLOCKS[word]
    return word


STEPS: dict[str, tuple[int, Any]] = {
    "grant": (40, _grant),
    "revoke": (40, _revoke),
    "join": (14, _join),
    "leave": (20, _leave),
    "activate": (24, _activate),
    "deactivate": (12, _deactivate),
    "disable": (14, _disable),
    "enable": (10, _enable),
    "revoke_session": (7, _revoke_session),
    "connect": (20, _connect),
    "disconnect": (14, _disconnect),
    "pause": (16, _pause),
    "resume": (10, _resume),
    "remove": (8, _remove),
    "replace": (34, _replace),
    "clock": (14, _clock),
}
