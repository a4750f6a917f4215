"""Authority in the database: its versions, the lock that guards them, and the rows of a tenant (DESIGN §6).

Why a revocation that committed before a claim is always seen. Every change to who may do what takes the authority
lock of its tenant and raises the tenant's version in its own transaction. A reader reads the version in the
transaction of its claim and judges by a snapshot of exactly that version. The version it reads is at least the one of
every change that had committed by then, and a snapshot is filled only after its version was read, so its rows are as
new or newer. There is no age at which a snapshot is dropped, and none it may live to: the longest stale time is zero,
counted from the claim (C15).

With `lock`, a reader also holds the shared side of that lock until its transaction ends: no change commits meanwhile,
so all rows it judges by are of one version, and nothing is allowed that neither the old nor the new rows allow (C24).
On PostgreSQL it is an advisory lock, because those queue: with row locks (FOR SHARE) readers that overlap pass a
waiting change for ever (measured: four readers of 60 ms each kept one UPDATE waiting until they stopped). On SQLite
BEGIN IMMEDIATE already lets one writer in at a time, and a reader has a snapshot of the whole file.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

import sqlalchemy as sa

from runtime_core.errors import SINK_DISABLED, SINK_PAUSED, SINK_UNOPENED, NotFound, PackError
from runtime_core.grants import Grant
from runtime_core.identity import Activation, Credential, Principal, Route, Session, Sink
from sense_worker.storage.rows import Rows
from sense_worker.storage.schema import (
    ACTIVATION,
    GRANT,
    MEMBERSHIP,
    PACK,
    PRINCIPAL,
    REVISION,
    ROUTE,
    SESSION,
    SINK,
    TENANT,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runtime_core.pack import Pack, PackRevision
    from sense_worker.storage.engine import Database
    from sense_worker.storage.rows import Kind
    from sense_worker.vault import Vault
    from sinks.registry import Traits

log = logging.getLogger(__name__)

ANY_REF = "*"
PARSED_PACKS = 256
"""Packs kept parsed per process: some 50 KiB each, against milliseconds to parse one and compile its schemas."""

_LOCK_SPACE = 0x5E45E
"""First half of the advisory keys; the second is the hash of the tenant. Two that collide merely wait together."""


class SinkKinds(Protocol):
    """What is asked of `sinks.registry.Registry`."""

    def traits(self, kind: str, options: Mapping[str, object]) -> Traits | str: ...


def lock_authority(connection: sa.Connection, tenant: str) -> None:
    """Take the exclusive side of the tenant's lock until the transaction ends.

    A transaction that changes rows takes it before its first row: the other order can deadlock with a reader that
    holds the shared side and waits for a row.
    """
    if connection.dialect.name == "postgresql":
        key = sa.func.pg_advisory_xact_lock(_LOCK_SPACE, sa.func.hashtext(tenant))
        connection.execute(sa.select(key))


def bump_authority(connection: sa.Connection, tenant: str) -> int:
    """Raise the tenant's version, and return it; takes the lock where the transaction does not hold it.

    Belongs into every transaction that changes a grant, membership, principal, session, activation, route, sink or
    pack revision. Raises NotFound where there is no such tenant.
    """
    lock_authority(connection, tenant)
    raised = (
        sa.update(TENANT)
        .where(TENANT.c.id == tenant)
        .values(authority_version=TENANT.c.authority_version + 1)
        .returning(TENANT.c.authority_version)
    )
    version = connection.scalar(raised)
    if version is None:
        raise NotFound("tenant", f"there is no tenant {tenant!r}", "run `sense-worker init`")
    return int(version)


def versions(connection: sa.Connection, tenants: Iterable[str], *, lock: bool) -> dict[str, int]:
    """Return the version of each tenant that exists; with `lock` none of them moves until the transaction ends."""
    wanted = sorted(set(tenants))
    if not wanted:
        return {}
    kind: Kind = "postgresql" if connection.dialect.name == "postgresql" else "sqlite"
    rows = Rows(connection, kind)  # 6 µs; the same through SQLAlchemy's select and IN costs 300, in each transaction
    if lock and kind == "postgresql":
        # A statement of its own: its snapshot is older than its locks, and the versions must be read after them.
        rows.query(_LOCK_SHARED, (_LOCK_SPACE, wanted))
    marks = ", ".join("?" * len(wanted))
    return dict(rows.query(f"SELECT id, authority_version FROM sense_tenant WHERE id IN ({marks})", wanted))  # noqa: S608


# In the order of the keys, so that two readers of several tenants cannot wait for each other.
_LOCK_SHARED = (
    "SELECT pg_advisory_xact_lock_shared(?, key) FROM"
    " (SELECT DISTINCT hashtext(t) AS key FROM unnest(CAST(? AS text[])) AS t ORDER BY key) AS keys"
)


class SqlAuthoritySource:
    """`runtime_core.authority.AuthoritySource` over SQL; every look-up names the tenant (§9.2.1).

    `rows` is a Database, where each look-up is a transaction of its own, so that snapshots may outlive the one they
    were made in; or a Connection, to see what its transaction changed. Raises HcpError where no key opens a secret.
    """

    def __init__(self, rows: Database | sa.Connection, kinds: SinkKinds, vault: Vault) -> None:
        self._rows = rows
        self._kinds = kinds
        self._vault = vault

    def activation(self, tenant: str, activation_id: str) -> Activation | None:
        t = ACTIVATION.c
        row = self._first(sa.select(ACTIVATION).where(t.tenant == tenant, t.id == activation_id))
        return None if row is None else self._activation(row)

    def activations_on(self, tenant: str, session_id: str) -> list[Activation]:
        t = ACTIVATION.c
        rows = self._all(sa.select(ACTIVATION).where(t.tenant == tenant, t.session_id == session_id))
        return [self._activation(row) for row in rows]

    def session(self, tenant: str, session_id: str) -> Session | None:
        t = SESSION.c
        row = self._first(sa.select(SESSION).where(t.tenant == tenant, t.id == session_id))
        if row is None:
            return None
        secret = credential(self._vault, row)
        return Session(session_id, tenant, row.principal, row.expires_at, row.revoked_at is not None, secret)

    def principal(self, tenant: str, principal_id: str) -> Principal | None:
        t = PRINCIPAL.c
        columns = sa.select(t.kind, t.operator, t.disabled_at)
        row = self._first(columns.where(t.tenant == tenant, t.id == principal_id))
        if row is None:
            return None
        return Principal(tenant, principal_id, row.kind, row.operator, row.disabled_at is not None)

    def members(self, tenant: str, project_id: str) -> list[str]:
        t = MEMBERSHIP.c
        rows = self._all(sa.select(t.principal).where(t.tenant == tenant, t.project == project_id))
        return [row.principal for row in rows]

    def grants(self, tenant: str, principal_id: str) -> list[Grant]:
        t = GRANT.c
        columns = sa.select(t.id, t.capability, t.pack_id, t["keys"], t.project, t.expires_at)
        return [
            Grant(
                row.id, tenant, principal_id, row.capability, row.pack_id, _tuple(row[3]), row.project, row.expires_at
            )
            for row in self._all(columns.where(t.tenant == tenant, t.principal == principal_id).order_by(t.id))
        ]

    def revision(self, tenant: str, pack_id: str) -> PackRevision | None:
        """Return the revision in force. One that this release no longer accepts is not served, and is logged."""
        r = REVISION.c
        in_force = sa.and_(PACK.c.tenant == r.tenant, PACK.c.pack_id == r.pack_id, PACK.c.generation == r.generation)
        columns = sa.select(r.generation, r.digest, r.allowed_bins).join(PACK, in_force)
        row = self._first(columns.where(r.tenant == tenant, r.pack_id == pack_id))
        if row is None:
            return None
        try:
            pack = self._parsed(tenant, pack_id, row.generation, row.digest)
        except PackError as error:
            log.error("pack %s of tenant %s is not served: %s", pack_id, tenant, error)  # noqa: TRY400 - its text says all
            return None
        from runtime_core.pack import PackRevision

        return PackRevision(tenant, row.generation, pack, row.allowed_bins)

    def sink(self, tenant: str, name: str) -> Sink | None:
        row = self._first(sa.select(SINK).where(SINK.c.tenant == tenant, SINK.c.name == name))
        if row is None:
            return None
        traits = self._kinds.traits(row.kind, json.loads(self._vault.open(row.options)))
        held = None
        if isinstance(traits, str):
            held = SINK_UNOPENED.format(traits)
        elif row.disabled_at is not None:
            held = SINK_DISABLED.format(row.disabled_reason)
        elif row.paused_at is not None:
            held = SINK_PAUSED
        if isinstance(traits, str):
            return Sink(tenant, name, row.kind, row.audience, row.audience_id, False, False, held, ())
        shape = (traits.partitioned, traits.workspace, held, traits.lands)
        return Sink(tenant, name, row.kind, row.audience, row.audience_id, *shape)

    def routes(self, tenant: str, pack_id: str, ref: str) -> list[Route]:
        t = ROUTE.c
        columns = sa.select(t.id, t.owner, t.ref, t.sink, t.project, t.expires_at, t["filter"])
        standing = columns.where(
            t.tenant == tenant, t.pack_id == pack_id, t.ref.in_((ref, ANY_REF)), t.removed_at.is_(None)
        )
        return [
            Route(row.id, tenant, row.owner, pack_id, row.ref, row.sink, row.project, row.expires_at, row.filter)
            for row in self._all(standing.order_by(t.id))
        ]

    def _parsed(self, tenant: str, pack_id: str, generation: int, digest: str) -> Pack:
        key = (tenant, pack_id, digest)
        pack = _PACKS.get(key)
        if pack is None:
            r = REVISION.c
            files = sa.select(r.surface, r.policy, r.harness)
            at = (r.tenant == tenant, r.pack_id == pack_id, r.generation == generation)
            surface, policy, harness = self._all(files.where(*at))[0]
            from runtime_core.pack import read_pack  # its models take 50 ms, which a command that reads no pack spares

            pack = read_pack(surface=surface, policy=policy, harness=harness)
            _PACKS.put(key, pack)
        return pack

    def _activation(self, row: sa.Row[*tuple[Any, ...]]) -> Activation:
        return Activation(
            row.id,
            row.tenant,
            row.session_id,
            row.pack_id,
            row.project_id,
            row.workspace,
            row.revoked_at is not None,
            credential(self._vault, row),
        )

    def _first(self, query: sa.Select[*tuple[Any, ...]]) -> sa.Row[*tuple[Any, ...]] | None:
        return next(iter(self._all(query)), None)

    def _all(self, query: sa.Select[*tuple[Any, ...]]) -> Sequence[sa.Row[*tuple[Any, ...]]]:
        if isinstance(self._rows, sa.Connection):
            return self._rows.execute(query).all()
        with self._rows.read() as connection:
            return connection.execute(query).all()


def credential(vault: Vault, row: sa.Row[*tuple[Any, ...]]) -> Credential:
    """Open the secrets of a session or activation row. Raises HcpError where no key opens them."""
    previous = row.previous_secret
    return Credential(vault.open(row.secret), None if previous is None else vault.open(previous), row.previous_until)


def _tuple(keys: list[str] | None) -> tuple[str, ...] | None:
    return None if keys is None else tuple(keys)


class _ParsedPacks:
    """The parsed packs of this process, the least recently used dropped first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._packs: OrderedDict[tuple[str, str, str], Pack] = OrderedDict()

    def get(self, key: tuple[str, str, str]) -> Pack | None:
        with self._lock:
            if key in self._packs:
                self._packs.move_to_end(key)
            return self._packs.get(key)

    def put(self, key: tuple[str, str, str], pack: Pack) -> None:
        with self._lock:
            self._packs[key] = pack
            while len(self._packs) > self._limit:
                self._packs.popitem(last=False)


_PACKS = _ParsedPacks(PARSED_PACKS)
