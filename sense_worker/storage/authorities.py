"""Authorities: this process's snapshots, one a tenant, kept while the tenant's version stands (DESIGN §6).

A snapshot is used for a decision only while its version is the one that `versions(lock=True)` reads in the deciding
transaction (see `authority` for why that sees every revocation). It may have been filled before, outside of any
transaction: each row was read after the snapshot's version was, so with an equal version at the decision no change
lies in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime_core.authority import Authority
from sense_worker.storage.authority import versions

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

    def newest(self, tenants: Iterable[str]) -> dict[str, Authority]:
        """Return snapshots of the versions that are committed now, in a transaction of its own."""
        with self._database.read() as connection:
            return self.current(connection, tenants)

    def current(self, connection: sa.Connection, tenants: Iterable[str]) -> dict[str, Authority]:
        """Return snapshots of the versions that are committed now."""
        return self._at(connection, tenants, lock=False)

    def locked(self, connection: sa.Connection, tenants: Iterable[str]) -> dict[str, Authority]:
        """Return snapshots of versions that cannot change before the transaction of `connection` ends."""
        return self._at(connection, tenants, lock=True)

    def _at(self, connection: sa.Connection, tenants: Iterable[str], *, lock: bool) -> dict[str, Authority]:
        wanted = set(tenants)
        found = versions(connection, wanted, lock=lock)
        return {tenant: self._snapshot(tenant, found.get(tenant, 0)) for tenant in wanted}

    def _snapshot(self, tenant: str, version: int) -> Authority:
        kept = self._kept.get(tenant)
        if kept is None or kept.version != version:
            kept = self._kept[tenant] = Authority(tenant, version, self._source)
        return kept
