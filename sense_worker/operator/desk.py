"""The desk at which every change is made: one transaction, the acting session checked in it, one audit line."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runtime_core.audit import AuditRecord
from runtime_core.errors import CONTROL_PLANE, REQUIRES_OPERATOR, Denied, NotFound, UsageError
from sense_worker.home import chain_name
from sense_worker.operator.acting import authenticate, identify
from sense_worker.operator.names import is_number
from sense_worker.server import socket_path
from sense_worker.settings import OVERLAP_LIMIT_S
from sense_worker.storage.anchors import keep_anchor
from sense_worker.storage.authority import SqlAuthoritySource, bump_authority, lock_authority
from sense_worker.storage.rows import Rows
from sense_worker.storage.schema import PRINCIPAL, PROJECT, SINK
from sense_worker.up_file import discover_redis_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from runtime_core.audit_chain import ChainedAudit
    from sense_worker.held_file import Held
    from sense_worker.operator.acting import Acting, SessionFile
    from sense_worker.settings import Settings
    from sense_worker.storage.engine import Database
    from sense_worker.vault import Vault
    from sinks.registry import Registry

UNKNOWN_SESSION = "session unknown"


def new_id(prefix: str) -> str:
    """Return an id that nobody can guess or meet by chance: 64 random bits."""
    return f"{prefix}_{secrets.token_hex(8)}"


def new_secret() -> str:
    """Return a secret of 256 random bits, as text."""
    return secrets.token_hex(32)


class Change:
    """One change under way: its transaction, its moment, and what its audit line will say."""

    def __init__(self, connection: sa.Connection, acting: Acting, now: int, action: str) -> None:
        self.connection = connection
        self.acting = acting
        self.now = now
        self.action = action
        self.subject: str | None = None
        self.pack_id: str | None = None
        self.project: str | None = None
        self.binding: str | None = None
        """The identity of a credential that is given up; None where none is involved."""
        self.nothing = False
        """Nothing was changed: no version moves and no line is written."""

    def one(self, query: sa.Select[Any]) -> Any:
        """Return the first row of a query, or None."""
        return self.connection.execute(query).first()

    def run(self, statement: sa.Executable) -> int:
        """Run a statement; returns how many rows it touched."""
        return int(self.connection.execute(statement).rowcount)

    def record(self, reason: str | None = None) -> AuditRecord:
        """Return the audit line."""
        return AuditRecord(
            action=self.action,
            ok=reason is None,
            tenant=self.acting.tenant,
            principal=self.acting.principal,
            project=self.project,
            binding=self.binding,
            pack_id=self.pack_id,
            operation="write",
            subject=self.subject,
            reason=reason,
        )


class Desk:
    """What all parts of the operator share."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        vault: Vault,
        audit: ChainedAudit,
        registry: Registry,
        session_file: Held[SessionFile],
        ring: Callable[[Iterable[str]], None] | None = None,
    ) -> None:
        self.settings = settings
        self._database = database
        self._vault = vault
        self._audit = audit
        self._registry = registry
        self._session_file = session_file
        self._ring = ring

    @property
    def acting(self) -> Acting:
        """Who acts now; raises Denied where the session no longer stands."""
        with self._database.read() as connection:
            held = self._session_file.renewed()
            return authenticate(connection, self._vault, held, self._database.now(connection))

    @contextmanager
    def _change(self, action: str, subject: str | None = None, *, operator: bool = True) -> Iterator[Change]:
        """Make a change: all of it and its audit line, or nothing. A denial is recorded too (§9.6.3).

        The tenant's lock is taken before anything is read, so that what is looked at here cannot change meanwhile.
        Raises Denied, UsageError and its kinds, AuditUnavailable, LedgerBusy.
        """
        held = self._session_file.renewed()
        denied = AuditRecord(action, ok=False, tenant=None, principal=None, subject=subject, reason=UNKNOWN_SESSION)
        try:
            with self._database.write() as connection:
                lock_authority(connection, held.tenant)
                now = self._database.now(connection)
                try:
                    identified = identify(connection, self._vault, held, now)
                except UsageError:
                    self._audit.append([denied])
                    raise
                change = Change(connection, identified.acting, now, action)
                change.subject = subject
                identified.check(now)
                if operator and not change.acting.operator:
                    raise Denied(REQUIRES_OPERATOR.text())
                yield change
                if not change.nothing:
                    bump_authority(connection, change.acting.tenant)
                    self._audit.append([change.record()])
                    # Anchored at once: without a worker no sweep does it, and a cut file would look whole.
                    rows = Rows(connection, self._database.kind)
                    keep_anchor(rows, chain_name(self.settings), self._audit.head(), now)
        except Denied as refusal:
            self._audit.append([change.record(str(refusal))])
            raise

    @contextmanager
    def _reading(self, *, paged: bool = False) -> Iterator[tuple[sa.Connection, Acting]]:
        """Read as the acting session, `paged` as `Database.read` says; raises Denied where it no longer stands."""
        with self._database.read(paged=paged) as connection:
            now = self._database.now(connection)
            yield connection, authenticate(connection, self._vault, self._session_file.renewed(), now)

    @contextmanager
    def _writing(self) -> Iterator[tuple[sa.Connection, Acting]]:
        """Write what is one's own and no authority hangs on: no line of the audit, no version moves."""
        with self._database.write() as connection:
            now = self._database.now(connection)
            yield connection, authenticate(connection, self._vault, self._session_file.renewed(), now)

    def _wake(self, lanes: Iterable[str]) -> None:
        """Ring lanes after a commit. A bell that cannot be rung is made up for by the sweep."""
        if self._ring is not None:
            self._ring(lanes)

    def _source(self, connection: sa.Connection) -> SqlAuthoritySource:
        return SqlAuthoritySource(connection, self._registry, self._vault)

    def _redis_url(self) -> str:
        """Return the server an adapter announces to: the one that is named or runs, else the one `up` will start."""
        return discover_redis_url(self.settings) or f"unix://{socket_path(self.settings.home)}"

    def _overlap_s(self, seconds: float | None) -> float:
        """Return for how long a secret that is replaced stays good (None: the setting); raises UsageError."""
        given = self.settings.rotate_overlap_s if seconds is None else seconds
        if not is_number(given) or not 0 <= given <= OVERLAP_LIMIT_S:
            raise UsageError("overlap", "must be between 0 and 30 days", "such as 15m, or 0 to end the old secret now")
        return given

    def seal(self, text: str) -> bytes:
        """Return text as it may stand in a row: encrypted under the current key."""
        return self._vault.seal(text.encode())


def need_control_plane(change: Change, plane: str) -> None:
    """Raise Denied where a control-plane pack is handled without an operator (§1.2.plane, DESIGN §7)."""
    if plane == "control" and not change.acting.operator:
        raise Denied(CONTROL_PLANE.text())


def need_principal(change: Change, name: str) -> None:
    """Raise NotFound where the tenant has no such principal."""
    know_principal(change.connection, change.acting.tenant, name)


def know_principal(connection: sa.Connection, tenant: str, name: str) -> None:
    """Raise NotFound where the tenant has no such principal; for what only reads."""
    p = PRINCIPAL.c
    if connection.execute(sa.select(p.id).where(p.tenant == tenant, p.id == name)).first() is None:
        raise NotFound("principal", f"there is no {name!r}", "see `sense-worker principal list`")


def need_project(change: Change, name: str) -> None:
    """Raise NotFound where the tenant has no such project; one of another tenant is told the same way (C18)."""
    know_project(change.connection, change.acting.tenant, name)


def know_project(connection: sa.Connection, tenant: str, name: str) -> None:
    """Raise NotFound where the tenant has no such project; for what only reads."""
    p = PROJECT.c
    if connection.execute(sa.select(p.id).where(p.tenant == tenant, p.id == name)).first() is None:
        raise NotFound("project", f"there is no {name!r}", "see `sense-worker project list`")


def sink_row(change: Change, name: str) -> Any:
    """Return the row of a sink of the tenant, None where there is none."""
    return change.one(sa.select(SINK).where(SINK.c.tenant == change.acting.tenant, SINK.c.name == name))


def need_sink(change: Change, name: str) -> Any:
    """Return the row of a sink of the tenant; raises NotFound."""
    return know_sink(change.connection, change.acting.tenant, name)


def know_sink(connection: sa.Connection, tenant: str, name: str) -> Any:
    """Return the row of a sink of the tenant; raises NotFound. For what only reads."""
    row = connection.execute(sa.select(SINK).where(SINK.c.tenant == tenant, SINK.c.name == name)).first()
    if row is None:
        raise NotFound("sink", f"there is no {name!r}", "see `sense-worker sink list`")
    return row
