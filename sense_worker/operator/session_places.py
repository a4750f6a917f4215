"""Where a session's secret may be written: nobody's file is lost, and no folder appears where none was (DESIGN §3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from runtime_core.errors import Conflict, UsageError
from sense_worker.operator.acting import SessionFile, file_stands, read_session
from sense_worker.storage.schema import SESSION

if TYPE_CHECKING:
    from pathlib import Path

    from sense_worker.operator.desk import Change

_WAY_OUT = "--force replaces it; or name another place"


def place_free(change: Change, home: Path, place: Path | None, held: SessionFile, *, force: bool) -> None:
    """Raise UsageError where the file of a session may not be written, Conflict where it would replace another file.

    A file of the same session may be replaced, and of a session of the same principal that has ended; with `force`
    any regular file. Folders are made below the home alone.
    """
    if place is None:
        return
    if not file_stands(place):
        if not place.parent.exists() and home not in place.parents:
            raise UsageError(str(place.parent), "there is no such folder", "make it, or name another place")
        return
    if force:
        return
    try:
        there = read_session(place, private=False)  # whoever may read it: it is not to be lost
    except UsageError:
        raise Conflict(str(place), "is there already, and is no session file", _WAY_OUT) from None
    same = (there.tenant, there.session_id) == (held.tenant, held.session_id)
    if not same and not _ended(change, there, held):
        raise Conflict(str(place), f"holds session {there.session_id}", _WAY_OUT)


def _ended(change: Change, there: SessionFile, held: SessionFile) -> bool:
    """Tell whether a file is of a session of the same principal, by its row, that has ended."""
    s = SESSION.c
    row = change.one(sa.select(SESSION).where(s.tenant == held.tenant, s.id == there.session_id))
    if row is None or there.tenant != held.tenant or row.principal != held.principal:
        return False
    return row.revoked_at is not None or row.expires_at <= change.now
