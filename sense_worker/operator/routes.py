"""Routes: who wants which trigger events in which sink."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runtime_core.authority import Authority
from runtime_core.errors import REQUIRES_OPERATOR, Denied, NotFound, UsageError
from runtime_core.event import ANY_REF
from runtime_core.identity import Route
from sense_worker.filters import check_filter
from sense_worker.operator.desk import Desk, need_principal, need_project, need_sink, new_id
from sense_worker.operator.names import end_of, pack_name, ref_name
from sense_worker.operator.route_warnings import land_warnings
from sense_worker.operator.views import RouteView
from sense_worker.storage.lanes import lane_of
from sense_worker.storage.ledger import Ledger
from sense_worker.storage.schema import PACK, ROUTE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runtime_core.pack import Trigger
    from sense_worker.operator.desk import Change


class Routes(Desk):
    """A route needs its owner's session, or an operator's for another owner."""

    def add_route(
        self,
        pack: str,
        ref: str,
        sink: str,
        *,
        project: str | None = None,
        owner: str | None = None,
        expires_in_s: float | None = None,
        options: Mapping[str, object] | None = None,
        filter: str | None = None,  # noqa: A002 - the word of the row and of the command
    ) -> RouteView:
        """Add a route of one's own, or as an operator one of `owner`. An equal one that stands is returned as it is.

        `filter` is CEL over ref, subject, data and occurred_at; it cannot be changed later. Raises NotFound for a pack,
        ref, sink, project or owner that is not there, UsageError for a filter that is none, naming line and column.
        `warnings` of the answer names triggers whose every event the sink's audience or kind would have denied.
        """
        pack_name(pack), ref_name(ref)
        if filter is not None:
            check_filter(filter)
        if options:
            raise UsageError("options", "a route takes none", "leave them out")
        with self._change("route.add", operator=False) as change:
            owned_by = owner or change.acting.principal
            if owned_by != change.acting.principal:
                if not change.acting.operator:
                    raise Denied(REQUIRES_OPERATOR.text())
                need_principal(change, owned_by)
            change.pack_id, change.project = pack, project
            triggers = self._need_triggers(change, pack, ref)
            need_sink(change, sink)
            if project is not None:
                need_project(change, project)
            expires_at = end_of(expires_in_s, change.now)
            row = {"owner": owned_by, "pack_id": pack, "ref": ref, "sink": sink, "project": project, "filter": filter}
            route = Route("", change.acting.tenant, owned_by, pack, ref, sink, project, None, filter)
            authority = Authority(change.acting.tenant, 0, self._source(change.connection))
            warnings = tuple(land_warnings(authority, route, triggers))
            there = self._equal_route(change, row) if expires_at is None else None
            if there is not None:
                change.nothing = True
                return replace(RouteView(*there), warnings=warnings)
            route_id = new_id("rte")
            change.subject = f"{route_id} {owned_by} {ref} -> {sink}"
            facts = {"created_by": change.acting.principal, "created_at": change.now, "expires_at": expires_at}
            change.run(sa.insert(ROUTE).values(id=route_id, tenant=change.acting.tenant, options={}, **row, **facts))
            made = RouteView(*change.one(_ROUTE.where(ROUTE.c.id == route_id)))
        return replace(made, warnings=warnings)

    ensure_route = add_route

    def list_routes(self) -> list[RouteView]:
        """Return the tenant's standing routes to an operator, else one's own."""
        r = ROUTE.c
        with self._reading() as (connection, acting):
            query = _ROUTE.where(r.tenant == acting.tenant, r.removed_at.is_(None))
            if not acting.operator:
                query = query.where(r.owner == acting.principal)
            return [RouteView(*row) for row in connection.execute(query.order_by(r.pack_id, r.ref, r.owner, r.id))]

    def remove_route(self, route_id: str) -> RouteView:
        """Remove one's own route, an operator anyone's; what waits for it is cancelled."""
        r = ROUTE.c
        with self._change("route.remove", route_id, operator=False) as change:
            where = (r.tenant == change.acting.tenant, r.id == route_id, r.removed_at.is_(None))
            row = change.one(_ROUTE.where(*where))
            if row is None or not (change.acting.operator or row.owner == change.acting.principal):
                raise NotFound("route", f"there is no {route_id!r}", "see `sense-worker route list`")
            change.pack_id, change.project = row.pack_id, row.project
            change.run(sa.update(ROUTE).where(*where).values(removed_at=change.now))
            lane = lane_of(change.acting.tenant, row.sink)
            Ledger(self._database).cancel_route(change.connection, lane, route_id, change.now)
            return RouteView(*row)

    def _need_triggers(self, change: Change, pack_id: str, ref: str) -> Sequence[Trigger]:
        p = PACK.c
        where = (p.tenant == change.acting.tenant, p.pack_id == pack_id, p.generation.is_not(None))
        if change.one(sa.select(p.generation).where(*where)) is None:
            raise NotFound("pack", f"{pack_id!r} is not installed", "see `sense-worker pack list`")
        revision = self._source(change.connection).revision(change.acting.tenant, pack_id)
        if ref != ANY_REF and revision is not None and ref not in revision.pack.triggers:
            refs = ", ".join(sorted(revision.pack.triggers)) or "none"
            raise NotFound("ref", f"{ref!r} is no trigger of {pack_id}", f"its triggers: {refs}; or *")
        declared = () if revision is None else revision.pack.triggers.values()
        return [trigger for trigger in declared if ref in (ANY_REF, trigger.ref)]

    @staticmethod
    def _equal_route(change: Change, row: dict[str, Any]) -> Any:
        r = ROUTE.c
        same = [r[name].is_(None) if value is None else r[name] == value for name, value in row.items()]
        standing = (r.tenant == change.acting.tenant, r.removed_at.is_(None), r.expires_at.is_(None))
        return change.one(_ROUTE.where(*standing, *same))


_ROUTE: sa.Select[*tuple[Any, ...]] = sa.select(
    ROUTE.c.id,
    ROUTE.c.owner,
    ROUTE.c.pack_id,
    ROUTE.c.ref,
    ROUTE.c.sink,
    ROUTE.c.project,
    ROUTE.c.created_by,
    ROUTE.c.created_at,
    ROUTE.c.expires_at,
    ROUTE.c.filter,
)
