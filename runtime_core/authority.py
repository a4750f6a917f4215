"""Authority: what one tenant's rows say at one version, as the pipeline reads it (DESIGN §6).

A snapshot belongs to one authority version of one tenant and fills itself on demand from a source, a port that each
store implements. A new version means a new snapshot; nothing in it ever ages, so there is no TTL (C15).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from runtime_core.grants import Grant, GrantTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runtime_core.identity import Activation, Micros, Principal, Route, Session, Sink
    from runtime_core.pack import PackRevision
    from runtime_core.pipeline import Attempt


class AuthoritySource(Protocol):
    """Loads rows of one tenant. Every method reads committed rows; a missing row is None or empty."""

    def activation(self, tenant: str, activation_id: str) -> Activation | None: ...

    def activations_on(self, tenant: str, session_id: str) -> Iterable[Activation]: ...

    def session(self, tenant: str, session_id: str) -> Session | None: ...

    def principal(self, tenant: str, principal_id: str) -> Principal | None: ...

    def members(self, tenant: str, project_id: str) -> Iterable[str]: ...

    def grants(self, tenant: str, principal_id: str) -> Iterable[Grant]: ...

    def revision(self, tenant: str, pack_id: str) -> PackRevision | None: ...

    def sink(self, tenant: str, name: str) -> Sink | None: ...

    def routes(self, tenant: str, pack_id: str, ref: str) -> Iterable[Route]:
        """Return the standing routes of the pack whose ref is `ref` or `*`, by route id."""
        ...


class Authority:
    """A lazily filled snapshot of one tenant at one version. Not shared between threads."""

    def __init__(self, tenant: str, version: int, source: AuthoritySource) -> None:
        self.tenant = tenant
        self.version = version
        self._source = source
        self.decisions: dict[tuple[str, ...], Attempt] = {}
        """What the pipeline decided against this snapshot (see `pipeline.decide`)."""
        self._activations: dict[str, Activation] = {}
        self._activations_on: dict[str, list[Activation]] = {}
        self._sessions: dict[str, Session | None] = {}
        self._principals: dict[str, Principal | None] = {}
        self._members: dict[str, frozenset[str]] = {}
        self._grants: dict[str, GrantTable] = {}
        self._revisions: dict[str, PackRevision | None] = {}
        self._sinks: dict[str, Sink | None] = {}
        self._routes: dict[tuple[str, str], dict[str, Route]] = {}

    def rows(
        self, pack_id: str, activation_id: str, owner: str, publisher: str, sink: str
    ) -> tuple[PackRevision | None, Activation | None, Session | None, Principal | None, Principal | None, Sink | None]:
        """Return all that an attempt looks at, in one call: the path of every decision once the snapshot is warm."""
        try:
            activation = self._activations[activation_id]
            return (
                self._revisions[pack_id],
                activation,
                self._sessions[activation.session_id],
                self._principals[owner],
                self._principals[publisher],
                self._sinks[sink],
            )
        except KeyError:
            found = self.activation(activation_id)
            return (
                self.revision(pack_id),
                found,
                None if found is None else self.session(found.session_id),
                self.principal(owner),
                self.principal(publisher),
                self.sink(sink),
            )

    def activation(self, activation_id: str) -> Activation | None:
        """Return the activation. A miss is not kept: strangers choose these ids, and memory must stay flat."""
        try:
            return self._activations[activation_id]
        except KeyError:
            found = self._source.activation(self.tenant, activation_id)
            if found is not None:
                self._activations[activation_id] = found
            return found

    def activations_of(self, session_id: str, pack_id: str) -> list[Activation]:
        """Return the session's standing activations of a pack."""
        return [row for row in self._standing_on(session_id) if row.pack_id == pack_id]

    def activation_of(self, session_id: str, pack_id: str, project_id: str | None) -> Activation | None:
        """Return the session's own standing activation of the pack for exactly this project (DESIGN §8)."""
        found = self._standing_on(session_id)
        return next((row for row in found if row.pack_id == pack_id and row.project_id == project_id), None)

    def _standing_on(self, session_id: str) -> list[Activation]:
        found = self._activations_on.get(session_id)
        if found is None:
            found = [row for row in self._source.activations_on(self.tenant, session_id) if not row.revoked]
            if found:  # strangers choose these ids too
                self._activations_on[session_id] = found
        return found

    def session(self, session_id: str) -> Session | None:
        try:
            return self._sessions[session_id]
        except KeyError:
            found = self._sessions[session_id] = self._source.session(self.tenant, session_id)
            return found

    def principal(self, principal_id: str) -> Principal | None:
        try:
            return self._principals[principal_id]
        except KeyError:
            found = self._principals[principal_id] = self._source.principal(self.tenant, principal_id)
            return found

    def members(self, project_id: str) -> frozenset[str]:
        """Return the members now; empty for a project that exists nowhere or in another tenant (C18)."""
        try:
            return self._members[project_id]
        except KeyError:
            found = self._members[project_id] = frozenset(self._source.members(self.tenant, project_id))
            return found

    def grant(
        self, principal_id: str, capability: str, pack_id: str, key: str | None, project: str | None, now: Micros
    ) -> Grant | None:
        """Return the grant that allows it, or None (§9.4.4)."""
        table = self._grants.get(principal_id)
        if table is None:
            table = self._grants[principal_id] = GrantTable(self._source.grants(self.tenant, principal_id))
        return table.find(capability, pack_id, key, project, now)

    def revision(self, pack_id: str) -> PackRevision | None:
        """Return the newest revision in force, or None when the pack is not installed."""
        try:
            return self._revisions[pack_id]
        except KeyError:
            found = self._revisions[pack_id] = self._source.revision(self.tenant, pack_id)
            return found

    def sink(self, name: str) -> Sink | None:
        try:
            return self._sinks[name]
        except KeyError:
            found = self._sinks[name] = self._source.sink(self.tenant, name)
            return found

    def routes(self, pack_id: str, ref: str) -> dict[str, Route]:
        """Return the standing routes that match the pack and ref, by route id in id order; not to be changed."""
        at = (pack_id, ref)
        try:
            return self._routes[at]
        except KeyError:
            found = self._routes[at] = {route.id: route for route in self._source.routes(self.tenant, pack_id, ref)}
            return found
