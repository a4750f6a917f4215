"""Every port in memory: the shipped fake, for tests, scenarios and hosts that try a policy (DESIGN §2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime_core.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runtime_core.audit import AuditRecord
    from runtime_core.grants import Grant
    from runtime_core.identity import Activation, Principal, Route, Session, Sink
    from runtime_core.pack import PackRevision


class MemoryAuthority:
    """An AuthoritySource over dictionaries; `put` and `drop` change a row and bump its tenant's version."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self._principals: dict[tuple[str, str], Principal] = {}
        self._sessions: dict[tuple[str, str], Session] = {}
        self._activations: dict[tuple[str, str], Activation] = {}
        self._members: dict[tuple[str, str], set[str]] = {}
        self._grants: dict[str, Grant] = {}
        self._revisions: dict[tuple[str, str], PackRevision] = {}
        self._sinks: dict[tuple[str, str], Sink] = {}
        self._routes: dict[str, Route] = {}

    def snapshot(self, tenant: str) -> Authority:
        """Return a snapshot at the tenant's version now."""
        return Authority(tenant, self.versions.get(tenant, 0), self)

    def put_principal(self, row: Principal) -> None:
        """Add or replace a principal."""
        self._principals[row.tenant, row.id] = row
        self._bump(row.tenant)

    def put_session(self, row: Session) -> None:
        """Add or replace a session."""
        self._sessions[row.tenant, row.id] = row
        self._bump(row.tenant)

    def put_activation(self, row: Activation) -> None:
        """Add or replace an activation."""
        self._activations[row.tenant, row.id] = row
        self._bump(row.tenant)

    def put_grant(self, row: Grant) -> None:
        """Add or replace a grant."""
        self._grants[row.id] = row
        self._bump(row.tenant)

    def drop_grant(self, grant_id: str) -> None:
        """Revoke a grant."""
        self._bump(self._grants.pop(grant_id).tenant)

    def put_revision(self, row: PackRevision) -> None:
        """Install a revision."""
        self._revisions[row.tenant, row.pack.pack_id] = row
        self._bump(row.tenant)

    def drop_revision(self, tenant: str, pack_id: str) -> None:
        """Remove a pack."""
        del self._revisions[tenant, pack_id]
        self._bump(tenant)

    def put_sink(self, row: Sink) -> None:
        """Add or replace a sink."""
        self._sinks[row.tenant, row.name] = row
        self._bump(row.tenant)

    def put_route(self, row: Route) -> None:
        """Add or replace a route."""
        self._routes[row.id] = row
        self._bump(row.tenant)

    def join(self, tenant: str, project: str, principal: str) -> None:
        """Make a principal a member."""
        self._members.setdefault((tenant, project), set()).add(principal)
        self._bump(tenant)

    def leave(self, tenant: str, project: str, principal: str) -> None:
        """End a membership."""
        self._members.get((tenant, project), set()).discard(principal)
        self._bump(tenant)

    def activation(self, tenant: str, activation_id: str) -> Activation | None:
        """Return the row, or None."""
        return self._activations.get((tenant, activation_id))

    def activations_on(self, tenant: str, session_id: str) -> Iterable[Activation]:
        """Return the activations of a session."""
        rows = self._activations.values()
        return [row for row in rows if row.tenant == tenant and row.session_id == session_id]

    def session(self, tenant: str, session_id: str) -> Session | None:
        """Return the row, or None."""
        return self._sessions.get((tenant, session_id))

    def principal(self, tenant: str, principal_id: str) -> Principal | None:
        """Return the row, or None."""
        return self._principals.get((tenant, principal_id))

    def members(self, tenant: str, project_id: str) -> Iterable[str]:
        """Return the members; none for an unknown project."""
        return frozenset(self._members.get((tenant, project_id), ()))

    def grants(self, tenant: str, principal_id: str) -> Iterable[Grant]:
        """Return the grants of a principal, in the order they were put."""
        return [row for row in self._grants.values() if row.tenant == tenant and row.principal == principal_id]

    def revision(self, tenant: str, pack_id: str) -> PackRevision | None:
        """Return the revision in force, or None."""
        return self._revisions.get((tenant, pack_id))

    def sink(self, tenant: str, name: str) -> Sink | None:
        """Return the row, or None."""
        return self._sinks.get((tenant, name))

    def routes(self, tenant: str, pack_id: str, ref: str) -> Iterable[Route]:
        """Return the matching routes by id."""
        return sorted(
            row
            for row in self._routes.values()
            if row.tenant == tenant and row.pack_id == pack_id and row.ref in (ref, "*")
        )

    def _bump(self, tenant: str) -> None:
        self.versions[tenant] = self.versions.get(tenant, 0) + 1


class MemoryAudit:
    """An AuditLog that keeps records in a list."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    def probe(self) -> None:
        """Always writable."""

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Keep the records."""
        self.records.extend(records)
