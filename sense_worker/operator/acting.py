"""The acting session: read from its file, checked afresh in the transaction of every change (§9.1.2, DESIGN §3)."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from runtime_core.errors import Denied, UsageError
from runtime_core.install import session_refusal
from sense_worker.session_file import (
    WAY_OUT,
    Draft,
    SessionFile,
    file_stands,
    held_session,
    read_session,
    write_private,
)
from sense_worker.storage.authority import credential
from sense_worker.storage.schema import PRINCIPAL, SESSION

if TYPE_CHECKING:
    from sense_worker.vault import Vault

__all__ = [
    "Acting",
    "Draft",
    "Identified",
    "SessionFile",
    "authenticate",
    "file_stands",
    "held_session",
    "identify",
    "read_session",
    "write_private",
]


class Acting(NamedTuple):
    """Who acts: a session, its principal and tenant."""

    tenant: str
    principal: str
    session_id: str
    operator: bool


class Identified(NamedTuple):
    """The session whose secret was shown, as its rows are now."""

    acting: Acting
    expires_at: int
    revoked: bool
    disabled: bool

    def check(self, now: int) -> None:
        """Raise Denied where it does not stand at `now`."""
        refusal = session_refusal(revoked=self.revoked, expires_at=self.expires_at, disabled=self.disabled, now=now)
        if refusal is not None:
            raise Denied(refusal.text())


def identify(connection: sa.Connection, vault: Vault, held: SessionFile, now: int) -> Identified:
    """Return whose session it is, by its rows and not by what the file says of it (§9.1.2). Raises UsageError.

    One text for an unknown id and a wrong secret, so that neither can be told from the other.
    """
    s, p = SESSION.c, PRINCIPAL.c
    own = sa.and_(p.tenant == s.tenant, p.id == s.principal)
    query = sa.select(SESSION, p.operator, p.disabled_at).join(PRINCIPAL, own)
    row = connection.execute(query.where(s.tenant == held.tenant, s.id == held.session_id)).first()
    live = () if row is None else credential(vault, row).live(now)
    if row is None or not any(hmac.compare_digest(secret, held.secret.encode()) for secret in live):
        raise UsageError("session", "is unknown here", WAY_OUT)
    acting = Acting(row.tenant, row.principal, row.id, bool(row.operator))
    return Identified(acting, row.expires_at, row.revoked_at is not None, row.disabled_at is not None)


def authenticate(connection: sa.Connection, vault: Vault, held: SessionFile, now: int) -> Acting:
    """Return who acts. Raises UsageError for a session that is unknown, Denied for one that no longer stands."""
    identified = identify(connection, vault, held, now)
    identified.check(now)
    return identified.acting
