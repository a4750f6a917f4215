"""What a world under way knows of itself: just enough to write cases that are worth a decision and read one way."""

import random
from typing import Any

from tests.oracle.pool import GOOD, SHA, SIZED

World = dict[str, Any]


class Tale:
    """The rows of a scenario as its cases change them."""

    def __init__(self, rng: random.Random, scenario: World, names: list[str], kinds: tuple[str, ...]) -> None:
        self.rng, self.scenario, self.names, self.kinds = rng, scenario, names, kinds
        self.people: World = scenario["principals"]
        self.packs: World = {name: GOOD[name][0] if name in GOOD else None for name in names}  # in force, or None
        self.touched: set[str] = set()  # packs that a step replaced or removed
        self.activations: dict[str, World] = {}
        self.dead: set[str] = set()  # sessions
        self.disabled: set[str] = set()
        self.paused: set[str] = set()
        self.begun = False  # whether the cases have begun
        self.clock = 0  # seconds since the start
        self.members = {(project, name) for name, row in self.people.items() for project in row["projects"]}
        self.grants: list[World] = []
        self.kept: dict[tuple[str, str], str] = {}  # connections: (principal, family): pack
        self.sent: list[World] = []  # sense cases with an id that were accepted
        self.accepted: list[str] = []  # names of cases whose event was accepted
        self.held: list[tuple[str, str, str]] = []  # name, pack, ref: accepted without an attempt as yet
        self.written = {row["pack"] for row in scenario["routes"].values() if row["sink"] == "workspace"}
        for name, row in scenario["activations"].items():
            self.activate(name, row)

    def activate(self, name: str, row: World) -> None:
        session = row.get("session", row.get("principal"))
        home = session in self.people
        owner = session if home else self.scenario["sessions"][session]["principal"]
        self.activations[name] = {
            "session": session,
            "owner": owner,
            "home": home,
            "pack": row["pack"],
            "project": row.get("project"),
            "live": True,
        }

    def expired(self, session: str) -> bool:
        until = self.people.get(session, {}).get("expires")
        return until is not None and self.clock >= int(until[1:-1]) * 3600

    def usable(self, activation: World) -> bool:
        """Whether intake takes an event of this activation now."""
        if not activation["live"] or self.packs[activation["pack"]] is None:
            return False
        return self.well(activation["session"], activation["owner"])

    def well(self, session: str, owner: str) -> bool:
        return session not in self.dead and owner not in self.disabled and not self.expired(session)

    def pick(self) -> str:
        """The name of an activation, mostly one that intake takes."""
        names = list(self.activations)
        name = self.rng.choice(names)
        for _ in range(3):
            if self.usable(self.activations[name]) or self.rng.random() < 0.15:
                return str(name)
            name = self.rng.choice(names)
        return str(name)

    def triggers(self, pack_id: str) -> dict[str, str]:
        """The refs in force and the names of their schemas; of a pack that is not installed a made-up one."""
        pack = self.packs[pack_id]
        if pack is None:
            return {"bell": "any"}
        found = {}
        for trigger in pack["surface"]["stimulusTriggers"]:
            schema = trigger.get("data")
            found[trigger["ref"]] = "sha" if schema is SHA else "sized" if schema is SIZED else "any"
        return found

    def land(self, pack_id: str, ref: str) -> str:
        pack = self.packs[pack_id]
        if pack is None:
            return "personal"
        if ref == "*":
            ref = self.rng.choice(list(pack["policy"]["stimuli"]))
        return (
            str(pack["policy"]["stimuli"][ref]["privacy"]["land"]) if ref in pack["policy"]["stimuli"] else "personal"
        )

    def sense_grant(self, route: World) -> World:
        """A grant that covers the route, in one of its shapes; one in six only seems to."""
        rng = self.rng
        row = {"principal": route["principal"], "capability": "sense.enable"}
        refs = list(self.triggers(route["pack"])) if route["ref"] == "*" else [route["ref"]]
        self._shape(row, route["pack"], refs)
        projects = self.people[route["principal"]]["projects"]
        if projects and self.land(route["pack"], route["ref"]) == "brain" and rng.random() < 0.3:
            row["project"] = rng.choice(projects)
        if rng.random() < 0.15:
            self._spoil(row, route["pack"])
        return row

    def exec_grant(self, activation: World, capability: str) -> World:
        """A grant for the commands of the activation's pack; an elevation always has a pack and an expiry."""
        row = {"principal": activation["owner"], "capability": capability}
        pack = self.packs[activation["pack"]]
        verbs = list(pack["surface"]["verbs"]) if pack is not None else []
        if capability == "mothership.elevate":
            return {**row, "pack": activation["pack"], "expires": self.rng.choice(("+1h", "+2h"))}
        self._shape(row, activation["pack"], verbs)
        if self.rng.random() < 0.1:
            self._spoil(row, activation["pack"])
        return row

    def _shape(self, row: World, pack_id: str, keys: list[str]) -> None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.6:
            row["pack"] = pack_id
        elif chance < 0.85:
            row["pack"] = "*"
        if keys and rng.random() < 0.4:
            row["keys"] = [*rng.sample(keys, rng.randint(1, len(keys))), *rng.choice(((), ("other",)))]
        if self.clock == 0 and rng.random() < 0.2:  # later it could count from either clock
            row["expires"] = rng.choice(("+1h", "+2h"))

    def _spoil(self, row: World, pack_id: str) -> None:
        rng = self.rng
        way = rng.randint(0, 4)
        if way == 0:
            row["keys"] = []
        elif way == 1:
            # A pattern is a row in the section; a step that grants one may be a door that refuses it.
            row["keys"] = ["*"] if not self.begun and rng.random() < 0.5 else ["nothing", "other"]
        elif way == 2 and len(self.names) > 1:
            row["pack"] = rng.choice([name for name in self.names if name != pack_id])
        elif way == 3 and self.scenario["projects"]:
            row["project"] = rng.choice(list(self.scenario["projects"]))
        else:
            row["capability"] = rng.choice(("verb.exec.read", "pack.connect", "pack.install", "verb.exec.write"))

    def distinct(self, rows: list[World]) -> list[World]:
        """Rows without those that stand already, however they are written: a revoke takes one row and no other."""
        added = []
        for row in rows:
            if all(_read(row) != _read(one) for one in self.grants):
                self.grants.append(row)
                added.append(row)
        return added


def _read(row: World) -> World:
    return {"pack": "*", **row, "keys": sorted(row["keys"]) if "keys" in row else None}
