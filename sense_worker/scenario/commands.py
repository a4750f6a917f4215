"""The commands of a scenario: the real EXEC_STEPS over adapters and hubs that record (DESIGN §10)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core import errors
from runtime_core.adapters.composite import CompositeAdapter
from runtime_core.availability import availability
from runtime_core.binding import NotConnected
from runtime_core.envelope import parse_envelope
from runtime_core.errors import DoorError
from runtime_core.execution import ExecFacts, execute
from runtime_core.grants import Capability
from runtime_core.runtime import Ran, Runtime
from sense_worker.faces import cli_args

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime_core.binding import Holder
    from runtime_core.execution import Call
    from sense_worker.scenario.model import Asked, Exec
    from sense_worker.scenario.world import World

_ENVELOPE_FIELDS = ("pack_id", "verb_key", "args")
_CANNED_IDENTITY = "recorded@scenario"


_MISSING = {
    errors.MISSING_PACK_CONNECT.template: Capability.PACK_CONNECT,
    errors.MISSING_EXEC_READ.template: Capability.VERB_EXEC_READ,
    errors.MISSING_EXEC_WRITE.template: Capability.VERB_EXEC_WRITE,
}


class Executed(NamedTuple):
    """What a case may compare, and which step decided."""

    got: dict[str, Any]
    step: str
    clause: str | None
    detail: str | None = None


class _RecordingHub:
    """Gives a canned credential to whoever is connected, and counts the mints."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.mints = 0

    def connected(self, holder: Holder) -> bool:
        return holder in self._world.connected

    def mint(self, holder: Holder) -> tuple[str, Mapping[str, str]]:
        if holder not in self._world.connected:
            raise NotConnected
        self.mints += 1
        return _CANNED_IDENTITY, {"secret": "kept"}

    def keep(self, holder: Holder, identity: str, fields: Mapping[str, str]) -> None:
        del identity, fields
        self._world.connected.add(holder)


class _RecordingAdapter:
    """Answers nothing but what a connect command must, and keeps the order of what was entered."""

    def __init__(self) -> None:
        self.entered: list[str] = []

    def run(self, call: Call, runtime: Runtime) -> Ran:
        del runtime
        self.entered.append(call.chosen.key)
        connect = {"identity": _CANNED_IDENTITY, "secret": "kept"}
        return Ran(connect if call.chosen.verb.connect else {})


class Commands:
    """Runs the exec and available cases of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hub = _RecordingHub(world)
        self._leaf = _RecordingAdapter()
        self._runtime = Runtime(
            authority=world.authority,
            audit=world.audit,
            hubs={"keyring": self._hub, "local-credential": self._hub},
            adapters={"wrap": self._leaf, "openapi": self._leaf, "composite": CompositeAdapter()},
            now=lambda: world.now,
        )

    def run(self, asked: Exec, index: int) -> Executed:
        """Run one envelope under the session that the case names."""
        tenant, session_id, project = self._scope(asked)
        mints, entered = self._hub.mints, len(self._leaf.entered)
        try:
            envelope = parse_envelope(_envelope(asked))
        except DoorError as refused:
            got = {"ok": False, "error": f"refused: {refused.word}", "minted": False, "ran": False, "steps": []}
            return Executed(got, "intake", None, str(refused))
        call = execute(self._runtime, ExecFacts(tenant, session_id, project, envelope, f"scenario-{index}"))
        answer = call.envelope()
        steps = self._leaf.entered[entered:]
        got = {"ok": answer.ok, "error": answer.error, "minted": self._hub.mints > mints, "ran": bool(steps)}
        refused_by = call.refused
        decided = ("run_adapter", None) if refused_by is None else (refused_by.step, refused_by.clause)
        step, clause = decided
        return Executed({**got, "steps": steps}, step, clause, self._near(tenant, session_id, call))

    def _near(self, tenant: str, session_id: str, call: Call) -> str | None:
        """Tell which grants the caller has of the capability that was missing."""
        words = {text.partition("{}")[0]: capability for text, capability in _MISSING.items()}
        error = call.envelope().error or ""
        missing = next((capability for word, capability in words.items() if error.startswith(word)), None)
        session = self._world.source.session(tenant, session_id)
        return None if missing is None or session is None else self._world.near_miss(session.principal, missing)

    def available(self, asked: Asked) -> dict[str, Any]:
        """Report on one pack for the session named like the principal."""
        session = self._world.session(asked.principal)
        if session is None or not isinstance(asked.pack, str):
            return {"installed": False, "activated": False, "connected": False, "executable": {}}
        found = availability(self._runtime, session.tenant, session.id, asked.pack)
        executable = {one.verb_key: one.reason is None for one in found.commands}
        return {
            "installed": found.installed,
            "activated": found.activated,
            "connected": found.connected,
            "executable": executable,
        }

    def _scope(self, asked: Exec) -> tuple[str, str, str | None]:
        """Return tenant, session and project: those of the activation, or as named. A stranger's session is none."""
        world = self._world
        name = asked.activation
        row = world.source.activation(world.tenant_of(name), name) if isinstance(name, str) else None
        if row is not None:
            return row.tenant, row.session_id, row.project_id
        session = world.session(asked.session)
        project = asked.project if isinstance(asked.project, str) else None
        tenant = world.tenant_of(None) if session is None else session.tenant
        return tenant, "" if session is None else session.id, project


def _envelope(asked: Exec) -> bytes:
    if asked.raw is not None:
        return asked.raw.encode()
    given = asked.model_fields_set
    members: dict[str, Any] = {"args": {}}
    members.update({name: getattr(asked, name) for name in _ENVELOPE_FIELDS if name in given})
    if asked.face == "cli" and isinstance(members["args"], dict):
        members["args"] = cli_args(members["args"])
    members.update(asked.envelope)
    gone = {name for name, value in asked.envelope.items() if value is None}
    return json.dumps({name: value for name, value in members.items() if name not in gone}, ensure_ascii=False).encode()
