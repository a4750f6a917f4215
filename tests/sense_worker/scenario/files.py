"""Scenarios as a person writes them, run by `sense-worker check` within this process."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from sense_worker.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LANDS = {"new_item": "personal", "shared_item": "brain", "saved_item": "local"}
SURFACE: dict[str, Any] = {
    "id": "mail",
    "adapter": "sense_only",
    "stimulusTriggers": [
        {"ref": ref, "data": {"type": "object", "properties": {"n": {"type": "integer"}}}} for ref in LANDS
    ],
}
POLICY: dict[str, Any] = {
    "surface_id": "mail",
    "version": 1,
    "verbs": {},
    "stimuli": {ref: {"operation": "read", "privacy": {"land": land}} for ref, land in LANDS.items()},
}
WORLD: dict[str, Any] = {
    "scenario": 1,
    "packs": [{"surface": SURFACE, "policy": POLICY}],
    "principals": {
        "ana": {"kind": "human", "tenant": "acme", "projects": ["apollo"]},
        "bob": {"tenant": "acme", "projects": ["apollo"]},
        "eve": {"tenant": "acme"},
    },
    "grants": [{"principal": name, "capability": "sense.enable", "pack": "mail"} for name in ("ana", "bob", "eve")],
    "activations": {"a1": {"session": "ana", "pack": "mail", "project": "apollo", "workspace": True}},
    "routes": {"r1": {"principal": "ana", "pack": "mail", "ref": "new_item", "sink": "inbox"}},
    "cases": [],
}


class Checked(NamedTuple):
    """How a check ended."""

    code: int
    out: str
    err: str

    @property
    def file(self) -> Any:
        """The one file of the JSON report."""
        return json.loads(self.out)["files"][0]

    @property
    def got(self) -> list[Any]:
        """What every case got."""
        return [case["got"] for case in self.file["cases"]]


class Check:
    """Writes one scenario and checks it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = folder / "scenario.yaml"
        self._capsys = capsys

    def __call__(self, *cases: Any, **sections: Any) -> Checked:
        """Check the world with some sections in place of its own (None takes one away), and these cases."""
        document = {**copy.deepcopy(WORLD), "cases": list(cases), **sections}
        return self.text(json.dumps({name: value for name, value in document.items() if value is not None}))

    def text(self, text: str | bytes, name: str = "scenario.yaml") -> Checked:
        """Check a file with this text."""
        self.path = self.path.with_name(name)
        self.path.write_bytes(text.encode() if isinstance(text, str) else text)
        return self.run(str(self.path), "--json")

    def run(self, *arguments: str) -> Checked:
        """Run `sense-worker check`."""
        self._capsys.readouterr()
        code = main.run(["check", *arguments])
        return Checked(code, *self._capsys.readouterr())

    def holds(self, *cases: Any, **sections: Any) -> Checked:
        """Check, and every case must hold."""
        done = self(*cases, **sections)
        assert [case for case in done.file["cases"] if not case["ok"]] == []
        assert (done.code, done.err) == (0, "")
        return done

    def wrong(self, place: str, reason: str, *cases: Any, **sections: Any) -> None:
        """Check, and the file must be refused at a place in one line."""
        self.refused(f"{self.path} {place}", reason, self(*cases, **sections))

    @staticmethod
    def refused(place: str, reason: str, done: Checked) -> None:
        """The check ended with 2 and one line of the report names place and reason."""
        error = done.file["error"]
        assert (done.code, done.file["ok"], error.startswith(f"{place}: "), reason in error, "\n" in error) == (
            *(2, False, True, True, False),
        ), error


def sense(expect: Any, *, name: str | None = None, activation: Any = "a1", **fields: Any) -> dict[str, Any]:
    """Return a case that announces `new_item`, or what `fields` say."""
    announced = {"activation": activation, "ref": "new_item", "data": {}, **fields}
    return {"sense": announced, "expect": expect} | ({} if name is None else {"name": name})


def step(change: str, about: Any) -> dict[str, Any]:
    """Return a step."""
    return {"step": {change: about}}


def again(name: str, expect: Any) -> dict[str, Any]:
    """Return a case that attempts what waits of an earlier one."""
    return {"again": name, "expect": expect}
