"""Every Invoker over one world, and for each refusal a command that meets it; one log tells what was entered, in order.

The world is rows in a real database. Queue, Python API, command line and composite step get the same recording adapters
and hubs; the rest of each way is the product's.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core import errors
from runtime_core.adapters.composite import CompositeAdapter
from runtime_core.binding import HubUnavailable, NotConnected
from runtime_core.runtime import Ran, Runtime
from sense_worker.cli import main
from sense_worker.exec.asking import ask
from sense_worker.exec.process import build_runtime
from sense_worker.exec.run import Runner
from sense_worker.invoker import Invoker
from sense_worker.session_file import SessionFile
from sense_worker.storage import tables
from tests.exec_bench import ExecBench
from tests.provision import POLICY, SURFACE
from tests.spec.documents import entry
from tests.spec.exec_worlds import AwayAudit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pytest

    from runtime_core.binding import Holder
    from runtime_core.errors import Refusal
    from runtime_core.execution import Call
    from sense_worker.exec.run import Cancellations

INVOKERS = ("queue", "python", "command line", "composite step")
PEOPLE = ("ana", "left", "late", "off", "bare", "poor")
"""Ana may do all; left's session is revoked, late's over, off is disabled, bare has no grant, poor is not connected."""
TEXT = {"args": {"type": "object", "properties": {"text": {"type": "string"}}}}
FREE = {"mode": "public", "hub": "none"}


class Fault(NamedTuple):
    """A command that one refusal meets."""

    refusal: Refusal
    name: str
    """What the refusal's text names."""
    who: str
    pack_id: str
    verb_key: str
    args: dict[str, Any] = {}  # noqa: RUF012 - read only
    project: str | None = None
    entered: tuple[str, ...] = ()
    """What it reaches: the hub that refuses."""
    at_its_turn: bool = False
    """A composite meets it when the step's turn comes, not before the first step."""

    @property
    def text(self) -> str:
        """The exact refusal."""
        return self.refusal.text(self.name)


FAULTS = [
    Fault(errors.PACK_NOT_INSTALLED, "gone", "ana", "gone", "gone.read"),
    Fault(errors.PACK_NOT_ACTIVATED, "idle", "ana", "idle", "idle.read"),
    Fault(errors.UNKNOWN_COMMAND, "mail.none", "ana", "mail", "mail.none"),
    Fault(errors.SESSION_REVOKED, "", "left", "mail", "mail.write"),
    Fault(errors.SESSION_EXPIRED, "", "late", "mail", "mail.write"),
    Fault(errors.PRINCIPAL_DISABLED, "", "off", "mail", "mail.write"),
    Fault(errors.BRAIN_REQUIRES_PROJECT, "", "ana", "mail", "mail.shared"),
    Fault(errors.NOT_A_MEMBER, "", "ana", "mail", "mail.shared", {}, "zeus"),
    Fault(errors.CONTROL_PLANE, "", "ana", "desk", "desk.read"),
    Fault(errors.LOCAL_REQUIRES_WORKSPACE, "", "ana", "mail", "mail.where"),
    Fault(errors.MISSING_PACK_CONNECT, "", "bare", "mail", "mail.login"),
    Fault(errors.MISSING_EXEC_READ, "mail.read", "bare", "mail", "mail.read"),
    Fault(errors.MISSING_EXEC_WRITE, "mail.write", "bare", "mail", "mail.write"),
    Fault(errors.MOTHERSHIP, "", "ana", "ship", "ship.read"),
    Fault(errors.CONFIRM_REQUIRED, "", "ana", "mail", "mail.gated", {"text": "x"}),
    Fault(errors.INVALID_ARGS, "/text", "ana", "mail", "mail.write", {"text": 5}, at_its_turn=True),
    Fault(errors.COMPOSITE_LIMITS, "wider.many", "ana", "wider", "wider.many"),
    Fault(errors.AUDIT_UNAVAILABLE, "", "ana", "mail", "mail.write"),
    Fault(errors.NOT_CONNECTED, "mail", "poor", "mail", "mail.write", {}, None, ("keyring",), at_its_turn=True),
    Fault(
        *(errors.BINDING_UNAVAILABLE, "local-credential", "ana", "box", "box.write", {}, None, ("local-credential",)),
        at_its_turn=True,
    ),
    Fault(errors.INTERRUPTED, "", "ana", "mail", "mail.write", {}, None, ("keyring",)),
]
"""One for each refusal of the table, in its order."""


def _packs() -> dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Return by pack id: fields of the manifest, its commands and their entries."""
    user, write = {"mode": "user", "hub": "keyring"}, entry(operation="write")
    mail = {
        "mail.read": entry(),
        "mail.write": write,
        "mail.gated": entry(operation="write", confirm=True),
        "mail.shared": entry("brain"),
        "mail.where": entry("local"),
        "mail.login": write,
    }
    verbs: dict[str, Any] = {key: {**TEXT, "cli": []} for key in mail}
    verbs["mail.login"]["connect"] = True
    free = {"pack_id": "free", "verb_key": "free.read"}
    half = {"pack_id": "wide", "verb_key": "wide.half"}
    flow = {
        f"flow.{index}": {
            "steps": [free, {"pack_id": one.pack_id, "verb_key": one.verb_key, "args": one.args}],
        }
        for index, one in enumerate(FAULTS)
    }
    return {
        "mail": ({"binding": user}, verbs, mail),
        "free": ({}, {"free.read": {}}, {"free.read": entry()}),
        "idle": ({}, {"idle.read": {}}, {"idle.read": entry()}),
        "desk": ({"plane": "control"}, {"desk.read": {}}, {"desk.read": entry()}),
        "ship": ({"binding": {"mode": "mothership", "hub": "keyring"}}, {"ship.read": {}}, {"ship.read": entry()}),
        "box": ({"binding": {"mode": "user", "hub": "local-credential"}}, {"box.write": {}}, {"box.write": write}),
        "wide": ({"adapter": "composite"}, {"wide.half": {"steps": [free] * 20}}, {"wide.half": entry()}),
        "wider": ({"adapter": "composite"}, {"wider.many": {"steps": [half, half]}}, {"wider.many": entry()}),
        "flow": ({"adapter": "composite"}, flow, dict.fromkeys(flow, write)),
    }


class _Hub:
    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log
        self.on_mint: Callable[[], object] = lambda: None

    def connected(self, holder: Holder) -> bool:
        return holder.principal != "poor"

    def mint(self, holder: Holder) -> tuple[str, Mapping[str, str]]:
        self._log.append(self._name)
        if self._name == "local-credential":
            raise HubUnavailable
        if holder.principal == "poor":
            raise NotConnected
        self.on_mint()
        return f"{holder.principal}@service", {"secret": "kept"}

    def keep(self, *_: object) -> None:
        self._log.append(f"{self._name} keeps")


class _Leaf:
    def __init__(self, log: list[str]) -> None:
        self._log = log

    def run(self, call: Call, runtime: Runtime) -> Ran:
        del runtime
        self._log.append(call.chosen.key)
        return Ran({})


class Stage(ExecBench):
    """The rows of the world and the four Invokers over it."""

    def __init__(self, *given: Any) -> None:
        self.log: list[str] = []
        self.away = False
        """Whether the audit cannot be written."""
        self.keyring = _Hub("keyring", self.log)
        self._ports = {
            "hubs": {"keyring": self.keyring, "local-credential": _Hub("local-credential", self.log)},
            "adapters": {"wrap": _Leaf(self.log), "composite": CompositeAdapter()},
        }
        super().__init__(*given)
        self.put_packs()
        for who in PEOPLE:
            self.put_person(who)
        self.rows.change(tables.SessionRow, {"id": "ses-left"}, revoked_at=5)
        self.rows.change(tables.SessionRow, {"id": "ses-late"}, expires_at=5)
        self.rows.change(tables.PrincipalRow, {"id": "off"}, disabled_at=5)

    @property
    def environment(self) -> dict[str, str]:
        """What a terminal has in its environment to work on this home."""
        url = self.database.url.render_as_string(hide_password=False)
        keys = self.settings.secret_keys.get_secret_value() if self.settings.secret_keys else ""
        return {"HCP_HOME": str(self.settings.home), "SENSE_DATABASE_URL": url, "SENSE_SECRET_KEYS": keys}

    def put_packs(self) -> None:
        """Install every pack but `gone`."""
        for pack_id, (fields, verbs, entries) in _packs().items():
            manifest = {**SURFACE, "id": pack_id, "adapter": "wrap", "stimulusTriggers": [], "binding": FREE, **fields}
            policy = {**POLICY, "surface_id": pack_id, "stimuli": {}, "verbs": entries}
            self.rows.pack({**manifest, "verbs": verbs}, policy)

    def put_person(self, who: str) -> None:
        """Add a principal with its session, activations and grants; bare's grants are for composites alone."""
        if who != "ana":
            self.rows.principal(who)
        self.held_by = {**getattr(self, "held_by", {}), who: self.hold(f"ses-{who}")}
        for pack_id in _packs():
            if pack_id != "idle":
                for project in (None, "zeus"):
                    self._activate(who, pack_id, project)
            if who != "bare" or pack_id in ("flow", "free"):
                for capability in ("pack.connect", "verb.exec.read", "verb.exec.write"):
                    self._allow(who, pack_id, capability)

    def _activate(self, who: str, pack_id: str, project: str | None) -> None:
        if (who, pack_id, project) == ("ana", "mail", None):
            return  # the bench's own
        where = {"id": f"a-{who}-{pack_id}-{project}", "session_id": f"ses-{who}", "pack_id": pack_id}
        secret = self.vault.seal(b"secret")
        row = {"project_id": project, "secret": secret, "previous_until": 0, "created_at": 1}
        self.rows.put(tables.ActivationRow, **where, **row)

    def _allow(self, who: str, pack_id: str, capability: str) -> None:
        what = {"principal": who, "capability": capability, "pack_id": pack_id, "created_by": "test", "created_at": 1}
        self.rows.put(tables.GrantRow, id=f"g-{who}-{pack_id}-{capability}", **what)

    def recording(self, runtime: Runtime) -> Runtime:
        """Return the runtime with the recording ports, and an audit that may be away."""
        away = {"audit": AwayAudit()} if self.away else {}
        return runtime._replace(**self._ports, **away)

    def runner(self, cancellations: Cancellations) -> Runner:
        """Return what the queue runs requests with."""
        runtime = Runtime(self._authority, self.ports.audit, {}, {}, time.time_ns)
        return Runner(self.ports, self.recording(runtime), self.vault, cancellations)

    def invoke(self, invoker: str, one: Fault, capsys: pytest.CaptureFixture[str]) -> str | None:
        """Ask for a fault's command in one way; return the error it was answered with."""
        self.log.clear()
        asked = (one.who, one.pack_id, one.verb_key, one.args, one.project)
        if invoker == "queue":
            return self.queue(*asked)
        if invoker == "python":
            return self.python(*asked)
        if invoker == "command line":
            return self.command_line(capsys, *asked)
        return self.python(one.who, "flow", f"flow.{FAULTS.index(one)}", {}, one.project)

    def queue(self, who: str, pack_id: str, verb_key: str, args: dict[str, Any], project: str | None) -> str | None:
        """Send a sealed request, drain its lane, open the reply."""
        options: Any = {"timeout_s": 30.0, "idempotency_key": None, "lane": "interactive"}
        request = ask(self.held_by[who], pack_id, verb_key, args, project=project, **options)
        self.send(request)
        self.drain()
        answer = self.answer(request)
        return "no answer" if answer is None else answer.error

    def python(self, who: str, pack_id: str, verb_key: str, args: dict[str, Any], project: str | None) -> str | None:
        """Run it in this process."""
        with Invoker.open(self.settings, session_file=self.session_file(who)) as invoker:
            return invoker.exec(pack_id, verb_key, args, project=project).error

    def command_line(self, capsys: pytest.CaptureFixture[str], who: str, *asked: Any) -> str | None:
        """Type it; the home and the keys are the environment's."""
        pack_id, verb_key, args, project = asked
        capsys.readouterr()
        self.session_file(who, self.settings.session_file)
        scope = [] if project is None else ["--project", project]
        code = main.run(["exec", pack_id, verb_key, "--args-json", json.dumps(args), *scope, "--json"])
        answer = json.loads(capsys.readouterr().out)
        assert (code, answer["ok"]) in ((0, True), (1, False))
        error: str | None = answer.get("error")
        return error

    def session_file(self, who: str, path: Path | None = None) -> Path:
        """Write the file of a principal's session."""
        held = self.held_by[who]
        path = path or self.settings.home / f"{who}.session"
        SessionFile(held.tenant, who, held.session_id, held.secret).write(path)
        return path


def patched(stage: Stage) -> Callable[..., Runtime]:
    """Return `build_runtime` with the stage's recording ports."""
    return lambda settings, ports, vault: stage.recording(build_runtime(settings, ports, vault))
