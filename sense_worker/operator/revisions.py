"""Stored revisions of packs, read again (DESIGN §3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runtime_core.errors import PackError
from sense_worker.storage.schema import REVISION

if TYPE_CHECKING:
    from runtime_core.pack import Pack, PackFiles


def newest_pack(connection: sa.Connection, tenant: str, pack_id: str) -> Pack | None:
    """Return the newest revision of a pack, in force or not; None where there is none that this release accepts."""
    r = REVISION.c
    query = sa.select(REVISION).where(r.tenant == tenant, r.pack_id == pack_id).order_by(r.generation.desc()).limit(1)
    row = connection.execute(query).first()
    return None if row is None else readable(row)


def files_of(row: Any) -> PackFiles:
    """Return the three files of a stored revision."""
    from runtime_core.pack import PackFiles  # late, as in `storage.authority`

    return PackFiles(row.surface, row.policy, row.harness)


def readable(row: Any) -> Pack | None:
    """Return the pack of a stored revision, or None where this release no longer accepts it."""
    from runtime_core.pack import read_pack

    try:
        return read_pack(*files_of(row))
    except PackError:
        return None
