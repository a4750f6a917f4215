"""The acting session: read from its file, checked afresh in the transaction of every change (§9.1.2, DESIGN §3)."""

from __future__ import annotations

import hmac
import json
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from runtime_core.errors import Denied, DoorError, UsageError
from runtime_core.strict_json import parse_object
from sense_worker.storage.authority import credential
from sense_worker.storage.schema import PRINCIPAL, SESSION

if TYPE_CHECKING:
    from pathlib import Path

    from sense_worker.vault import Vault

FILE_LIMIT = 65_536
_WAY_OUT = "run `sense-worker init`, or set SENSE_SESSION_FILE to a session's file"


class Acting(NamedTuple):
    """Who acts: a session, its principal and tenant."""

    tenant: str
    principal: str
    session_id: str
    operator: bool


class SessionFile(NamedTuple):
    """A session as its holder has it."""

    tenant: str
    principal: str
    session_id: str
    secret: str

    def write(self, path: Path) -> None:
        """Write the file, 0600, whole or not at all."""
        facts = {"v": 1, **self._asdict()}
        write_private(path, json.dumps(facts, indent=2) + "\n")


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone may read; replaced in one step, so that no reader sees half of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UsageError(str(path), f"cannot be written: {error.strerror}") from error


def read_session(path: Path) -> SessionFile:
    """Read a session file; raises UsageError naming the place and the way out."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(str(path), "is no file", _WAY_OUT)
            raw = file.read(FILE_LIMIT + 1)
        facts = parse_object(raw, limit=FILE_LIMIT, what=str(path))
    except FileNotFoundError:
        raise UsageError(str(path), "there is no session file", _WAY_OUT) from None
    except OSError as error:
        raise UsageError(str(path), f"cannot be read: {error.strerror}", _WAY_OUT) from None
    except DoorError as error:
        raise UsageError(error.place, error.reason, _WAY_OUT) from None
    values = [facts.get(name) for name in SessionFile._fields]
    if facts.get("v") != 1 or not all(isinstance(value, str) and value for value in values):
        raise UsageError(str(path), "is no session file", _WAY_OUT)
    return SessionFile(*(str(value) for value in values))


def authenticate(connection: sa.Connection, vault: Vault, held: SessionFile, now: int) -> Acting:
    """Return who the session is now. Raises UsageError for one unknown or wrong, Denied for one that no longer stands.

    One text for an unknown id and a wrong secret, so that neither can be told from the other.
    """
    s, p = SESSION.c, PRINCIPAL.c
    row = connection.execute(sa.select(SESSION).where(s.tenant == held.tenant, s.id == held.session_id)).first()
    live = credential(vault, row).live(now) if row is not None else ()
    if row is None or not any(hmac.compare_digest(secret, held.secret.encode()) for secret in live):
        raise UsageError("session", "is unknown here", _WAY_OUT)
    if row.revoked_at is not None:
        raise Denied("denied: session revoked")
    if row.expires_at <= now:
        raise Denied("denied: session expired")
    who = connection.execute(
        sa.select(p.operator, p.disabled_at).where(p.tenant == held.tenant, p.id == row.principal)
    ).first()
    if who is None or who.disabled_at is not None:
        raise Denied("denied: principal disabled")
    return Acting(held.tenant, row.principal, row.id, bool(who.operator))
