"""Scenario documents for the clause tests: one small world as `sense-worker check` would read it, and what fails in it.

A test gives cases in YAML, and sections of its own where its world differs; `failing` runs them through the same reader
and the same pipeline as a scenario file.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sense_worker.scenario.read import load
from sense_worker.scenario.run import _Run, run
from sense_worker.scenario.yaml_text import parse_yaml

if TYPE_CHECKING:
    from runtime_core.audit import AuditRecord

HERE = Path(__file__).parent
LANDS = {"new_item": "personal", "shared_item": "brain", "saved_item": "local"}
WORLD = """
scenario: 1
now: "2026-06-01T12:00:00Z"
principals:
  ana: {tenant: acme, projects: [apollo]}
  ben: {tenant: acme, projects: [apollo]}
  cyd: {tenant: acme}
grants:
  - {principal: ana, capability: sense.enable, pack: mail}
  - {principal: ben, capability: sense.enable, pack: mail}
  - {principal: cyd, capability: sense.enable, pack: mail}
activations:
  a1: {principal: ana, pack: mail, project: apollo, workspace: true}
routes:
  to-ana: {principal: ana, pack: mail, ref: new_item, sink: inbox}
"""
"""Ana announces from project apollo; ben is a member of it, cyd is not; everything is granted."""


def surface(**fields: Any) -> dict[str, Any]:
    """Return the manifest of the pack `mail`: one trigger for each land, no commands."""
    triggers = [{"ref": ref, "summary": ref} for ref in LANDS]
    return {"id": "mail", "version": "1.0.0", "adapter": "sense_only", "stimulusTriggers": triggers, **fields}


def entry(land: str = "personal", operation: str = "read", **fields: Any) -> dict[str, Any]:
    """Return a policy entry."""
    return {"operation": operation, "privacy": {"land": land}, **fields}


def policy(**fields: Any) -> dict[str, Any]:
    """Return the policy of the pack `mail`."""
    stimuli = {ref: entry(land) for ref, land in LANDS.items()}
    return {"surface_id": "mail", "version": 1, "verbs": {}, "stimuli": stimuli, **fields}


def pack(surface: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a pack as a scenario lists it, `mail` where nothing else is given."""
    return {"surface": _SURFACE if surface is None else surface, "policy": _POLICY if policy is None else policy}


_SURFACE, _POLICY = surface(), policy()


def document(cases: str | list[Any], **sections: Any) -> dict[str, Any]:
    """Return the whole document: the world, with sections replaced, and its cases."""
    listed = parse_yaml(cases) if isinstance(cases, str) else cases
    return deepcopy({**parse_yaml(WORLD), "packs": [pack()], **sections, "cases": listed})


def failing(cases: str | list[Any], **sections: Any) -> list[tuple[str, Any, Any]]:
    """Return name, expected and got of each case that does not hold; raises where there is no case to hold."""
    written = document(cases, **sections)
    results = run(load(written, "document", HERE), HERE)
    assert results, "a document without cases proves nothing"
    return [(one.name, dict(one.expected), dict(one.got)) for one in results if not one.ok]


def audited(cases: str | list[Any], **sections: Any) -> list[AuditRecord]:
    """Return what the audit holds after the cases ran; each of them held."""
    running = _Run(load(document(cases, **sections), "document", HERE), HERE)
    assert [(one.name, dict(one.got)) for one in running.results() if not one.ok] == []
    return running._world.audit.records
