"""Rotation: a session or an activation gets a new secret, and the one before stays good for an overlap (DESIGN §3).

Two live secrets at most: a further rotation within an overlap ends the oldest at once. Without an overlap the one
before is dead when the call returns. What fails, a place that cannot be written or an audit that is away, changes
nothing.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runtime_core.errors import Conflict, NotFound
from sense_worker.operator.acting import Draft, SessionFile
from sense_worker.operator.activations import Activations
from sense_worker.operator.desk import new_secret
from sense_worker.operator.session_places import place_free
from sense_worker.operator.views import RotatedActivation, RotatedSession
from sense_worker.storage.schema import ACTIVATION, SESSION

if TYPE_CHECKING:
    from pathlib import Path

    from sense_worker.operator.desk import Change


class Rotation(Activations):
    """One's own credentials need nothing but one's session; an operator may rotate anyone's of the tenant."""

    def rotate_session(
        self, session_id: str, *, overlap_s: float | None = None, file: Path | None = None, force: bool = False
    ) -> RotatedSession:
        """Give a session a new secret; the one before stays good for `overlap_s` seconds (None: the setting).

        The new one is written, 0600, into `file`, and into the file in use where it is the acting session. Of another
        session without `file` it is told in the answer alone. Raises NotFound, Conflict for a session that has ended
        or a `file` that is another's (with `force` a regular file is replaced), UsageError for an overlap that is none
        or a file that cannot be written.
        """
        overlap = self._overlap_s(overlap_s)
        with ExitStack() as drafts:
            with self._change("session.rotate", session_id, operator=False) as change:
                row = self._session(change, session_id)
                held = SessionFile(row.tenant, row.principal, row.id, new_secret())
                ends_at = self._replace(change, SESSION, row, held.secret, overlap)
                own = self._session_file.path if session_id == change.acting.session_id else None
                place_free(change, self.settings.home, file, held, force=force)
                place_free(change, self.settings.home, own, held, force=False)
                places = [place for place in (file, own) if place is not None]
                written = [drafts.enter_context(Draft(place, held.text)) for place in places]
            for draft in written:
                draft.publish()
        self._follow(held, places)
        place = str(places[0]) if places else None
        return RotatedSession(row.id, row.tenant, row.principal, row.expires_at, ends_at, place, held.secret)

    def rotate_activation(self, activation_id: str, *, overlap_s: float | None = None) -> RotatedActivation:
        """Give an activation a new secret, and write its adapter's file; a running `Publisher` takes it up from there.

        The one before stays good for `overlap_s` seconds (None: the setting), judged at an entry's arrival. Raises
        NotFound, Conflict for one that was deactivated, UsageError for an overlap that is none or a file that cannot
        be written.
        """
        overlap = self._overlap_s(overlap_s)
        with ExitStack() as drafts:
            with self._change("activation.rotate", activation_id, operator=False) as change:
                row = self._theirs(change, activation_id)
                if row.revoked_at is not None:
                    raise Conflict("activation", f"{row.id} was deactivated", f"`sense-worker activate {row.pack_id}`")
                secret = new_secret()
                ends_at = self._replace(change, ACTIVATION, row, secret, overlap)
                draft = drafts.enter_context(Draft(self._file(row.id), self._text(row, row.principal, secret)))
            draft.publish()
        self._write_newest(row, row.principal, secret)
        return RotatedActivation(row.id, row.session_id, row.pack_id, row.project_id, str(self._file(row.id)), ends_at)

    @staticmethod
    def _session(change: Change, session_id: str) -> Any:
        """Return a session that stands: one's own, to an operator anyone's."""
        s, acting = SESSION.c, change.acting
        row = change.one(sa.select(SESSION).where(s.tenant == acting.tenant, s.id == session_id))
        if row is None or not (acting.operator or row.principal == acting.principal):
            raise NotFound("session", f"there is no {session_id!r}", "see `sense-worker session list`")
        if row.revoked_at is not None or row.expires_at <= change.now:
            how = "has expired" if row.revoked_at is None else "was revoked"
            raise Conflict("session", f"{session_id} {how}", "issue another: `sense-worker session create`")
        return row

    def _replace(self, change: Change, table: sa.TableClause, row: Any, secret: str, overlap_s: float) -> int | None:
        """Put the new secret into the row, the one before beside it while the overlap lasts; returns its end."""
        ends_at = change.now + int(overlap_s * 1e6) if overlap_s > 0 else None
        previous = None if ends_at is None else row.secret
        change.run(
            sa.update(table)
            .where(table.c.tenant == row.tenant, table.c.id == row.id)
            .values(secret=self.seal(secret), previous_secret=previous, previous_until=ends_at or 0)
        )
        change.subject = f"{row.id} {row.principal} overlap {overlap_s:g} s"
        return ends_at

    def _follow(self, held: SessionFile, places: list[Path]) -> None:
        """Write the files again where another rotation came in between: who writes last has looked last."""
        while places and (newest := self._secret_now(SESSION, held.tenant, held.session_id)) != held.secret:
            held = held._replace(secret=newest)
            for place in places:
                held.write(place)
