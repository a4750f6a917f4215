"""Principals, their sessions, projects and memberships."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runtime_core.errors import Conflict, NotFound, UsageError
from sense_worker.operator.acting import Draft, SessionFile
from sense_worker.operator.activation_files import forget_files
from sense_worker.operator.desk import Desk, need_principal, need_project, new_id, new_secret
from sense_worker.operator.names import kind_of, lasting, plain_id
from sense_worker.operator.session_places import place_free
from sense_worker.operator.views import IssuedSession, PrincipalView, ProjectView, SessionView
from sense_worker.storage.schema import ACTIVATION, MEMBERSHIP, PRINCIPAL, PROJECT, SESSION

if TYPE_CHECKING:
    from pathlib import Path

from sense_worker.operator.desk import Change

DAY_S = 86_400.0


class Principals(Desk):
    """Who there is. All of it needs an operator, but for reading one's own."""

    def add_principal(self, name: str, *, kind: str = "human", operator: bool = False) -> PrincipalView:
        """Add a principal. The same again changes nothing; raises Conflict where it differs."""
        plain_id("principal", name), kind_of(kind)
        with self._change("principal.add", name) as change:
            there = self._principal(change, name)
            if there is not None:
                if (there.kind, there.operator) != (kind, operator):
                    raise Conflict("principal", f"{name!r} exists with another kind or operator flag")
                change.nothing = True
                return there
            change.subject = f"{name} {kind}{' operator' if operator else ''}"
            change.run(
                sa.insert(PRINCIPAL).values(
                    tenant=change.acting.tenant, id=name, kind=kind, operator=operator, created_at=change.now
                )
            )
            return PrincipalView(name, kind, operator, change.now, None)

    ensure_principal = add_principal

    def list_principals(self) -> list[PrincipalView]:
        """Return every principal of the tenant to an operator, else one's own."""
        p = PRINCIPAL.c
        with self._reading() as (connection, acting):
            query = sa.select(p.id, p.kind, p.operator, p.created_at, p.disabled_at).where(p.tenant == acting.tenant)
            if not acting.operator:
                query = query.where(p.id == acting.principal)
            return [PrincipalView(*row) for row in connection.execute(query.order_by(p.id))]

    def disable_principal(self, name: str) -> PrincipalView:
        """Disable a principal: its events are refused and its deliveries denied, from the next attempt on."""
        return self._set_disabled("principal.disable", name, disabled=True)

    def enable_principal(self, name: str) -> PrincipalView:
        """Enable a principal again; what was denied meanwhile stays denied."""
        return self._set_disabled("principal.enable", name, disabled=False)

    def create_session(
        self, principal: str, *, expires_in_s: float = DAY_S / 2, file: Path | None = None, force: bool = False
    ) -> IssuedSession:
        """Issue a session; with `file` its session file is written, 0600. The secret is told this once.

        What stands in the place is replaced where it is the file of a session of this principal that has ended; with
        `force` any regular file is. Raises NotFound for an unknown principal, Conflict for another file in the place,
        UsageError for an end that is none or a file that cannot be written.
        """
        with ExitStack() as drafts:
            with self._change("session.create") as change:
                need_principal(change, principal)
                session_id, secret, expires_at = new_id("ses"), new_secret(), lasting(expires_in_s, change.now)
                change.subject = f"{session_id} {principal}"
                held = SessionFile(change.acting.tenant, principal, session_id, secret)
                change.run(session_row(held, self.seal(secret), change.now, expires_at))
                # On the disk before the commit: a session whose secret is lost is not made.
                place_free(change, self.settings.home, file, held, force=force)
                written = [drafts.enter_context(Draft(one, held.text)) for one in (file,) if one is not None]
            for draft in written:
                draft.publish()
        place = None if file is None else str(file)
        return IssuedSession(session_id, held.tenant, principal, expires_at, place, secret)

    issue_session = create_session

    def list_sessions(self) -> list[SessionView]:
        """Return the tenant's sessions, the newest first, to an operator, else one's own."""
        s = SESSION.c
        with self._reading() as (connection, acting):
            query = sa.select(s.id, s.principal, s.created_at, s.expires_at, s.revoked_at)
            query = query.where(s.tenant == acting.tenant)
            if not acting.operator:
                query = query.where(s.principal == acting.principal)
            return [SessionView(*row) for row in connection.execute(query.order_by(s.created_at.desc(), s.id))]

    def revoke_session(self, session_id: str) -> SessionView:
        """Revoke a session: nothing more is accepted or delivered under it, or under its activations.

        The files of its activations on this host are removed: their secrets are good for nothing any more.
        """
        s, a = SESSION.c, ACTIVATION.c
        with self._change("session.revoke", session_id) as change:
            where = (s.tenant == change.acting.tenant, s.id == session_id)
            row = change.one(sa.select(s.id, s.principal, s.created_at, s.expires_at, s.revoked_at).where(*where))
            if row is None:
                raise NotFound("session", f"there is no {session_id!r}", "see `sense-worker session list`")
            change.nothing = row.revoked_at is not None
            if not change.nothing:
                change.run(sa.update(SESSION).where(*where).values(revoked_at=change.now))
            its = (a.tenant == change.acting.tenant, a.session_id == session_id)
            activations = change.connection.execute(sa.select(a.id, a.pack_id).where(*its)).all()
        forget_files(self.settings.home, session_id, [(str(one.id), str(one.pack_id)) for one in activations])
        return SessionView(row.id, row.principal, row.created_at, row.expires_at, row.revoked_at or change.now)

    def add_project(self, name: str) -> ProjectView:
        """Add a project. The same again changes nothing."""
        plain_id("project", name)
        with self._change("project.add", name) as change:
            change.project = name
            p = PROJECT.c
            there = change.one(sa.select(p.created_at).where(p.tenant == change.acting.tenant, p.id == name))
            if there is None:
                change.run(sa.insert(PROJECT).values(tenant=change.acting.tenant, id=name, created_at=change.now))
            else:
                change.nothing = True
            return self._project(change, name)

    ensure_project = add_project

    def add_member(self, project: str, principal: str) -> ProjectView:
        """Make a principal a member. The same again changes nothing."""
        m = MEMBERSHIP.c
        with self._change("project.add_member", f"{project}/{principal}") as change:
            change.project = project
            need_project(change, project)
            need_principal(change, principal)
            where = (m.tenant == change.acting.tenant, m.project == project, m.principal == principal)
            if change.one(sa.select(m.principal).where(*where)) is not None:
                change.nothing = True
            else:
                row = {"tenant": change.acting.tenant, "project": project, "principal": principal}
                change.run(sa.insert(MEMBERSHIP).values(**row, created_at=change.now))
            return self._project(change, project)

    ensure_member = add_member

    def remove_member(self, project: str, principal: str) -> ProjectView:
        """End a membership: nothing of the project is delivered to or from the principal any more."""
        m = MEMBERSHIP.c
        with self._change("project.remove_member", f"{project}/{principal}") as change:
            change.project = project
            need_project(change, project)
            where = (m.tenant == change.acting.tenant, m.project == project, m.principal == principal)
            if not change.run(sa.delete(MEMBERSHIP).where(*where)):
                raise NotFound("member", f"{principal!r} is none of {project!r}", "see `sense-worker project list`")
            return self._project(change, project)

    def list_projects(self) -> list[ProjectView]:
        """Return the tenant's projects with their members to an operator, else those one is a member of."""
        p, m = PROJECT.c, MEMBERSHIP.c
        with self._reading() as (connection, acting):
            members: dict[str, list[str]] = {}
            for project, principal in connection.execute(
                sa.select(m.project, m.principal).where(m.tenant == acting.tenant).order_by(m.principal)
            ):
                members.setdefault(project, []).append(principal)
            rows = connection.execute(
                sa.select(p.id, p.created_at).where(p.tenant == acting.tenant).order_by(p.id)
            ).all()
            return [
                ProjectView(name, tuple(members.get(name, ())), created_at)
                for name, created_at in rows
                if acting.operator or acting.principal in members.get(name, ())
            ]

    def _set_disabled(self, action: str, name: str, *, disabled: bool) -> PrincipalView:
        p = PRINCIPAL.c
        with self._change(action, name) as change:
            there = self._principal(change, name)
            if there is None:
                raise NotFound("principal", f"there is no {name!r}", "see `sense-worker principal list`")
            if disabled and name == change.acting.principal:
                raise UsageError("principal", f"{name!r} is who acts", "let another operator disable it")
            if (there.disabled_at is not None) == disabled:
                change.nothing = True
                return there
            at = change.now if disabled else None
            where = (p.tenant == change.acting.tenant, p.id == name)
            change.run(sa.update(PRINCIPAL).where(*where).values(disabled_at=at))
            return PrincipalView(name, there.kind, there.operator, there.created_at, at)

    @staticmethod
    def _principal(change: Change, name: str) -> PrincipalView | None:
        p = PRINCIPAL.c
        query = sa.select(p.id, p.kind, p.operator, p.created_at, p.disabled_at)
        row = change.one(query.where(p.tenant == change.acting.tenant, p.id == name))
        return None if row is None else PrincipalView(*row)

    @staticmethod
    def _project(change: Change, name: str) -> ProjectView:
        p, m = PROJECT.c, MEMBERSHIP.c
        tenant = change.acting.tenant
        created: Any = change.one(sa.select(p.created_at).where(p.tenant == tenant, p.id == name))
        members = change.connection.scalars(
            sa.select(m.principal).where(m.tenant == tenant, m.project == name).order_by(m.principal)
        )
        return ProjectView(name, tuple(members), int(created[0]))


def session_row(held: SessionFile, sealed: bytes, now: int, expires_at: int) -> sa.Insert:
    """Return the statement that inserts a session; `sealed` is its secret as it may stand in a row."""
    return sa.insert(SESSION).values(
        id=held.session_id,
        tenant=held.tenant,
        principal=held.principal,
        secret=sealed,
        previous_until=0,
        created_at=now,
        expires_at=expires_at,
    )
