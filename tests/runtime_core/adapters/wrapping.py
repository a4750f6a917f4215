"""A world with one wrap pack whose commands run stand-in tools through the whole pipeline."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_core.adapters import walls
from runtime_core.adapters.composite import CompositeAdapter
from runtime_core.adapters.wrap import WrapAdapter
from runtime_core.envelope import Envelope
from runtime_core.execution import ExecFacts, execute
from runtime_core.grants import Grant
from runtime_core.identity import Activation, Credential, Principal, Session
from runtime_core.memory import MemoryAudit, MemoryAuthority
from runtime_core.pack import PackRevision, read_pack
from runtime_core.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Mapping
    from threading import Event

    from runtime_core.adapters.sandbox import Ceilings
    from runtime_core.envelope import ResultEnvelope

CASES = Path(__file__).parents[2] / "cases"
NOW = 1_780_000_000_000_000
SECOND = 1_000_000
ANY = {"type": "object"}
RUNGS = ("limits", "bubblewrap")
"""Without bubblewrap, and within it where it works."""


class Hub:
    """Gives everybody the same material."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = fields
        self.kept: list[tuple[str, dict[str, str]]] = []

    def connected(self, holder: object) -> bool:
        return True

    def mint(self, holder: object) -> tuple[str, Mapping[str, str]]:
        return "ana@service", self.fields

    def keep(self, holder: object, identity: str, fields: Mapping[str, str]) -> None:
        self.kept.append((identity, dict(fields)))


class Wrapped:
    """Ana may do all; `tool` is the operator's allowed binary, the script of `program` unless given."""

    def __init__(self, folder: Path, program: str = "", *, tool: str = "", **adapter: Any) -> None:
        self.folder = folder
        self.jails = folder / "jails"
        self.tool = tool or script(folder / "bin" / "tool", program)
        self.ceilings: Ceilings | None = adapter.get("ceilings")
        self.cancelled: Event | None = None
        self.hub = Hub({})
        self.audit = MemoryAudit()
        self.rows = MemoryAuthority()
        self.now = NOW
        self.adapter = WrapAdapter(self.jails, lambda _: self.cancelled, **adapter)

    def run(
        self,
        cli: list[Any],
        args: dict[str, Any] | None = None,
        *,
        schema: dict[str, Any] | None = None,
        workspace: Path | None = None,
        timeout_s: float = 30.0,
        output_limit: int = 1024 * 1024,
        deadline: int | None = None,
        binding: dict[str, Any] | None = None,
        verb: dict[str, Any] | None = None,
        **sandbox: Any,
    ) -> ResultEnvelope:
        """Run one command of a pack with that cli; with a workspace its land is local."""
        surface = {
            "id": "tools",
            "adapter": {"kind": "wrap", "bin": "tool"},
            "binding": binding or {"mode": "public", "hub": "none"},
            "sandbox": {"bins": ["tool"], "timeout_s": timeout_s, "output_limit": output_limit, **sandbox},
            "verbs": {"tools.run": {"cli": cli, "args": schema or ANY, **(verb or {})}},
        }
        entry = {"operation": "write", "privacy": {"land": "local" if workspace else "personal"}}
        policy = {"surface_id": "tools", "version": 1, "verbs": {"tools.run": entry}, "stimuli": {}}
        pack = read_pack(json.dumps(surface).encode(), json.dumps(policy).encode(), b"# Tools\n")
        return self.executed(PackRevision("acme", 1, pack, {"tool": self.tool}), args, workspace, deadline)

    def executed(
        self,
        revision: PackRevision,
        args: dict[str, Any] | None = None,
        workspace: Path | None = None,
        deadline: int | None = None,
        *,
        pack_id: str = "tools",
        verb_key: str = "tools.run",
    ) -> ResultEnvelope:
        """Run a command of a revision through every step; packs that ran before stay installed."""
        adapters = {"wrap": self.adapter, "composite": CompositeAdapter()}
        self.allow(revision, workspace)
        runtime = Runtime(self.rows.snapshot, self.audit, {"keyring": self.hub}, adapters, lambda: self.now)
        asked = Envelope(pack_id, verb_key, args or {})
        return execute(runtime, ExecFacts("acme", "s1", None, asked, "request-1", deadline)).envelope()

    def allow(self, revision: PackRevision, workspace: Path | None) -> None:
        """Put the rows under which ana may run every command of the pack."""
        rows, pack_id = self.rows, revision.pack.pack_id
        rows.put_principal(Principal("acme", "ana", "human", operator=False, disabled=False))
        rows.put_session(Session("s1", "acme", "ana", NOW * 2, revoked=False))
        place = None if workspace is None else str(workspace)
        rows.put_activation(Activation(pack_id, "acme", "s1", pack_id, None, place, False, Credential(b"x")))
        for capability in ("verb.exec.write", "pack.connect"):
            rows.put_grant(Grant(f"{pack_id} {capability}", "acme", "ana", capability, pack_id, None, None, None))
        rows.put_revision(revision)


def script(place: Path, text: str) -> str:
    """Write an executable script; a file of the cases is copied and gets its interpreter."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if text.endswith((".py", ".sh")):
        text = (CASES / text).read_text()
    place.write_text(text if text.startswith("#!") else f"#!/usr/bin/env python3\n{text}")
    place.chmod(0o755)
    return str(place)


def stdout(answer: ResultEnvelope) -> str:
    """Return what the tool printed; the command went well."""
    assert (answer.ok, answer.error) == (True, None), answer
    return answer.result["stdout"]


def off() -> walls.Probe:
    """Stand for a host without bubblewrap."""
    return walls.Probe(None, "off for this test")


def living(mark: str) -> list[int]:
    """Return the processes whose argv or environment holds a mark, zombies and all."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            seen = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in seen:
            found.append(int(place.name))
    return found


def zombies() -> list[int]:
    """Return the children of this process that ended and were not reaped."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = place.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(parent) == os.getpid():
            found.append(int(place.parent.name))
    return found


def until(held: Any, seconds: float = 20.0) -> bool:
    """Wait for something outside this process to hold; return whether it did in time."""
    ends = time.monotonic() + seconds
    while not held():
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return True
