"""A pack `notes` over a stand-in tool: a connect command, reads that tell whether they have a token, a gated write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "canary-secret-7f3a"
TOOL = """#!/bin/sh
case "$1" in
  login) printf '{"identity": "%s@service", "secret": "%s"}' "$2" "$3" ;;
  list) echo "token of ${#NOTES_TOKEN} characters, at most ${2:-all}" ;;
  add) echo "added $2" ;;
  where) pwd ;;
  *) echo "no $1" >&2; exit 3 ;;
esac
"""
TEXT = {"type": "string", "minLength": 1}


def _args(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _entry(operation: str, land: str = "personal", **more: Any) -> dict[str, Any]:
    return {"operation": operation, "privacy": {"land": land}, **more}


def notes_files(pack_id: str = "notes", mode: str = "user", hub: str = "keyring", **fields: Any) -> dict[str, Any]:
    """Return manifest and policy; `fields` go to the top of the manifest."""
    limit = {"type": "integer", "minimum": 1, "description": "How many."}
    verbs: dict[str, dict[str, Any]] = {
        "login": {
            "cli": ["login", "{name}", "{password}"],
            "args": _args("name", "password", name=TEXT, password=TEXT),
        },
        "list": {"cli": ["list", ["{limit}"]], "args": _args(limit=limit), "summary": "List notes."},
        "add": {"cli": ["add", "{text}"], "args": _args("text", text=TEXT)},
        "shared": {"cli": ["list"]},
        "where": {"cli": ["where"]},
        "break": {"cli": ["break"]},
    }
    policy = {
        "login": _entry("write"),
        "list": _entry("read"),
        "add": _entry("write", confirm=True),
        "shared": _entry("read", "brain"),
        "where": _entry("read", "local"),
        "break": _entry("read"),
    }
    if mode in {"public", "mock"}:
        del verbs["login"], policy["login"]
    else:
        verbs["login"]["connect"] = True
    surface = {
        "id": pack_id,
        "version": "1.0.0",
        "adapter": {"kind": "wrap", "bin": "tool"},
        "binding": {
            "mode": mode,
            "hub": hub,
            **({} if mode in {"public", "mock"} else {"env": {"NOTES_TOKEN": "secret"}}),
        },
        "sandbox": {"bins": ["tool"]},
        "verbs": {f"{pack_id}.{name}": verb for name, verb in verbs.items()},
        **fields,
    }
    rules = {f"{pack_id}.{name}": one for name, one in policy.items()}
    return {"surface": surface, "policy": {"surface_id": pack_id, "version": 1, "verbs": rules, "stimuli": {}}}


def write_notes(folder: Path, **given: Any) -> Path:
    """Write the folder of such a pack and return it; its tool is `tool` beside its files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in notes_files(**given).items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    (folder / "HARNESS.md").write_text("# Notes\n")
    (folder / "tool").write_text(TOOL)
    (folder / "tool").chmod(0o755)
    return folder
