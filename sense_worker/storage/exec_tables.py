"""The tables of Execute: requests with their results, and kept credentials (DESIGN §§5, 8, 9)."""

from __future__ import annotations

from sqlalchemy import Column, Index, LargeBinary, SmallInteger, Text, text
from sqlmodel import Field, SQLModel

from sense_worker.storage.tables import moment

_OPEN = "state IN ('pending', 'running')"


class ExecRow(SQLModel, table=True):
    """One request. `sealed` and `reply` are Fernet tokens: neither args nor results stand here in clear."""

    __tablename__ = "sense_exec"
    __table_args__ = (
        Index("sense_exec_due", "lane", "due_at", sqlite_where=text(_OPEN), postgresql_where=text(_OPEN)),
        Index(
            "sense_exec_key",
            "tenant",
            "principal",
            "idempotency_key",
            unique=True,
            sqlite_where=text("idempotency_key IS NOT NULL"),
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
        Index("sense_exec_recent", "tenant", "accepted_at"),
    )

    id: bytes = Field(sa_column=Column(LargeBinary(16), primary_key=True))
    tenant: str
    session_id: str
    principal: str
    project: str | None = None
    message_id: str
    signed_at: str
    """As on the wire: request and reply are bound to its text."""
    idempotency_key: str | None = None
    request_hash: bytes = Field(sa_column=Column(LargeBinary(32), nullable=False))
    lane: str
    pack_id: str
    verb_key: str
    sealed: bytes | None = Field(default=None, sa_column=Column(LargeBinary, nullable=True))
    """The plain request; null once it is done."""
    state: str
    write: bool = False
    """A write has begun, or is about to: it is never run again."""
    alias_of: bytes | None = Field(default=None, sa_column=Column(LargeBinary(16), nullable=True, index=True))
    """The request whose result this one waits for: it came later, under the same idempotency key."""
    attempt: int = Field(default=0, sa_column=Column(SmallInteger, nullable=False, server_default=text("0")))
    lease: str | None = None
    due_at: int = Field(sa_column=moment())
    """When it may be claimed; while `running`, when the lease runs out."""
    accepted_at: int = Field(sa_column=moment())
    deadline_at: int = Field(sa_column=moment())
    ok: bool | None = None
    error: str | None = Field(default=None, sa_column=Column(Text, nullable=True))
    reply: bytes | None = Field(default=None, sa_column=Column(LargeBinary, nullable=True))
    """The result envelope; null before it is done, and after its time is over."""
    settled_at: int | None = Field(default=None, sa_column=moment(nullable=True))


class CredentialRow(SQLModel, table=True):
    """A principal's credential for one consent, as the table-backed hub keeps it; `fields` is a Fernet token."""

    __tablename__ = "sense_credential"

    tenant: str = Field(primary_key=True)
    principal: str = Field(primary_key=True)
    hub: str = Field(primary_key=True)
    consent: str = Field(primary_key=True)
    identity: str
    fields: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    kept_at: int = Field(sa_column=moment())
