"""A recorder on a real database without a stream: entries are made by hand, acknowledged by nobody."""

from __future__ import annotations

import json
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet

from sense_worker.intake.record import Recorder
from sense_worker.intake.stream import StreamEntry
from sense_worker.settings import Settings
from sense_worker.storage.migrate import migrate
from sense_worker.storage.rows import Rows as Statements
from sense_worker.vault import Vault
from sense_worker.wire import build_entry, stream_of
from sense_worker.wiring import build_ports
from tests.provision import Rows

if TYPE_CHECKING:
    from pathlib import Path

    from sense_worker.intake.record import Recorded
    from sense_worker.storage.engine import Database
    from sinks.registry import Registry


class IntakeBench:
    """Tenant t-red with the pack `mail`, principal ana, her activation `a-ana`, and a recorder."""

    def __init__(self, home: Path, database: Database, registry: Registry | None = None, **env: str) -> None:
        keys = {"SENSE_SECRET_KEYS": Fernet.generate_key().decode()}
        url = database.url.render_as_string(hide_password=False)
        self.settings = Settings.load({"HCP_HOME": str(home), "SENSE_DATABASE_URL": url, **keys, **env})
        migrate(database)
        self.database = database
        self.vault = Vault.load(self.settings)
        self.rows = Rows(database, self.vault)
        with self.rows.together():
            self.rows.principal("ana")
            self.rows.pack()
            self.secrets = {"a-ana": self.rows.activation("a-ana", "ana")}
        self.ports = build_ports(self.settings, registry)
        self.recorder = Recorder(self.ports)
        self._numbers = count(1)

    def activate(self, name: str, principal: str, rows: Rows | None = None, **values: Any) -> None:
        """Add an activation and keep its secret for `entry`."""
        self.secrets[name] = (rows or self.rows).activation(name, principal, **values)

    def granted(self, ref: str = "new_item", sink: str = "inbox") -> str:
        """Give ana the grant and a route; returns the route's id."""
        with self.rows.together():
            self.rows.grant("ana", ref)
            return self.rows.route("ana", ref, sink)

    def entry(
        self,
        ref: str = "new_item",
        data: Any = None,
        activation: str = "a-ana",
        message_id: str | None = None,
        tenant: str = "t-red",
        *,
        body: bytes | None = None,
        signed_at: str | None = None,
        deliveries: int = 1,
        fields: dict[bytes, bytes] | None = None,
        **more: Any,
    ) -> StreamEntry:
        """Return a signed entry that arrives now; `fields` are put over what was signed."""
        number = next(self._numbers)
        raw = body
        if raw is None:
            raw = json.dumps(
                {"ref": ref, "data": {} if data is None else data, "occurred_at": "2026-06-01T12:00:00Z", **more}
            ).encode()
        moment = f"{time.time():.3f}" if signed_at is None else signed_at
        secret = self.secrets.get(activation, b"unknown")
        built = build_entry(secret, activation, message_id or f"m-{number}", moment, raw)
        sent = {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in built.items()}
        entry_id = f"{int(time.time() * 1000)}-{number}"
        return StreamEntry(tenant, stream_of(tenant), entry_id, {**sent, **(fields or {})}, deliveries)

    def record(self, *entries: StreamEntry) -> dict[str, int]:
        """Record entries as one batch; returns how many became what."""
        counts: dict[str, int] = {}
        for part in self.recorded(*entries):
            for word, number in part.counts.items():
                counts[word] = counts.get(word, 0) + number
        return {word: number for word, number in counts.items() if number}

    def recorded(self, *entries: StreamEntry) -> list[Recorded]:
        """Record entries as one batch; returns what is left to do."""
        return self.recorder.record(entries, int(time.time() * 1e6))

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a query with `?` marks."""
        with self.database.read() as connection:
            return Statements(connection, self.database.kind).query(sql, parameters)

    def outcomes(self) -> dict[str, str]:
        """Return route id to state, or to the text where it was refused."""
        found = self.query("SELECT route_id, state, reason FROM sense_delivery")
        return {route: state if reason is None or state == "held" else reason for route, state, reason in found}

    def dead(self) -> list[tuple[str, str]]:
        """Return word and detail of every dead entry, in the order of their stream ids."""
        return self.query("SELECT word, detail FROM sense_dead_entry ORDER BY at, stream_id")

    def audited(self) -> list[dict[str, Any]]:
        """Return the audit's lines, oldest first."""
        return [json.loads(line) for line in self.settings.audit_file.read_text().splitlines()]

    def close(self) -> None:
        """Close what it opened."""
        self.ports.sinks.close()
        self.ports.audit.close()
        self.ports.database.dispose()
