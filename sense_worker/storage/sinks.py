"""Sink rows as the drain changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sense_worker.storage.authority import bump_authority, lock_authority
from sense_worker.storage.lanes import split_lane

if TYPE_CHECKING:
    import sqlalchemy as sa

    from sense_worker.storage.rows import Rows


def disable_sink(connection: sa.Connection, rows: Rows, lane: str, reason: str, now: int) -> None:
    """Disable the sink of a lane because it said stop; its deliveries are held until an operator resumes it.

    To be called before the transaction changes any other row (see `lock_authority`).
    """
    tenant, name = split_lane(lane)
    lock_authority(connection, tenant)
    changed = rows.execute(
        "UPDATE sense_sink SET disabled_at = ?, disabled_reason = ? WHERE tenant = ? AND name = ? "
        "AND disabled_at IS NULL",
        (now, reason, tenant, name),
    )
    if changed:
        bump_authority(connection, tenant)
