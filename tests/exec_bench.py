"""A bench for Execute: reader, ledger and drain in this process, over real SQL and Redis; the adapter is the test's."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet

from runtime_core.adapters.composite import CompositeAdapter
from runtime_core.runtime import Ran, Runtime
from sense_worker.exec.asking import HeldSession, Request, ask, ask_to_cancel, heard
from sense_worker.exec.drain import ExecDrain
from sense_worker.exec.engine import Engine
from sense_worker.exec.record import ExecRecorder
from sense_worker.exec.run import Cancellations, Runner
from sense_worker.intake.stream import StreamEntry
from sense_worker.settings import Settings
from sense_worker.storage import tables
from sense_worker.storage.engine import Database
from sense_worker.storage.exec_ledger import ClaimedExec, ExecLedger
from sense_worker.storage.migrate import migrate
from sense_worker.storage.rows import Rows as Statements
from sense_worker.vault import Vault
from sense_worker.wiring import build_ports
from tests.provision import POLICY, SURFACE, Rows

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    import redis

    from runtime_core.envelope import ResultEnvelope
    from runtime_core.execution import Call

LANE = "exec.interactive"
KEEP_S = 60.0
VERBS: dict[str, Any] = {
    name: {"cli": [], "args": {"type": "object", "properties": {"text": {"type": "string"}}}}
    for name in ("mail.read", "mail.write", "mail.gated")
} | {"mail.login": {"cli": [], "connect": True}}
ENTRIES = {
    "mail.read": {"operation": "read", "privacy": {"land": "personal"}},
    "mail.write": {"operation": "write", "privacy": {"land": "personal"}},
    "mail.gated": {"operation": "write", "privacy": {"land": "personal"}, "confirm": True},
    "mail.login": {"operation": "write", "privacy": {"land": "personal"}},
}


class Tool:
    """An adapter that notes what ran, and does for each verb_key what the test says."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.does: dict[str, Callable[[Call], Ran]] = {}

    def run(self, call: Call, runtime: Runtime) -> Ran:
        del runtime
        key = call.chosen.key
        self.ran.append(key)
        return self.does.get(key, lambda one: Ran({"text": one.facts.envelope.own_args.get("text")}))(call)


class Bell:
    """A bell that nobody rings: a drain ends as soon as its lane is empty."""

    def __init__(self) -> None:
        self.rung: list[str] = []

    def ring(self, lanes: list[str]) -> None:
        self.rung += lanes

    def start(self, lane: str) -> None: ...

    def at_work(self, lane: str) -> None: ...

    def wait(self, _lane: str, _seconds: float) -> bool:
        time.sleep(0.001)
        return False

    def stop(self, _lane: str) -> bool:
        return False


class ExecBench:
    """Tenant t-red with the pack `mail`, principal ana with every grant, and her activation."""

    def __init__(self, home: Path, database: Database, client: redis.Redis, **env: str) -> None:
        url = database.url.render_as_string(hide_password=False)
        keys = {"SENSE_SECRET_KEYS": Fernet.generate_key().decode()}
        self.settings = Settings.load({"HCP_HOME": str(home), "SENSE_DATABASE_URL": url, **keys, **env})
        migrate(database)
        self.database = database
        self.redis = client
        self.vault = Vault.load(self.settings)
        self.rows = Rows(database, self.vault)
        with self.rows.together():
            self.rows.principal("ana")
            self.rows.pack({**SURFACE, "adapter": "wrap", "verbs": VERBS}, {**POLICY, "verbs": ENTRIES})
            self.rows.activation("a-ana", "ana")
            self.held = self.hold("ses-ana")
            for capability in ("verb.exec.read", "verb.exec.write"):
                self.grant("ana", capability)
        self.ports = build_ports(self.settings)
        self.relaxed = Database(self.settings.requests_url, durable=False)
        self.tool = Tool()
        self.recorder = ExecRecorder(self.ports, self.relaxed, self.vault, client, KEEP_S)

    def hold(self, session_id: str) -> HeldSession:
        """Give a session a secret that the test knows."""
        secret = f"secret of {session_id}"
        self.rows.change(tables.SessionRow, {"id": session_id}, secret=self.vault.seal(secret.encode()))
        return HeldSession("t-red", session_id, secret)

    def grant(self, principal: str, capability: str, keys: list[str] | None = None) -> None:
        """Give a grant for the pack."""
        self.rows.put(
            tables.GrantRow,
            id=f"{principal}-{capability}",
            principal=principal,
            capability=capability,
            pack_id="mail",
            keys=keys,
            created_by="operator",
            created_at=1,
        )

    def ask(self, verb_key: str = "mail.read", args: dict[str, Any] | None = None, **options: Any) -> Request:
        """Return a sealed request of ana's."""
        given: dict[str, Any] = {"project": None, "timeout_s": 30.0, "idempotency_key": None, "lane": "interactive"}
        held = options.pop("held", self.held)
        return ask(held, "mail", verb_key, args, **{**given, **options})

    def cancel(self, request: Request, *, force: bool = False) -> Request:
        """Return the request that cancels another."""
        return ask_to_cancel(request, force=force)

    def entry(self, request: Request, **fields: bytes) -> StreamEntry:
        """Return the entry of a request, as it arrives now."""
        sent = {
            name.encode(): value if isinstance(value, bytes) else value.encode()
            for name, value in request.fields.items()
        }
        sent |= {name.encode(): value for name, value in fields.items()}
        entry_id = f"{int(time.time() * 1000)}-{int(request.message_id[:8], 16)}"
        return StreamEntry("t-red", request.stream, entry_id, sent, 1)

    def record(self, *entries: StreamEntry) -> dict[str, int]:
        """Record entries as one batch; returns how many became what."""
        counts: dict[str, int] = {}
        for part in self.recorder.record(entries, int(time.time() * 1e6)):
            for word, number in part.counts.items():
                counts[word] = counts.get(word, 0) + number
        return {word: number for word, number in counts.items() if number}

    def send(self, *requests: Request) -> None:
        """Record requests."""
        self.record(*(self.entry(one) for one in requests))

    def drain(self, lane: str = LANE, width: int = 4) -> None:
        """Drain a lane until it is empty."""
        self.a_drain(width).run(lane, Bell(), 0.01)  # type: ignore[arg-type]

    def a_drain(self, width: int = 4) -> ExecDrain:
        """Return a drain, as a process of its own would have one."""
        return ExecDrain(self.engine(width))

    def engine(self, width: int = 4, settle_s: float = 0.0) -> Engine:
        """Return an engine, as a process of its own would have one."""
        cancellations = Cancellations()
        self.event_of: Callable[[str], threading.Event | None] = cancellations.of
        runner = self.runner(cancellations)
        limits = {"keep_s": KEEP_S, "settle_s": settle_s}
        return Engine(self.ports, self.relaxed, runner, self.vault, self.redis, width=width, **limits)

    def runner(self, cancellations: Cancellations) -> Runner:
        """Return what runs requests in a process."""
        adapters = {"wrap": self.tool, "composite": CompositeAdapter()}
        runtime = Runtime(self._authority, self.ports.audit, {}, adapters, time.time_ns)
        return Runner(self.ports, runtime, self.vault, cancellations)

    def claim(self) -> ClaimedExec:
        """Claim the one request that is due, as a process does that then dies or stalls."""
        requests = self.ports.requests
        with requests.write() as connection:
            now = requests.now(connection)
            (claimed,) = ExecLedger(requests).claim(connection, LANE, 1, 30_000_000, now)
        return claimed

    def _authority(self, tenant: str) -> Any:
        with self.database.read() as connection:
            return self.ports.authorities.current(connection, [tenant])[tenant]

    def answer(self, request: Request) -> ResultEnvelope | None:
        """Return the first answer to a request, or None."""
        found: Any = self.redis.lrange(request.reply_at, 0, 0)
        return heard(request, found[0]) if found else None

    def rows_of(self, column: str = "state") -> list[Any]:
        """Return a column of the requests, in the order of acceptance."""
        with self.ports.requests.read() as connection:
            query = f"SELECT {column} FROM sense_exec ORDER BY accepted_at, id"
            return [row[0] for row in Statements(connection, self.database.kind).query(query)]

    def lapse(self) -> None:
        """Let every lease run out, as if its process had been killed long ago."""
        with self.ports.requests.write() as connection:
            Statements(connection, self.database.kind).execute(
                "UPDATE sense_exec SET due_at = 0 WHERE state = 'running'"
            )

    def audited(self) -> list[dict[str, Any]]:
        """Return the audit's lines, oldest first."""
        file = self.settings.audit_file
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def close(self) -> None:
        """Close what it opened."""
        self.ports.close()
        self.relaxed.dispose()
