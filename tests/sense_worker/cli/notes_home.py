"""The pack `notes` on a home: installed, allowed, and what the audit says of its commands."""

from __future__ import annotations

import json

from tests.notes_pack import SECRET, write_notes

LOGIN = ("--arg", "name=ana", "--arg", f"password={SECRET}")
AXES = ("pack.connect", "verb.exec.read", "verb.exec.write")


def install(cli, tmp_path, *more, **given):
    folder = write_notes(tmp_path / given.get("pack_id", "notes"), **given)
    return cli.json("pack", "install", str(folder), "--allow-bin", f"tool={folder / 'tool'}", *more)


def allow(cli, principal="operator", pack="notes", axes=AXES):
    for capability in axes:
        cli.json("grant", "add", principal, capability, "--pack", pack)


def audited(home, *, since=0):
    """The lines of the audit about commands, without what is of the chain or the moment."""
    lines = [json.loads(line) for line in (home / "audit.jsonl").read_text().splitlines()][since:]
    names = ("action", "ok", "tenant", "principal", "project", "binding", "pack_id", "key", "operation", "reason")
    return [{name: line[name] for name in names} for line in lines if line["action"].startswith("exec")]


def lines_of(home):
    return len((home / "audit.jsonl").read_text().splitlines())
