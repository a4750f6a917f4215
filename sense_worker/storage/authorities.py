"""Authorities: this process's snapshots, one a tenant, kept while the tenant's version stands (DESIGN §6).

Why a revocation that committed before a claim is always seen: every change bumps its tenant's version in its own
transaction, and a claim takes the version under a lock in its own (SQLite: one writer at a time; PostgreSQL: FOR
SHARE, which waits for a running bump and makes the next one wait). A snapshot is used only while its version is that
one. It may have been filled before: each row was read after the snapshot's version was, so with an equal version at
the claim no change lies in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime_core.authority import Authority
from sense_worker.storage.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    import sqlalchemy as sa

    from runtime_core.authority import AuthoritySource
    from sense_worker.storage.engine import Database


class Authorities:
    """Snapshots by tenant. A tenant without a row has version 0 and nothing in it."""

    def __init__(self, database: Database, source: AuthoritySource) -> None:
        self._database = database
        self._source = source
        self._kept: dict[str, Authority] = {}

    def cached(self, tenants: Iterable[str]) -> dict[str, Authority]:
        """Return the snapshots at hand, whatever has changed since; for work that is confirmed by `locked`."""
        wanted = set(tenants)
        missing = wanted - self._kept.keys()
        if missing:
            with self._database.read() as connection:
                self.current(connection, missing)
        return {tenant: self._kept[tenant] for tenant in wanted}

    def current(self, connection: sa.Connection, tenants: Iterable[str]) -> dict[str, Authority]:
        """Return snapshots of the versions that are committed now."""
        return self._at(connection, tenants, "")

    def locked(self, connection: sa.Connection, tenants: Iterable[str]) -> dict[str, Authority]:
        """Return snapshots of versions that cannot change before the transaction of `connection` ends."""
        return self._at(connection, tenants, " FOR SHARE" if self._database.kind == "postgresql" else "")

    def _at(self, connection: sa.Connection, tenants: Iterable[str], lock: str) -> dict[str, Authority]:
        wanted = sorted(set(tenants))
        marks = ", ".join("?" * len(wanted))
        found = Rows(connection, self._database.kind).query(
            f"SELECT id, authority_version FROM sense_tenant WHERE id IN ({marks}) ORDER BY id{lock}",  # noqa: S608
            wanted,
        )
        versions = {row[0]: int(row[1]) for row in found}
        return {tenant: self._snapshot(tenant, versions.get(tenant, 0)) for tenant in wanted}

    def _snapshot(self, tenant: str, version: int) -> Authority:
        kept = self._kept.get(tenant)
        if kept is None or kept.version != version:
            kept = self._kept[tenant] = Authority(tenant, version, self._source)
        return kept
