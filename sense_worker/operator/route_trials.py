"""Which recorded events a route would match, and why not the others. Nothing is delivered or changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from runtime_core.authority import Authority
from runtime_core.errors import PACK_NOT_INSTALLED, REQUIRES_OPERATOR, TRIGGER_NOT_DECLARED, Denied, NotFound
from runtime_core.event import ANY_REF, parse_body
from runtime_core.identity import Route
from runtime_core.pipeline import Facts
from sense_worker.filters import Filtering, check_filter
from sense_worker.intake.candidates import Announced, refusal
from sense_worker.operator.desk import Desk, know_principal
from sense_worker.operator.names import pack_name, ref_name, row_limit
from sense_worker.storage.authority import versions
from sense_worker.storage.schema import DELIVERY, EVENT, ROUTE

if TYPE_CHECKING:
    from sense_worker.operator.acting import Acting

OTHER_PROJECT = "another project"
"""A route with a project does not match events of others, or of none."""
_PAGE = 100
"""Events in memory at a time; a body has up to 256 KiB."""


@dataclass(frozen=True, slots=True)
class TrialView:
    """One recorded event, and whether a route would match it."""

    event_id: str
    ref: str
    subject: str | None
    publisher: str
    project: str | None
    accepted_at: int
    matches: bool
    reason: str | None
    """Why not: `filter false`, `another project`, a filter's error, or the text of a candidate's refusal."""


class _Wish(NamedTuple):
    """What of a route decides whether it matches."""

    owner: str
    pack_id: str
    ref: str
    project: str | None
    filter: str | None


class RouteTrials(Desk):
    """An operator tries a route on all of the tenant's events, anyone else on those one published or had routed."""

    def try_route(
        self,
        route_id: str,
        *,
        filter: str | None = None,  # noqa: A002 - the word of the row and of the command
        limit: int = 50,
    ) -> list[TrialView]:
        """Try a route that stands, one's own or an operator anyone's, on the newest events of its trigger.

        `filter` stands in the place of its own. Raises NotFound, and UsageError for a filter that is none.
        """
        r = ROUTE.c
        if filter is not None:
            check_filter(filter)
        with self._reading(paged=True) as (connection, acting):
            query = sa.select(r.owner, r.pack_id, r.ref, r.project, r["filter"])
            query = query.where(r.tenant == acting.tenant, r.id == route_id, r.removed_at.is_(None))
            row = connection.execute(query).first()
            if row is None or not (acting.operator or row.owner == acting.principal):
                raise NotFound("route", f"there is no {route_id!r}", "see `sense-worker route list`")
            wish = _Wish(*row)
            return self._try(connection, acting, wish if filter is None else wish._replace(filter=filter), limit)

    def try_new_route(
        self,
        pack: str,
        ref: str,
        *,
        project: str | None = None,
        owner: str | None = None,
        filter: str | None = None,  # noqa: A002 - the word of the row and of the command
        limit: int = 50,
    ) -> list[TrialView]:
        """Try a route that is not made yet, one's own or as an operator one of `owner`.

        Raises UsageError for a filter that is none, Denied, and NotFound for an owner that is not there.
        """
        wish = _Wish(owner or "", pack_name(pack), ref_name(ref), project, filter)
        if filter is not None:
            check_filter(filter)
        with self._reading(paged=True) as (connection, acting):
            if owner not in (None, acting.principal):
                if not acting.operator:
                    raise Denied(REQUIRES_OPERATOR.text())
                know_principal(connection, acting.tenant, wish.owner)
            return self._try(connection, acting, wish._replace(owner=owner or acting.principal), limit)

    def _try(self, connection: sa.Connection, acting: Acting, wish: _Wish, limit: int) -> list[TrialView]:
        version = versions(connection, [acting.tenant], lock=False)[acting.tenant]
        authority = Authority(acting.tenant, version, self._source(connection))
        now = self._database.now(connection)
        found = connection.execute(_events(acting, wish).limit(row_limit(limit)).execution_options(yield_per=_PAGE))
        return [_trial(row, _why_not(authority, wish, row, now)) for row in found]


def _events(acting: Acting, wish: _Wish) -> sa.Select[Any]:
    """Select the events of the wish's trigger that the acting principal may know of, the newest first."""
    e, d = EVENT.c, DELIVERY.c
    query = sa.select(EVENT).where(e.tenant == acting.tenant, e.pack_id == wish.pack_id)
    if wish.ref != ANY_REF:
        query = query.where(e.ref == wish.ref)
    if not acting.operator:
        routed = sa.exists().where(d.event_id == e.id, d.owner == acting.principal)
        query = query.where(sa.or_(e.publisher == acting.principal, routed))
    return query.order_by(e.accepted_at.desc(), e.id)


def _why_not(authority: Authority, wish: _Wish, row: Any, now: int) -> str | None:
    """Tell why a route would not match an event by what stands now, None where it would; as intake chooses."""
    activation = authority.activation(row.activation_id)
    revision = authority.revision(row.pack_id)
    trigger = None if revision is None else revision.pack.triggers.get(row.ref)
    if wish.project is not None and wish.project != row.project:
        return OTHER_PROJECT
    if revision is None:
        return PACK_NOT_INSTALLED.text(row.pack_id)
    if trigger is None or activation is None:
        return TRIGGER_NOT_DECLARED.text(row.ref)
    body = bytes(row.body)
    facts = Facts(bytes(row.id), authority.tenant, row.pack_id, row.ref, row.activation_id, row.publisher)
    seen = Filtering(lambda: parse_body(body)._replace(occurred_at=row.occurred_at), len(body))
    route = Route("", authority.tenant, wish.owner, wish.pack_id, wish.ref, "", wish.project, None, wish.filter)
    reason = refusal(Announced(authority, activation, facts, trigger.land, now, seen), route)
    return None if reason is None else reason.text


def _trial(row: Any, reason: str | None) -> TrialView:
    shown = (row.ref, row.subject, row.publisher, row.project, row.accepted_at)
    return TrialView(bytes(row.id).hex(), *shown, matches=reason is None, reason=reason)
