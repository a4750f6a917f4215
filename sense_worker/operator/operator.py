"""Operator: all of provisioning and reading behind one door, as one session in its tenant (DESIGN §3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import sqlalchemy as sa

from runtime_core.grants import ANY_PACK, Capability
from sense_worker.operator.acting import SessionFile, read_session
from sense_worker.operator.activations import Activations
from sense_worker.operator.desk import new_id, new_secret
from sense_worker.operator.grants import Grants
from sense_worker.operator.names import plain_id, tenant_name
from sense_worker.operator.packs import Packs
from sense_worker.operator.principals import Principals
from sense_worker.operator.reading import Reading
from sense_worker.operator.sinks_routes import SinksRoutes
from sense_worker.operator.views import InitResult
from sense_worker.ring import ring_by
from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import migrate
from sense_worker.storage.schema import GRANT, PRINCIPAL, SESSION, SINK, TENANT
from sense_worker.vault import Vault
from sense_worker.wiring import audit_log
from sinks.registry import Registry

if TYPE_CHECKING:
    from pathlib import Path

    from sense_worker.settings import Settings

DEFAULT_TENANT = "default"
OPERATOR_SESSION_MICROS = 10 * 365 * 86_400_000_000
"""The operator's own session lasts ten years: its file is as good as the key file beside it."""


class Operator(Principals, Grants, Packs, SinksRoutes, Activations, Reading):
    """Acts as the session of a file. Use it as a context manager, or `close` it."""

    @classmethod
    def open(cls, settings: Settings, *, session_file: Path | None = None, registry: Registry | None = None) -> Self:
        """Act as the session in `session_file`, by default SENSE_SESSION_FILE.

        Raises UsageError for a file that is missing or no session's, SettingsError for keys or a database address.
        """
        held = read_session(session_file or settings.session_file)
        vault = Vault.load(settings)
        database = Database(settings.database_url)
        kinds = Registry.load() if registry is None else registry
        return cls(settings, database, vault, audit_log(settings, vault), kinds, held, ring_by(settings))

    @classmethod
    def initialize(cls, settings: Settings, *, tenant: str = DEFAULT_TENANT, principal: str = "operator") -> InitResult:
        """Make what is missing: home, keys, tables, tenant, its operator with session and grant, its sink `inbox`.

        Needs no session: whoever may read the keys may do all. A second run makes nothing. Raises UsageError,
        SettingsError, LedgerBusy.
        """
        tenant_name(tenant), plain_id("principal", principal)
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        created = []
        if settings.secret_keys is None and not settings.key_file.exists():
            Vault.create(settings.home)
            created.append("keys")
        vault = Vault.load(settings)
        database = Database(settings.database_url)
        migrate(database)
        path = settings.session_file
        if tenant != DEFAULT_TENANT:
            path = settings.home / f"{tenant}.session"
        try:
            with database.write() as connection:
                made, held = _ensure_tenant(connection, vault, tenant, principal, database.now(connection), path)
        finally:
            database.dispose()
        if held is not None:
            held.write(path)
        return InitResult(tenant, principal, str(settings.home), str(path), (*created, *made))

    def close(self) -> None:
        """Close the connections."""
        self._database.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _ensure_tenant(
    connection: sa.Connection, vault: Vault, tenant: str, principal: str, now: int, path: Path
) -> tuple[list[str], SessionFile | None]:
    """Insert what is missing of a tenant; returns what was made, and the session to write where one was."""
    made: list[str] = []

    def ensure(table: sa.Table, what: str, key: dict[str, object], **values: object) -> None:
        where = [table.c[name] == value for name, value in key.items()]
        if connection.execute(sa.select(sa.literal(1)).select_from(table).where(*where)).first() is None:
            connection.execute(sa.insert(table).values(**key, **values))
            made.append(what)

    ensure(TENANT, "tenant", {"id": tenant}, authority_version=1, created_at=now)
    own = {"tenant": tenant}
    ensure(PRINCIPAL, "principal", {**own, "id": principal}, kind="human", operator=True, created_at=now)
    ensure(
        GRANT,
        "grant",
        {**own, "principal": principal, "capability": Capability.PACK_INSTALL.value, "pack_id": ANY_PACK},
        id=new_id("grt"),
        keys=None,
        created_by=principal,
        created_at=now,
    )
    sealed = vault.seal(b"{}")
    ensure(
        SINK, "sink inbox", {**own, "name": "inbox"}, kind="inbox", options=sealed, audience="tenant", created_at=now
    )
    held = None
    if not path.exists():
        held = SessionFile(tenant, principal, new_id("ses"), new_secret())
        connection.execute(
            sa.insert(SESSION).values(
                id=held.session_id,
                tenant=tenant,
                principal=principal,
                secret=vault.seal(held.secret.encode()),
                previous_until=0,
                created_at=now,
                expires_at=now + OPERATOR_SESSION_MICROS,
            )
        )
        made.append("session")
    if made:
        connection.execute(
            sa.update(TENANT).where(TENANT.c.id == tenant).values(authority_version=TENANT.c.authority_version + 1)
        )
    return made, held
