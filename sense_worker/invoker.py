"""Invoker: commands run in this process as one session, through the same EXEC_STEPS as the queue (§1.3, DESIGN §8).

    with Invoker.open(settings) as invoker:
        answer = invoker.exec("git", "git.log", {"limit": 5})

The command line and hosts written in Python use it. A write is recorded by its `begin` and `end` lines; no row is made.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from runtime_core.audit import AuditRecord
from runtime_core.availability import availability
from runtime_core.binding import is_free
from runtime_core.envelope import ResultEnvelope, parse_envelope
from runtime_core.errors import INTERRUPTED, AuditUnavailable, LedgerBusy, NotFound, UsageError
from runtime_core.execution import ExecFacts, execute
from sense_worker.exec.process import build_runtime
from sense_worker.logs import log
from sense_worker.operator.acting import held_session, identify
from sense_worker.operator.desk import UNKNOWN_SESSION
from sense_worker.storage import packs
from sense_worker.storage.anchors import keep_anchor
from sense_worker.storage.migrate import check_schema
from sense_worker.vault import Vault
from sense_worker.wiring import build_ports
from sinks.raised import origin

if TYPE_CHECKING:
    from pathlib import Path

    from runtime_core.pack import Pack
    from runtime_core.runtime import Runtime
    from sense_worker.held_file import HeldFile
    from sense_worker.operator.acting import Acting, SessionFile
    from sense_worker.ports import Ports
    from sense_worker.settings import Settings

INTERNAL = "failed: internal"


@dataclass(frozen=True, slots=True)
class ExecutableView:
    """One command; `reason` is the text that would refuse it."""

    verb_key: str
    executable: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class AvailabilityView:
    """What the acting session may use of a pack now (§1.6.availability); `reason` is the pack's own first "no"."""

    pack_id: str
    installed: bool
    activated: bool
    connected: bool
    reason: str | None
    commands: tuple[ExecutableView, ...]


class Invoker:
    """Acts as the session of a file, in its tenant. Use it as a context manager, or `close` it."""

    def __init__(self, ports: Ports, runtime: Runtime, vault: Vault, session_file: HeldFile[SessionFile]) -> None:
        self._ports = ports
        self._runtime = runtime
        self._vault = vault
        self._session_file = session_file

    @classmethod
    def open(cls, settings: Settings, *, session_file: Path | None = None) -> Self:
        """Act as the session in `session_file`, by default SENSE_SESSION_FILE.

        Raises UsageError for a file that is missing or no session's, SettingsError for keys, for a database address,
        or for a schema this release cannot work with.
        """
        held = held_session(session_file or settings.session_file)
        vault = Vault.load(settings)
        ports = build_ports(settings)
        try:
            check_schema(ports.database)
            return cls(ports, build_runtime(settings, ports, vault), vault, held)
        except BaseException:
            ports.close()
            raise

    def exec(self, pack_id: str, verb_key: str, args: dict[str, Any], *, project: str | None = None) -> ResultEnvelope:
        """Run one command and return its result envelope; a denial is one too (§9.7).

        `project` selects among the session's own activations. Raises DoorError for an envelope that is none, UsageError
        for a session that is unknown here.
        """
        members = {"pack_id": pack_id, "verb_key": verb_key, "args": args}
        # Through the door of every envelope: what the queue refuses is refused here.
        envelope = parse_envelope(json.dumps(members, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        acting = self._acting(pack_id, verb_key)
        facts = ExecFacts(acting.tenant, acting.session_id, project, envelope, uuid.uuid4().hex)
        try:
            return self._executed(facts)
        finally:
            self._anchor()

    def connect(
        self, pack_id: str, args: dict[str, Any], *, verb_key: str | None = None, project: str | None = None
    ) -> ResultEnvelope:
        """Run the pack's connect command (§1.6.connect). Raises NotFound, and like `connect_command` and `exec`."""
        return self.exec(pack_id, connect_command(self.pack(pack_id), verb_key), args, project=project)

    def availability(self, pack_id: str | None = None) -> list[AvailabilityView]:
        """Report on one pack, or on every pack in force in the session's tenant."""
        acting = self._acting(pack_id)
        names = [pack_id]
        if pack_id is None:
            with self._ports.database.read() as connection:
                names = [row.pack_id for row in packs.in_force(connection, acting.tenant)]
        return [self._available(acting, name) for name in names if name is not None]

    def pack(self, pack_id: str) -> Pack:
        """Return the pack in force in the session's tenant. Raises NotFound."""
        revision = self._runtime.authority(self._acting(pack_id).tenant).revision(pack_id)
        if revision is None:
            raise NotFound("pack", f"{pack_id!r} is not installed", "see `sense-worker pack list`")
        return revision.pack

    def close(self) -> None:
        """Close the connections and the audit's files."""
        self._ports.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _acting(self, pack_id: str | None = None, verb_key: str | None = None) -> Acting:
        """Return who acts; whether the session still stands is for EXEC_STEPS to say, and to record.

        Raises UsageError for a session that is unknown here; that is recorded too, without a principal.
        """
        database = self._ports.database
        try:
            with database.read() as connection:
                held = self._session_file.renewed()
                return identify(connection, self._vault, held, database.now(connection)).acting
        except UsageError:
            about = {"pack_id": pack_id, "key": verb_key, "reason": UNKNOWN_SESSION}
            self._ports.audit.append([AuditRecord("exec", ok=False, tenant=None, principal=None, **about)])
            raise

    def _executed(self, facts: ExecFacts) -> ResultEnvelope:
        begun: list[str] = []

        def may_begin(request_id: str) -> bool:
            begun.append(request_id)
            return True

        asked = facts.envelope
        unknown = ResultEnvelope(False, asked.pack_id, asked.verb_key, None, INTERRUPTED.text())
        try:
            return execute(self._runtime._replace(may_begin=may_begin), facts).envelope()
        except AuditUnavailable:
            return unknown
        except Exception as error:  # noqa: BLE001 - its text may hold args
            log().error("command failed unexpectedly", error=type(error).__name__, at=origin(error))
            return unknown if begun else unknown._replace(error=INTERNAL)

    def _anchor(self) -> None:
        """Anchor the audit at once: without a worker no sweep does it, and a cut file would look whole."""
        ports = self._ports
        with contextlib.suppress(LedgerBusy, AuditUnavailable), ports.database.write() as connection:
            now = ports.database.now(connection)
            keep_anchor(ports.ledger.rows(connection), ports.chain, ports.audit.head(), now)
        ports.anchor_rotated()

    def _available(self, acting: Acting, pack_id: str) -> AvailabilityView:
        found = availability(self._runtime, acting.tenant, acting.session_id, pack_id)
        commands = tuple(ExecutableView(one.verb_key, one.reason is None, one.reason) for one in found.commands)
        return AvailabilityView(pack_id, found.installed, found.activated, found.connected, found.reason, commands)


def connect_command(pack: Pack, named: str | None = None) -> str:
    """Return the verb_key of the pack's connect command, or of the one `named` where it declares several.

    Raises NotFound where it declares none, or not that one, and UsageError where one must be named.
    """
    declared = [key for key, verb in pack.manifest.verbs.items() if verb.connect]
    if not declared:
        why = "needs no connection" if is_free(pack) else "declares no connect command"
        raise NotFound("pack", f"{pack.pack_id} {why}", "see `sense-worker availability`")
    listed = ", ".join(declared)
    if named is not None and named not in declared:
        raise NotFound("command", f"{named!r} is no connect command of {pack.pack_id}", f"it has: {listed}")
    if named is None and len(declared) > 1:
        raise UsageError("--verb", f"{pack.pack_id} has several connect commands", f"name one: {listed}")
    return named or declared[0]
