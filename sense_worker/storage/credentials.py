"""Kept credentials as rows: for whom one is kept, under which hub, and its sealed document (DESIGN §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from sense_worker.storage.schema import CREDENTIAL

if TYPE_CHECKING:
    from runtime_core.binding import Holder

_C = CREDENTIAL.c
_KEEP = sa.text(
    "INSERT INTO sense_credential (tenant, principal, hub, consent, identity, fields, kept_at)"
    " VALUES (:tenant, :principal, :hub, :consent, :identity, :fields, :kept_at)"
    " ON CONFLICT (tenant, principal, hub, consent) DO UPDATE"
    " SET identity = excluded.identity, fields = excluded.fields, kept_at = excluded.kept_at"
)


class KeptRow(NamedTuple):
    """What stands in a row."""

    identity: str
    sealed: bytes


def find(connection: sa.Connection, holder: Holder, hub: str) -> KeptRow | None:
    """Return the row of a holder."""
    row = connection.execute(sa.select(_C.identity, _C.fields).where(*_of(holder, hub))).first()
    return None if row is None else KeptRow(row.identity, bytes(row.fields))


def keep(connection: sa.Connection, holder: Holder, hub: str, row: KeptRow, now: int) -> None:
    """Put a row in place of the one before."""
    values = {"hub": hub, "identity": row.identity, "fields": row.sealed, "kept_at": now}
    connection.execute(_KEEP, holder._asdict() | values)


def remove(connection: sa.Connection, holder: Holder, hub: str) -> None:
    """Remove the row of a holder; without one nothing happens."""
    connection.execute(sa.delete(CREDENTIAL).where(*_of(holder, hub)))


def is_live(connection: sa.Connection, tenant: str, consent: str) -> bool:
    """Tell whether any principal of the tenant has a credential under a consent, in whichever hub (§1.4.family)."""
    where = (_C.tenant == tenant, _C.consent == consent)
    return connection.execute(sa.select(_C.principal).where(*where).limit(1)).first() is not None


def _of(holder: Holder, hub: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        _C.tenant == holder.tenant,
        _C.principal == holder.principal,
        _C.consent == holder.consent,
        _C.hub == hub,
    )
