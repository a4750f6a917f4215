"""Grants: who may cause which effect (§9.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runtime_core.errors import REQUIRES_OPERATOR, Denied, NotFound, UsageError
from runtime_core.grants import ANY_PACK, Capability
from sense_worker.operator.desk import Desk, know_principal, need_principal, need_project, new_id
from sense_worker.operator.names import capability_of, end_of, keys_of, pack_name
from sense_worker.operator.views import GrantView
from sense_worker.storage.schema import GRANT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sense_worker.operator.desk import Change

PROJECT_AXES = frozenset({Capability.VERB_EXEC_READ, Capability.VERB_EXEC_WRITE, Capability.SENSE_ENABLE})
"""Axes whose effects have a land, and so may belong to a project."""


class Grants(Desk):
    """Adds and revokes grants; both need an operator and take effect at the next attempt."""

    def add_grant(
        self,
        principal: str,
        capability: str,
        *,
        pack: str = ANY_PACK,
        keys: Sequence[str] | None = None,
        project: str | None = None,
        expires_in_s: float | None = None,
    ) -> GrantView:
        """Add a grant; an equal one that stands is returned as it is. `keys` None is all, empty matches nothing.

        Refused: a pattern, an unknown capability, an elevation without pack or end, a project for an axis without
        land. Raises NotFound for an unknown principal or project. A pack or key that is not there may come: `warnings`
        of the answer names it.
        """
        axis = capability_of(capability)
        pack_name(pack, any_pack=True)
        wanted = keys_of(keys)
        if axis is Capability.MOTHERSHIP_ELEVATE and (pack == ANY_PACK or expires_in_s is None):
            raise UsageError("mothership.elevate", "needs a pack and an end (§9.8)", "give --pack and --expires")
        if axis is Capability.PACK_INSTALL and wanted is not None:
            raise UsageError("keys", "a pack is installed whole", "leave the keys out")
        if project is not None and axis not in PROJECT_AXES:
            raise UsageError("project", f"{axis} has no land, so no project", "leave the project out")
        with self._change("grant.add") as change:
            change.pack_id, change.project = pack, project
            need_principal(change, principal)
            if project is not None:
                need_project(change, project)
            expires_at = end_of(expires_in_s, change.now)
            row = {
                "tenant": change.acting.tenant,
                "principal": principal,
                "capability": axis.value,
                "pack_id": pack,
                "keys": wanted,
                "project": project,
            }
            warnings = self._warnings(change, axis, pack, wanted or ())
            equal = self._equal(change.connection, row)
            for there in equal:
                if there.expires_at is None and expires_at is None:
                    change.nothing = True
                    return replace(there, warnings=warnings)
            for there in equal:
                if there.expires_at is not None and there.expires_at <= change.now:  # hosts grant again and again
                    change.run(sa.delete(GRANT).where(GRANT.c.id == there.id))
            grant_id = new_id("grt")
            facts = {"created_by": change.acting.principal, "created_at": change.now, "expires_at": expires_at}
            change.run(sa.insert(GRANT).values(id=grant_id, **row, **facts))
            found = change.one(_COLUMNS.where(GRANT.c.id == grant_id))
            change.subject = _told(found)
        return replace(_view(found), warnings=warnings)

    ensure_grant = add_grant

    def list_grants(self, principal: str | None = None) -> list[GrantView]:
        """Return the tenant's grants (or one principal's) to an operator, else one's own. Raises Denied, NotFound."""
        g = GRANT.c
        with self._reading() as (connection, acting):
            if not acting.operator and principal not in (None, acting.principal):
                raise Denied(REQUIRES_OPERATOR.text())
            query = _COLUMNS.where(g.tenant == acting.tenant)
            who = principal if acting.operator else acting.principal
            if who is not None:
                query = query.where(g.principal == who)
            found = [_view(row) for row in connection.execute(query.order_by(g.principal, g.capability, g.id))]
            if not found and who is not None:
                know_principal(connection, acting.tenant, who)
            return found

    def revoke_grant(self, grant_id: str) -> GrantView:
        """Take a grant away. Raises NotFound."""
        g = GRANT.c
        with self._change("grant.revoke", grant_id) as change:
            where = (g.tenant == change.acting.tenant, g.id == grant_id)
            found = change.one(_COLUMNS.where(*where))
            if found is None:
                raise NotFound("grant", f"there is no {grant_id!r}", "see `sense-worker grant list`")
            change.pack_id, change.project, change.subject = found.pack_id, found.project, _told(found)
            change.run(sa.delete(GRANT).where(*where))
        return replace(_view(found), revoked_at=change.now)

    def _warnings(self, change: Change, axis: Capability, pack_id: str, keys: Sequence[str]) -> tuple[str, ...]:
        """Return what a grant names that is not there: it allows nothing until it is."""
        if pack_id == ANY_PACK or axis is Capability.PACK_INSTALL:
            return ()
        revision = self._source(change.connection).revision(change.acting.tenant, pack_id)
        if revision is None:
            return (f"pack {pack_id!r} is not installed; the grant allows nothing until it is",)
        senses = axis is Capability.SENSE_ENABLE
        there = sorted(revision.pack.triggers if senses else revision.pack.policy.verbs)
        what = "trigger" if senses else "command"
        return tuple(
            f"{key!r} is no {what} of {pack_id}; its {what}s: {', '.join(there) or 'none'}"
            for key in keys
            if key not in there
        )

    @staticmethod
    def _equal(connection: sa.Connection, row: dict[str, Any]) -> list[GrantView]:
        g = GRANT.c
        same = [g[name] == value for name, value in row.items() if name not in ("keys", "project")]
        query = _COLUMNS.where(*same, g.project.is_(None) if row["project"] is None else g.project == row["project"])
        return [_view(one) for one in connection.execute(query) if one.keys_ == row["keys"]]


_COLUMNS = sa.select(
    GRANT.c.id,
    GRANT.c.principal,
    GRANT.c.capability,
    GRANT.c.pack_id,
    GRANT.c["keys"].label("keys_"),
    GRANT.c.project,
    GRANT.c.created_by,
    GRANT.c.created_at,
    GRANT.c.expires_at,
)


def _told(row: Any) -> str:
    """Return what the audit says of a grant: its row may be gone when somebody asks."""
    keys = "" if row.keys_ is None else f" [{', '.join(row.keys_)}]"
    return f"{row.id} {row.principal} {row.capability} {row.pack_id}{keys}"


def _view(row: Any) -> GrantView:
    keys = None if row.keys_ is None else tuple(row.keys_)
    scope = (row.id, row.principal, row.capability, row.pack_id, keys, row.project)
    return GrantView(*scope, row.created_by, row.created_at, row.expires_at)
