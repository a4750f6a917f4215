"""Init: home, keys, tables, and a tenant with its operator; needs no session, for it makes the first one (DESIGN §3).

Whoever can run it may read the keys and the database, and so may do all. Any number of processes may run it at once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runtime_core.audit import AuditRecord
from runtime_core.errors import Conflict, SettingsError, UsageError
from runtime_core.grants import ANY_PACK, Capability
from sense_worker.home import audit_log
from sense_worker.operator.acting import Acting, SessionFile, identify, read_session
from sense_worker.operator.desk import new_id, new_secret
from sense_worker.operator.names import plain_id, tenant_name
from sense_worker.operator.principals import session_row
from sense_worker.operator.views import InitResult
from sense_worker.storage.authority import bump_authority, lock_authority
from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import each_database, migrate
from sense_worker.storage.schema import GRANT, PRINCIPAL, SESSION, SINK, TENANT
from sense_worker.vault import Vault

if TYPE_CHECKING:
    from sense_worker.settings import Settings

DEFAULT_TENANT = "default"
OPERATOR = "operator"
SESSION_MICROS = 10 * 365 * 86_400_000_000
"""The operator's own session lasts ten years: its file is as good as the key file beside it."""


def initialize(settings: Settings, tenant: str, principal: str) -> InitResult:
    """Make what is missing; a second run makes nothing.

    The session file is written anew where its session has ended or is of another database. Raises UsageError,
    SettingsError, AuditUnavailable, LedgerBusy, and Conflict where the file or the principal is somebody else's.
    """
    tenant_name(tenant)
    plain_id("principal", principal)
    if tenant == OPERATOR:
        raise UsageError("tenant", f"{tenant!r} is taken", "its session file would be the default tenant's")
    database = Database(settings.database_url)
    created, vault = _keys(settings, _sealed(database))
    path = settings.home / f"{OPERATOR if tenant == DEFAULT_TENANT else tenant}.session"
    audit = audit_log(settings, vault)
    try:
        for one in each_database(settings):
            migrate(one)
        with database.write() as connection:
            lock_authority(connection, tenant)
            made = _Tenant(connection, vault, tenant, principal, database.now(connection)).ensure(path)
            if made:
                bump_authority(connection, tenant)
                subject = f"{tenant}: {', '.join(made)}"
                audit.append([AuditRecord("init", ok=True, tenant=tenant, principal=principal, subject=subject)])
    finally:
        database.dispose()
        audit.close()
    return InitResult(tenant, principal, str(settings.home), str(path), (*created, *made))


def _sealed(database: Database) -> bytes | None:
    """Return the newest secret that the database holds; None where there is none, or no database yet."""
    if database.kind == "sqlite" and not Path(database.url.database or "").exists():
        return None
    try:
        with database.read() as connection:
            if not sa.inspect(connection).has_table(SESSION.name):
                return None
            return connection.scalar(sa.select(SESSION.c.secret).order_by(SESSION.c.created_at.desc()).limit(1))
    finally:
        database.dispose()


def _keys(settings: Settings, sealed: bytes | None) -> tuple[tuple[str, ...], Vault]:
    """Make the keys of a new home; others open what is sealed already, or nothing may be written under them."""
    if sealed is not None and settings.secret_keys is None and not os.path.lexists(settings.key_file):
        raise SettingsError(
            str(settings.key_file),
            "the key file is missing, and what the database holds is sealed under its keys",
            "put it back from a backup, or set SENSE_SECRET_KEYS",
        )
    created = ("keys",) if settings.secret_keys is None and _keys_made(settings) else ()
    vault = Vault.load(settings)
    if sealed is not None:
        vault.open(sealed)
    return created, vault


def _keys_made(settings: Settings) -> bool:
    try:
        return Vault.create(settings.home)
    except OSError as error:
        raise SettingsError(
            "HCP_HOME", f"{settings.home}: {error.strerror}", "name a folder that can be made"
        ) from None


class _Tenant:
    """The rows of a tenant with its operator, in one transaction that holds the tenant's lock."""

    def __init__(self, connection: sa.Connection, vault: Vault, tenant: str, principal: str, now: int) -> None:
        self._connection = connection
        self._vault = vault
        self._tenant = tenant
        self._principal = principal
        self._now = now
        self._made: list[str] = []

    def ensure(self, path: Path) -> list[str]:
        """Insert what is missing, and write the session file last; returns what was made."""
        tenant, principal, now = self._tenant, self._principal, self._now
        self._row(TENANT, "tenant", {"id": tenant}, authority_version=1, created_at=now)
        key = {"tenant": tenant, "id": principal}
        self._row(PRINCIPAL, "principal", key, kind="human", operator=True, created_at=now)
        self._check_operator()
        install = {"principal": principal, "capability": Capability.PACK_INSTALL.value, "pack_id": ANY_PACK}
        facts = {"id": new_id("grt"), "keys": None, "created_by": principal, "created_at": now}
        self._row(GRANT, "grant", {"tenant": tenant, **install}, **facts)
        inbox = {"kind": "inbox", "options": self._vault.seal(b"{}"), "audience": "tenant", "created_at": now}
        self._row(SINK, "sink inbox", {"tenant": tenant, "name": "inbox"}, **inbox)
        if not self._stands(path):
            held = SessionFile(tenant, principal, new_id("ses"), new_secret())
            sealed = self._vault.seal(held.secret.encode())
            self._connection.execute(session_row(held, sealed, now, now + SESSION_MICROS))
            held.write(path)
            self._made.append("session")
        return self._made

    def _row(self, table: sa.TableClause, what: str, key: dict[str, str], **values: object) -> None:
        where = [table.c[name] == value for name, value in key.items()]
        if self._connection.execute(sa.select(sa.literal(1)).select_from(table).where(*where)).first() is None:
            self._connection.execute(sa.insert(table).values(**key, **values))
            self._made.append(what)

    def _check_operator(self) -> None:
        p = PRINCIPAL.c
        where = (p.tenant == self._tenant, p.id == self._principal)
        if not self._connection.scalar(sa.select(p.operator).where(*where)):
            raise Conflict("principal", f"{self._principal!r} exists and is no operator", "give another --principal")

    def _stands(self, path: Path) -> bool:
        """Tell whether the file holds a session of this operator that stands. Raises Conflict for another's."""
        if not path.exists():
            return False
        held = read_session(path)
        try:
            found = identify(self._connection, self._vault, held, self._now)
        except UsageError:
            return False
        if found.acting != Acting(self._tenant, self._principal, found.acting.session_id, operator=True):
            who = f"{found.acting.principal} of {found.acting.tenant}"
            raise Conflict(str(path), f"holds the session of {who}", "use `sense-worker session create`")
        return not found.revoked and found.expires_at > self._now
