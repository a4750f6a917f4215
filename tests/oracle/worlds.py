"""Seeded random scenarios: `world(seed)` is the same for the same seed and kinds, whatever ran before.

Where the text can be read in two ways a world keeps away (the places say so), so that a difference between the oracle
and a product is a difference about the text.
"""

import random
from typing import Any

from tests.oracle.pool import BAD, GOOD
from tests.oracle.tale import Tale
from tests.oracle.world_cases import cases

World = dict[str, Any]
START = "2026-06-01T12:00:00Z"
PEOPLE = ("ana", "bob", "cyd", "dan", "eve")
KINDS = ("human", "service", "agent", "mothership")
SENSE_HALF = ("sense", "install", "step")
BOTH_HALVES = (*SENSE_HALF, "exec", "available")
SENSE_PACKS = ("git", "mail", "notes", "files", "ops", "mother", "vault", "feed", "feed", "notes")
EXEC_PACKS = ("git", "git", "mail", "mail", "notes", "files", "ops", "cal", "mother", "vault", "relay", "chain")


def world(seed: int, kinds: tuple[str, ...] = SENSE_HALF) -> World:
    """One small scenario: 1 to 3 packs, 2 to 5 principals over 2 tenants, 25 to 50 cases of the kinds asked for."""
    rng = random.Random(seed)
    with_exec = "exec" in kinds
    packs = _packs(rng, EXEC_PACKS if with_exec else SENSE_PACKS)
    scenario: World = {"scenario": 1, "now": START, "packs": [GOOD[pack_id][0] for pack_id in packs]}
    _people(rng, scenario)
    names = list(packs)
    if rng.random() < 0.2:
        scenario["packs"].append(rng.choice(BAD["bad"]))
        names.append("bad")
    _activations(rng, scenario, names)
    _routes(rng, scenario, names)
    _workspaces(rng, scenario)
    tale = Tale(rng, scenario, names, kinds)
    scenario["grants"] = _grants(rng, tale, with_exec)
    if with_exec:
        pairs = [f"{row['owner']}/{row['pack']}" for row in tale.activations.values() if row["home"]]
        scenario["connected"] = sorted({pair for pair in pairs if rng.random() < 0.6 and not pair.endswith("/bad")})
    scenario["cases"] = cases(tale, rng.randint(32, 50))
    return scenario


def _packs(rng: random.Random, names: tuple[str, ...]) -> list[str]:
    """1 to 3 pack ids; a composite comes after what it runs."""
    first = rng.choice(names)
    if first == "relay":
        return ["git", "relay"]
    if first == "chain":
        return ["git", "relay", "chain"]
    chosen = [first]
    for _ in range(rng.randint(0, 2)):
        other = rng.choice(names)
        if other not in chosen and other not in ("relay", "chain"):
            chosen.append(other)
    return chosen


def _people(rng: random.Random, scenario: World) -> None:
    projects = {
        name: "acme" if name == "apollo" else rng.choice(("acme", "bolt", "bolt"))
        for name in ("apollo", "zeus", "hera")[: rng.choice((0, 1, 1, 2, 2, 2, 2, 3, 3, 3))]
    }
    people: World = {}
    for name in PEOPLE[: rng.randint(2, 5)]:
        row: World = {"kind": rng.choice(KINDS), "tenant": "acme" if name == "ana" or rng.random() < 0.75 else "bolt"}
        row["projects"] = [project for project, tenant in projects.items() if tenant == row["tenant"]]
        row["projects"] = [project for project in row["projects"] if rng.random() < 0.85]
        row["operator"] = rng.random() < 0.3
        if rng.random() < 0.25:
            row["expires"] = rng.choice(("+1h", "+1h", "+2h"))
        people[name] = row
    scenario["projects"] = projects
    scenario["principals"] = people
    scenario["sessions"] = {}
    for name, row in people.items():
        # In another tenant the row's operator flag could be read either way: only who is none gets such a session.
        if not row["operator"] and rng.random() < 0.12:
            tenant = "bolt" if row["tenant"] == "acme" else "acme"
            scenario["sessions"]["far"] = {"principal": name, "tenant": tenant}
            row["projects"] += [one for one, owner in projects.items() if owner == tenant and rng.random() < 0.5]
            return


def _activations(rng: random.Random, scenario: World, names: list[str]) -> None:
    people = scenario["principals"]
    sessions = [*people, *scenario["sessions"], *scenario["sessions"], *[rng.choice(list(people))] * 4]
    scenario["activations"] = {}
    taken = set()
    for number in range(rng.randint(2, 4)):
        session, pack_id = rng.choice(sessions), rng.choice(names)
        row: World = {"session": session, "pack": pack_id}
        if session in people and rng.random() < 0.5:
            row = {"principal": session, "pack": pack_id}
        project = _project(rng, scenario, session)
        if (session, pack_id, project) in taken:
            continue
        taken.add((session, pack_id, project))
        if project is not None:
            row["project"] = project
        scenario["activations"][f"a{number}"] = row
    # A composite runs where what it runs is activated too.
    for name, row in list(scenario["activations"].items()):
        if row["pack"] in ("relay", "chain") and rng.random() < 0.85:
            session = row.get("session", row.get("principal"))
            for needed in ("git", "relay"):
                if (session, needed, row.get("project")) not in taken:
                    taken.add((session, needed, row.get("project")))
                    scenario["activations"][f"{name}{needed}"] = {**row, "pack": needed}


def _project(rng: random.Random, scenario: World, session: str) -> str | None:
    """Mostly one of the principal's own; now and then another's, none, or one that exists nowhere."""
    if session in scenario["principals"]:
        own = scenario["principals"][session]["projects"]
    else:
        own = [
            name for name, tenant in scenario["projects"].items() if tenant == scenario["sessions"][session]["tenant"]
        ]
    chance = rng.random()
    if chance < 0.8 and own:
        return str(rng.choice(own))
    if 0.8 < chance < 0.86 and scenario["projects"]:
        return str(rng.choice(list(scenario["projects"])))
    return "ghost" if 0.86 < chance < 0.9 else None


def _routes(rng: random.Random, scenario: World, names: list[str]) -> None:
    people = scenario["principals"]
    activations = list(scenario["activations"].values())
    scenario["routes"] = {}
    for number in range(rng.choice((2, 4, 5, 6, 6, 6))):
        activation = rng.choice(activations)
        publisher = activation.get("session", activation.get("principal"))
        pack_id = activation["pack"]
        if rng.random() < 0.05:
            pack_id = rng.choice(names)
        ref, land = "*", "personal"
        if pack_id in GOOD:
            stimuli = GOOD[pack_id][0]["policy"]["stimuli"]
            ref = rng.choice(list(stimuli))
            land = stimuli[ref]["privacy"]["land"]
        owner = publisher
        if publisher not in people or rng.random() < (0.4 if land == "brain" else 0.13):
            within = [name for name, row in people.items() if activation.get("project") in row["projects"]]
            owner = rng.choice(within if within and rng.random() < 0.7 else list(people))
        sink = _sink(rng, scenario, people[owner]["tenant"], land, activation.get("project"))
        if rng.random() < 0.55:
            ref = "*"
        scenario["routes"][f"r{number}"] = {"principal": owner, "pack": pack_id, "ref": ref, "sink": sink}


def _sink(rng: random.Random, scenario: World, tenant: str, land: str, project: str | None) -> Any:
    """A word that fits the land mostly. A project sink names a project of the tenant: another's may be no sink."""
    chance = rng.random()
    own = [name for name, owner in scenario["projects"].items() if owner == tenant]
    if land == "local" and chance < 0.6:
        return "workspace"
    if land == "brain" and chance < 0.35 and project in own:
        return {"project": project}
    if chance > 0.92 and own:
        return {"project": rng.choice(own)}
    return rng.choice(("inbox", "inbox", "inbox", "own", "own", "workspace", "tenant"))


def _workspaces(rng: random.Random, scenario: World) -> None:
    """A workspace sink for an activation without a workspace could be held or denied: no world has that."""
    written = {row["pack"] for row in scenario["routes"].values() if row["sink"] == "workspace"}
    for row in scenario["activations"].values():
        if row["pack"] in written or rng.random() < 0.3:
            row["workspace"] = True


def _grants(rng: random.Random, tale: Tale, with_exec: bool) -> list[World]:
    rows: list[World] = []
    for route in tale.scenario["routes"].values():
        rows += [tale.sense_grant(route) for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 1, 2)))]
    if with_exec:
        capabilities = ("verb.exec.read", "verb.exec.write", "pack.connect", "mothership.elevate")
        for activation in tale.activations.values():
            rows += [tale.exec_grant(activation, capability) for capability in capabilities if rng.random() < 0.75]
    for name in tale.scenario["principals"]:
        if rng.random() < 0.45:
            rows.append({"principal": name, "capability": "pack.install", "pack": rng.choice(("*", *tale.names))})
            if rng.random() < 0.15:
                rows[-1]["keys"] = []
    return tale.distinct(rows)
