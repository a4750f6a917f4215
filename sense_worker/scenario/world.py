"""The world of a scenario: every port in memory, changed by steps, asked by cases (DESIGN §10).

    Scenario ── rows as given ──► MemoryAuthority ◄── steps
    sense case ── signed entry ──► intake's door ──► SENSE_STEPS ──► a sink that records

Nothing is decided here: the door, the candidates, the gates and the audit are the worker's own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.binding import Holder, holder_of
from runtime_core.errors import SINK_PAUSED, UsageError
from runtime_core.grants import Grant
from runtime_core.identity import Activation, Credential, Micros, Principal, Route, Session, Sink
from runtime_core.memory import MemoryAudit, MemoryAuthority
from runtime_core.pack import PackRevision
from sense_worker.scenario.model import HORIZON, ProjectSink, micros, span
from sense_worker.scenario.packs import read_listed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runtime_core.authority import Authority
    from runtime_core.grants import Capability
    from runtime_core.pack import Pack
    from sense_worker.scenario.model import ActivationRow, GrantRow, Membership, NamedActivation, PackSource, RouteRow
    from sense_worker.scenario.packs import Listed
    from sense_worker.scenario.read import Loaded


_NEAR = 3
"""Grants told of where one is missing."""


class _Given(NamedTuple):
    """A grant as the file wrote it, under the id of its row."""

    row: GrantRow
    grant: Grant


class World:
    """The rows of one scenario at its own moment `now`."""

    def __init__(self, loaded: Loaded) -> None:
        scenario = loaded.scenario
        self.now: Micros = micros(scenario.now)
        self.source = MemoryAuthority()
        self.audit = MemoryAudit()
        self.listed = {one.pack_id: one for one in loaded.listed if one.pack_id is not None}
        self.replaced: list[Listed] = []
        """What `replace` steps brought, those among it that were refused."""
        self.connected: set[Holder] = set()
        self._principals = scenario.principals
        self._sessions: dict[str, Session] = {}
        self._sinks: dict[tuple[str, str], Sink] = {}
        self._given: list[_Given] = []
        self._granted = 0
        self._generation = 0
        self._snapshots: dict[str, Authority] = {}
        self._fill(loaded)

    @property
    def tenants(self) -> list[str]:
        """Every tenant that somebody is in, sorted."""
        return sorted({session.tenant for session in self._sessions.values()})

    def authority(self, tenant: str) -> Authority:
        """Return the tenant's snapshot now; the same one until a step changed something."""
        kept = self._snapshots.get(tenant)
        if kept is None or kept.version != self.source.versions.get(tenant, 0):
            kept = self._snapshots[tenant] = self.source.snapshot(tenant)
        return kept

    def tenant_of(self, activation_id: object) -> str:
        """Return the tenant whose stream an adapter with this activation writes to; for a stranger any will do."""
        for tenant in self.tenants:
            if isinstance(activation_id, str) and self.source.activation(tenant, activation_id) is not None:
                return tenant
        return self.tenants[0] if self.tenants else "default"

    def session(self, name: object) -> Session | None:
        """Return the session of that name as it stands now."""
        kept = self._sessions.get(name) if isinstance(name, str) else None
        return None if kept is None else self.source.session(kept.tenant, kept.id)

    def near_miss(self, principal: str, capability: Capability) -> str | None:
        """Tell shortly which grants of a capability a principal has that did not match; None where it has none."""
        shown = [_shown(one.grant, self.now) for one in self._given if one.row.principal == principal]
        near = [text for text, kind in shown if kind == capability]
        if not near:
            return None
        more = f" and {len(near) - _NEAR} more" if len(near) > _NEAR else ""
        return f"{principal} has {capability} {'; '.join(near[:_NEAR])}{more}"

    def install(self, pack: Pack, tenant: str) -> None:
        """Put a pack in force in a tenant."""
        self._generation += 1
        self.source.put_revision(PackRevision(tenant, self._generation, pack, {}))

    def change(self, change: str, about: Any, folder: Path) -> None:
        """Make one change. Raises UsageError for a revoke that names no row and a clock that leaves the calendar."""
        if change == "replace":
            self._replace(about, folder)
            return
        changes: dict[str, Callable[[Any], None]] = {
            "grant": self._grant,
            "revoke": self._revoke,
            "join": self._join,
            "leave": self._leave,
            "activate": self._activate_by_step,
            "deactivate": self._deactivate,
            "disable": lambda name: self._disable(name, disabled=True),
            "enable": lambda name: self._disable(name, disabled=False),
            "revoke_session": self._revoke_session,
            "connect": lambda pair: self.connected.add(self._holder(pair)),
            "disconnect": lambda pair: self.connected.discard(self._holder(pair)),
            "pause": lambda word: self._hold(word, SINK_PAUSED),
            "resume": lambda word: self._hold(word, None),
            "remove": self._remove,
            "clock": self._pass,
        }
        changes[change](about)

    def _fill(self, loaded: Loaded) -> None:
        scenario = loaded.scenario
        for name, person in scenario.principals.items():
            self.source.put_principal(Principal(person.tenant, name, person.kind, person.operator, False))
            ends = HORIZON if person.expires is None else self._end(person.expires)
            self._put_session(Session(name, person.tenant, name, ends, revoked=False))
        for name, row in scenario.sessions.items():
            if self.source.principal(row.tenant, row.principal) is None:
                kind = scenario.principals[row.principal].kind
                self.source.put_principal(Principal(row.tenant, row.principal, kind, operator=False, disabled=False))
            self._put_session(Session(name, row.tenant, row.principal, HORIZON, revoked=False))
        self._projects = _projects(scenario.projects, self._principals)
        for name, person in scenario.principals.items():
            for project in person.projects:
                self.source.join(self._projects[project], project, name)
        for one in loaded.listed:
            self._install_everywhere(one)
        for grant in scenario.grants:
            self._grant(grant)
        for name, activation in scenario.activations.items():
            self._activate(name, activation)
        for name, route in scenario.routes.items():
            self._route(name, route)
        self.connected.update(self._holder(pair) for pair in scenario.connected)

    def _put_session(self, row: Session) -> None:
        self._sessions[row.id] = row
        self.source.put_session(row)

    def _install_everywhere(self, one: Listed) -> None:
        if one.pack is not None:
            for tenant in self.tenants:
                self.install(one.pack, tenant)

    def _end(self, text: str) -> Micros:
        return self.now + span(text) if text[0] in "+-" else micros(text)

    def _grant(self, row: GrantRow) -> None:
        tenant = self._principals[row.principal].tenant
        ends = None if row.expires is None else self._end(row.expires)
        self._granted += 1
        name = f"grant-{self._granted}"
        grant = Grant(name, tenant, row.principal, row.capability, row.pack, row.keys, row.project, ends)
        self._given.append(_Given(row, grant))
        self.source.put_grant(grant)

    def _revoke(self, row: GrantRow) -> None:
        equal = [given for given in self._given if given.row.same == row.same]
        if not equal:
            written = json.dumps(row.model_dump(mode="json", exclude_unset=True), ensure_ascii=False)
            raise UsageError("revoke", f"no grant equals {written}", "write it as it was granted, with the same fields")
        for given in equal:
            self._given.remove(given)
            self.source.drop_grant(given.grant.id)

    def _join(self, one: Membership) -> None:
        project, principal = one.project, one.principal
        tenant = self._projects.setdefault(project, self._principals[principal].tenant)
        self.source.join(tenant, project, principal)

    def _leave(self, one: Membership) -> None:
        if one.project in self._projects:
            self.source.leave(self._projects[one.project], one.project, one.principal)

    def _activate(self, name: str, row: ActivationRow) -> None:
        session = self._sessions[row.on]
        workspace = f"/workspaces/{name}" if row.workspace else None
        secret = Credential(name.encode())
        self.source.put_activation(
            Activation(name, session.tenant, session.id, row.pack, row.project, workspace, False, secret)
        )

    def _activate_by_step(self, row: NamedActivation) -> None:
        self._activate(row.name, row)

    def _deactivate(self, name: str) -> None:
        row = self.source.activation(self.tenant_of(name), name)
        if row is not None:
            self.source.put_activation(row._replace(revoked=True))

    def _disable(self, name: str, *, disabled: bool) -> None:
        row = self.source.principal(self._principals[name].tenant, name)
        if row is not None:
            self.source.put_principal(row._replace(disabled=disabled))

    def _revoke_session(self, name: str) -> None:
        row = self.session(name)
        if row is not None:
            self.source.put_session(row._replace(revoked=True))

    def _route(self, name: str, row: RouteRow) -> None:
        tenant = self._principals[row.principal].tenant
        sink = _sink(tenant, row.principal, row.sink)
        if (tenant, sink.name) not in self._sinks:
            self._sinks[tenant, sink.name] = sink
            self.source.put_sink(sink)
        self.source.put_route(Route(name, tenant, row.principal, row.pack, row.ref, sink.name, None, None))

    def _hold(self, word: str | ProjectSink, reason: str | None) -> None:
        kind = _kind(word)
        for at, sink in self._sinks.items():
            if sink.kind == kind:
                held = self._sinks[at] = sink._replace(held=reason)
                self.source.put_sink(held)

    def _remove(self, pack_id: str) -> None:
        for tenant in self.tenants:
            if self.source.revision(tenant, pack_id) is not None:
                self.source.drop_revision(tenant, pack_id)

    def _replace(self, source: PackSource, folder: Path) -> None:
        others = {name: one.pack for name, one in self.listed.items() if one.pack is not None}
        one = read_listed(source, folder, others)
        if one.pack is not None:
            self.listed[one.pack.pack_id] = one
        self.replaced.append(one)
        self._install_everywhere(one)

    def _holder(self, pair: str) -> Holder:
        """Return the consent that `PRINCIPAL/PACK` stands for: a connected pack connects its family (§1.4.family)."""
        name, _, pack_id = pair.partition("/")
        tenant, one = self._principals[name].tenant, self.listed.get(pack_id)
        if one is None or one.pack is None:
            return Holder(tenant, name, f"pack:{pack_id}")
        return holder_of(tenant, name, one.pack)

    def _pass(self, text: str) -> None:
        if not 0 <= self.now + span(text) < HORIZON:
            raise UsageError("clock", f"{text} leaves the years 1970 to 5138")
        self.now += span(text)


def _projects(given: dict[str, str], people: dict[str, Any]) -> dict[str, str]:
    """Return the tenant of each project: as given, else that of its first member."""
    found = dict(given)
    for person in people.values():
        for project in person.projects:
            found.setdefault(project, person.tenant)
    return found


def _shown(grant: Grant, now: Micros) -> tuple[str, str]:
    """Return what a grant is for, and its capability."""
    keys = "" if grant.keys is None else f" keys [{', '.join(grant.keys)}]"
    project = "" if grant.project is None else f" in project {grant.project}"
    ended = " (expired)" if grant.expires_at is not None and now >= grant.expires_at else ""
    return f"for {grant.pack_id}{keys}{project}{ended}", grant.capability


def _kind(word: str | ProjectSink) -> str:
    return f"project/{word.project}" if isinstance(word, ProjectSink) else word


def _sink(tenant: str, owner: str, word: str | ProjectSink) -> Sink:
    """Return the sink that a word stands for; `own` is one for each owner."""
    kind = _kind(word)
    if isinstance(word, ProjectSink):
        return Sink(tenant, kind, kind, "project", word.project, partitioned=False, workspace=False, held=None)
    if word == "own":
        return Sink(tenant, f"own/{owner}", kind, "principal", owner, partitioned=False, workspace=False, held=None)
    partitioned, workspace = word == "inbox", word == "workspace"
    return Sink(tenant, kind, kind, "tenant", None, partitioned=partitioned, workspace=workspace, held=None)
