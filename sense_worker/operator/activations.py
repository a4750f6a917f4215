"""Activations: a pack on the acting session, and the file its adapter announces with (§1.6.activate)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runtime_core.errors import Conflict, NotFound, UsageError
from sense_worker.operator.acting import file_stands, write_private
from sense_worker.operator.activation_files import file_of, skill_of
from sense_worker.operator.desk import Desk, need_control_plane, new_id, new_secret
from sense_worker.operator.names import pack_name, plain_id
from sense_worker.operator.views import ActivationView, IssuedActivation
from sense_worker.storage.schema import ACTIVATION, SESSION

if TYPE_CHECKING:
    from pathlib import Path

    from sense_worker.operator.acting import Acting
    from sense_worker.operator.desk import Change


class Activations(Desk):
    """Needs nothing but one's own session; an operator may deactivate anyone's."""

    def activate(self, pack_id: str, *, project: str | None = None, workspace: Path | None = None) -> IssuedActivation:
        """Put an installed pack on the acting session, and write the adapter's file (0600) and SKILL.md.

        At most one stands per session, pack and project: the standing one is returned, its files written again. The
        project may exist nowhere: it is then nobody's. Raises NotFound for a pack that is not installed, Denied for a
        control-plane pack without an operator, UsageError for a workspace that is no folder, Conflict for another
        than the standing activation's.
        """
        pack_name(pack_id)
        if project is not None:
            plain_id("project", project)
        folder = None if workspace is None else _folder(workspace)
        with self._change("activate", operator=False) as change:
            change.pack_id, change.project = pack_id, project
            revision = self._source(change.connection).revision(change.acting.tenant, pack_id)
            if revision is None:
                raise NotFound("pack", f"{pack_id!r} is not installed", "see `sense-worker pack list`")
            need_control_plane(change, revision.pack.plane)
            row = self._standing(change, pack_id, project)
            if row is None:
                row = self._insert(change, pack_id, project, folder)
                change.subject = row.id
            else:
                change.nothing = True
                if folder is not None and row.workspace != folder:
                    raise Conflict("workspace", f"{row.id} stands with {row.workspace!r}", "deactivate it first")
            for place in (self._file(row.id), self._skill(row)):
                file_stands(place)  # what cannot be written is refused before the change
        return self._written(row, change.acting, revision.pack.harness)

    @staticmethod
    def _standing(change: Change, pack_id: str, project: str | None) -> Any:
        a = ACTIVATION.c
        same = a.project_id.is_(None) if project is None else a.project_id == project
        of_session = (a.tenant == change.acting.tenant, a.session_id == change.acting.session_id)
        return change.one(sa.select(ACTIVATION).where(*of_session, a.pack_id == pack_id, a.revoked_at.is_(None), same))

    def _insert(self, change: Change, pack_id: str, project: str | None, folder: str | None) -> Any:
        activation_id = new_id("act")
        change.run(
            sa.insert(ACTIVATION).values(
                id=activation_id,
                tenant=change.acting.tenant,
                session_id=change.acting.session_id,
                pack_id=pack_id,
                project_id=project,
                workspace=folder,
                secret=self.seal(new_secret()),
                previous_until=0,
                created_at=change.now,
            )
        )
        return change.one(sa.select(ACTIVATION).where(ACTIVATION.c.id == activation_id))

    def deactivate(self, activation_id: str) -> IssuedActivation:
        """End an activation: it announces nothing more, and what it announced is not delivered any more.

        SKILL.md goes with the session's last activation of the pack.
        """
        a = ACTIVATION.c
        with self._change("deactivate", activation_id, operator=False) as change:
            row = self._theirs(change, activation_id)
            at = row.revoked_at
            if at is None:
                at = change.now
                where = (a.tenant == change.acting.tenant, a.id == activation_id)
                change.run(sa.update(ACTIVATION).where(*where).values(revoked_at=at))
            else:
                change.nothing = True
            left = change.one(sa.select(a.id).where(*self._beside(row), a.revoked_at.is_(None)).limit(1))
        self._file(activation_id).unlink(missing_ok=True)
        if left is None:
            self._skill(row).unlink(missing_ok=True)
        return self._activation_view(row, at)

    def list_activations(self) -> list[ActivationView]:
        """Return the activations that were not deactivated, the newest first: one's own, an operator's tenant's."""
        a, s = ACTIVATION.c, SESSION.c
        with self._reading() as (connection, acting):
            now = self._database.now(connection)
            ends = sa.case((s.revoked_at.is_not(None), "revoked"), (s.expires_at <= now, "expired"), else_="stands")
            columns = (a.id, s.principal, a.session_id, a.pack_id, a.project_id, a.workspace, a.created_at, ends)
            query = sa.select(*columns).join(SESSION, s.id == a.session_id)
            query = query.where(a.tenant == acting.tenant, a.revoked_at.is_(None))
            if not acting.operator:
                query = query.where(s.principal == acting.principal)
            found = list(connection.execute(query.order_by(a.created_at.desc(), a.id)))
        return [ActivationView(*row, self._file_here(row.id)) for row in found]

    def _file_here(self, activation_id: str) -> str | None:
        file = self._file(activation_id)
        return str(file) if file.is_file() else None

    @staticmethod
    def _beside(row: Any) -> tuple[sa.ColumnElement[bool], ...]:
        """Name the activations of the same pack on the same session."""
        a = ACTIVATION.c
        return (a.tenant == row.tenant, a.session_id == row.session_id, a.pack_id == row.pack_id)

    @staticmethod
    def _theirs(change: Change, activation_id: str) -> Any:
        """Return an activation with its principal: one's own, to an operator anyone's. Raises NotFound."""
        a, s, acting = ACTIVATION.c, SESSION.c, change.acting
        query = sa.select(ACTIVATION, s.principal).join(SESSION, s.id == a.session_id)
        row = change.one(query.where(a.tenant == acting.tenant, a.id == activation_id))
        if row is None or not (acting.operator or row.principal == acting.principal):
            raise NotFound("activation", f"there is no {activation_id!r}", "see `sense-worker activations`")
        change.pack_id, change.project = row.pack_id, row.project_id
        return row

    def _written(self, row: Any, acting: Acting, harness: bytes) -> IssuedActivation:
        secret = self._vault.open(row.secret).decode()
        write_private(self._file(row.id), self._text(row, acting.principal, secret))
        self._write_newest(row, acting.principal, secret)
        write_private(self._skill(row), harness.decode())
        return self._activation_view(row, None)

    def _text(self, row: Any, principal: str, secret: str) -> str:
        """Return the content of the adapter's file."""
        facts = {"v": 1, "tenant": row.tenant, "principal": principal, "activation_id": row.id, "pack_id": row.pack_id}
        return json.dumps({**facts, "secret": secret, "redis_url": self._redis_url()}, indent=2) + "\n"

    def _write_newest(self, row: Any, principal: str, secret: str) -> None:
        """Write the adapter's file again where `secret`, which it holds, has been replaced since.

        Who writes last has then looked last: the file never stays behind a rotation that came in between.
        """
        while (newest := self._secret_now(ACTIVATION, row.tenant, row.id)) != secret:
            secret = newest
            write_private(self._file(row.id), self._text(row, principal, secret))

    def _secret_now(self, table: sa.TableClause, tenant: str, credential_id: str) -> str:
        """Return the secret of a session or activation as its row is now."""
        with self._database.read() as connection:
            where = (table.c.tenant == tenant, table.c.id == credential_id)
            return self._vault.open(connection.execute(sa.select(table.c.secret).where(*where)).one()[0]).decode()

    def _file(self, activation_id: str) -> Path:
        return file_of(self.settings.home, activation_id)

    def _skill(self, row: Any) -> Path:
        return skill_of(self.settings.home, str(row.session_id), str(row.pack_id))

    def _activation_view(self, row: Any, revoked_at: int | None) -> IssuedActivation:
        files = (str(self._file(row.id)), str(self._skill(row)))
        scope = (row.id, row.session_id, row.pack_id, row.project_id, row.workspace)
        return IssuedActivation(*scope, *files, row.created_at, revoked_at)


def _folder(workspace: Path) -> str:
    """Return the folder that a path leads to now: a link in it cannot be turned elsewhere later. Raises UsageError."""
    try:
        folder = workspace.resolve(strict=True)
        if not workspace.is_absolute() or not folder.is_dir() or not str(folder).isprintable():
            raise UsageError("workspace", f"{str(workspace)!r} is no absolute folder", "name a folder that exists")
    except (OSError, ValueError, RuntimeError):
        raise UsageError("workspace", f"{str(workspace)!r} cannot be found", "name a folder that exists") from None
    return str(folder)
