"""Doctor: what this host has and lacks: walls, keyring, server, database, keys, binaries, plugins (docs/operate.md)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis
import sqlalchemy as sa

from runtime_core.adapters.walls import posture_report
from runtime_core.audit_chain import ChainedAudit
from runtime_core.binaries import way_to_allow
from runtime_core.errors import HcpError, PackError
from runtime_core.manifest import parse_manifest
from sense_worker.home import sink_host
from sense_worker.hubs.places import desktop_keyring
from sense_worker.server import find_program, server_facts
from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import check_schema
from sense_worker.storage.schema import PACK, REVISION, SINK
from sense_worker.up_file import discover_redis_url
from sense_worker.vault import Vault
from sinks.extras import EXTRAS
from sinks.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runtime_core.manifest import Manifest
    from sense_worker.settings import Settings

OK, NOTE, MISSING = "ok", "note", "missing"


@dataclass(frozen=True, slots=True)
class Examined:
    """One thing looked at: `ok`, a `note` (this host has less than it could), or something needed that is `missing`."""

    name: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was looked at; `ok` unless something needed is missing."""

    ok: bool
    findings: tuple[Examined, ...]


def examine(settings: Settings) -> Diagnosis:
    """Look at this host and change nothing. Raises nothing of what it looks at."""
    look = _Look(settings)
    findings = [
        *_safely("keys", look.keys),
        *_safely("database", look.database),
        *_safely("audit", look.audit),
        *_safely("redis", look.server),
        *_safely("keyring", look.keyring),
        *_safely("sandbox", _walls),
        *_safely("packs", look.packs),
        *_safely("sink plugins", look.plugins),
        *_safely("sinks", look.sinks),
    ]
    look.close()
    return Diagnosis(all(one.state != MISSING for one in findings), tuple(findings))


def _safely(name: str, judge: Callable[[], Iterator[Examined]]) -> list[Examined]:
    found: list[Examined] = []
    try:
        found.extend(judge())
    except HcpError as error:
        found.append(Examined(name, MISSING, str(error)))
    except redis.RedisError as error:
        found.append(Examined(name, MISSING, f"cannot be asked: {error}"))
    except Exception as error:  # noqa: BLE001 - a driver's own error is a finding like any other
        found.append(Examined(name, MISSING, f"cannot be asked: {type(error).__name__}"))
    return found


def _walls() -> Iterator[Examined]:
    for wall in posture_report():
        text = "in force" if wall.in_force else f"not in force: {wall.reason}"
        yield Examined(f"sandbox: {wall.name}", OK if wall.in_force else NOTE, text)


class _Look:
    """Each method yields what it finds about one thing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opened: Database | None = None
        self._kinds: Registry | None = None

    def keys(self) -> Iterator[Examined]:
        Vault.load(self._settings)
        where = "SENSE_SECRET_KEYS" if self._settings.secret_keys is not None else str(self._settings.key_file)
        yield Examined("keys", OK, where)

    def database(self) -> Iterator[Examined]:
        database = self._connect()
        check_schema(database)
        yield Examined("database", OK, f"{database.kind}, schema current")

    def audit(self) -> Iterator[Examined]:
        log = ChainedAudit(self._settings.audit_file, Vault.load(self._settings).derive("audit"), clock=lambda: 0)
        try:
            log.probe()
        finally:
            log.close()
        yield Examined("audit", OK, f"{self._settings.audit_file} can be written")

    def server(self) -> Iterator[Examined]:
        url = discover_redis_url(self._settings)
        if url is not None:
            yield Examined("redis", OK, f"answers, version {server_facts(url).version}")
            return
        program = find_program()
        yield Examined("redis", NOTE, f"none runs; `sense-worker up` starts {program}")

    def keyring(self) -> Iterator[Examined]:
        if self._connect().kind == "postgresql":
            yield Examined("keyring", OK, "credentials stand encrypted in the table, the ledger is PostgreSQL")
            return
        found = desktop_keyring()
        if found.backend is not None:
            yield Examined("keyring", OK, type(found.backend).__module__)
        else:
            yield Examined("keyring", NOTE, f"credentials stand encrypted in the table: {found.reason}")

    def packs(self) -> Iterator[Examined]:
        """Tell of the wrap packs in force what they need of this host, and which run outside the sandbox."""
        with self._connect().read() as connection:
            there = sa.and_(*(PACK.c[name] == REVISION.c[name] for name in ("tenant", "pack_id", "generation")))
            rows = list(connection.execute(sa.select(REVISION).join(PACK, there)))
        for row in sorted(rows, key=lambda one: (one.tenant, one.pack_id)):
            manifest = _manifest(row)
            if manifest is None or manifest.adapter.kind != "wrap":
                continue
            name = f"pack {row.tenant}/{row.pack_id}"
            if manifest.sandbox.posture == "native-local":
                yield Examined(name, NOTE, "native-local: runs outside the sandbox, as the worker's account")
            yield _binary(name, manifest.bin, row.allowed_bins.get(manifest.bin))

    def plugins(self) -> Iterator[Examined]:
        """Tell of the installed sink plugins, each tried anew; what is found is not kept."""
        shipped = Registry().kinds()
        kinds = self._registry()
        for fault in kinds.faults:
            yield Examined(f"sink plugin {fault.entry_point or '?'}", MISSING, f"{fault.package}: {fault.reason}")
        for kind in kinds.kinds():
            if kind not in shipped:
                yield Examined(f"sink plugin {kind}", OK, "loads")
        for kind, extra in EXTRAS.items():
            lack = extra.lack()
            yield Examined(f"sink kind {kind}", OK if lack is None else NOTE, lack or f"{extra.package} is there")

    def sinks(self) -> Iterator[Examined]:
        """Tell of the sinks that a worker with these settings and packages could not use."""
        kinds, vault = self._registry(), Vault.load(self._settings)
        with self._connect().read() as connection:
            rows = list(connection.execute(sa.select(SINK).order_by(SINK.c.tenant, SINK.c.name)))
        for row in rows:
            fault = kinds.fault(row.kind, json.loads(vault.open(row.options)))
            if fault is not None:
                yield Examined(f"sink {row.tenant}/{row.name}", NOTE, fault)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.dispose()

    def _registry(self) -> Registry:
        if self._kinds is None:
            self._kinds = Registry.load(sink_host(self._settings))
        return self._kinds

    def _connect(self) -> Database:
        if self._opened is None:
            self._opened = Database(self._settings.database_url)
        return self._opened


def _manifest(row: Any) -> Manifest | None:
    try:
        return parse_manifest(row.surface)
    except PackError:
        return None


def _binary(name: str, wanted: str, place: str | None) -> Examined:
    if place is None:
        return Examined(name, NOTE, f"{wanted} is not allowed, so no command of it runs ({way_to_allow(wanted)})")
    if not Path(place).is_file() or not os.access(place, os.X_OK):
        return Examined(name, MISSING, f"{wanted}: {place} is no executable file on this host")
    return Examined(name, OK, f"{wanted} is {place}")
