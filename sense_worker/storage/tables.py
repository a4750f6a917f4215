"""The tables, as SQLModel (DESIGN §§3, 6, 9).

Every moment is a BIGINT of microseconds since the epoch, UTC: one type that both databases store, compare and add to
alike, and that the hot paths insert without conversion. Secrets and secret options are Fernet tokens.
"""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Index, LargeBinary, SmallInteger, Text, text
from sqlmodel import Field, SQLModel


def moment(*, nullable: bool = False, default: int | None = None) -> Column[int]:
    """Return a column of microseconds since the epoch."""
    return Column(BigInteger, nullable=nullable, server_default=None if default is None else text(str(default)))


class Tenant(SQLModel, table=True):
    """A tenant and its authority version, bumped in the transaction of every change to who may do what."""

    __tablename__ = "sense_tenant"

    id: str = Field(primary_key=True)
    authority_version: int = Field(default=1, sa_type=BigInteger)
    created_at: int = Field(sa_column=moment())


class PrincipalRow(SQLModel, table=True):
    """A principal of one tenant; the same id in another tenant is another row (DESIGN §3)."""

    __tablename__ = "sense_principal"

    tenant: str = Field(primary_key=True, foreign_key="sense_tenant.id")
    id: str = Field(primary_key=True)
    kind: str
    operator: bool = False
    created_at: int = Field(sa_column=moment())
    disabled_at: int | None = Field(default=None, sa_column=moment(nullable=True))


class ProjectRow(SQLModel, table=True):
    """A project of one tenant."""

    __tablename__ = "sense_project"

    tenant: str = Field(primary_key=True, foreign_key="sense_tenant.id")
    id: str = Field(primary_key=True)
    created_at: int = Field(sa_column=moment())


class Membership(SQLModel, table=True):
    """The only truth about who is in a project."""

    __tablename__ = "sense_membership"

    tenant: str = Field(primary_key=True)
    project: str = Field(primary_key=True)
    principal: str = Field(primary_key=True)
    created_at: int = Field(sa_column=moment())


class SessionRow(SQLModel, table=True):
    """A session; `secret` and `previous_secret` are Fernet tokens."""

    __tablename__ = "sense_session"

    id: str = Field(primary_key=True)
    tenant: str = Field(index=True)
    principal: str
    secret: bytes
    previous_secret: bytes | None = None
    previous_until: int = Field(default=0, sa_column=moment(default=0))
    created_at: int = Field(sa_column=moment())
    expires_at: int = Field(sa_column=moment())
    revoked_at: int | None = Field(default=None, sa_column=moment(nullable=True))


class ActivationRow(SQLModel, table=True):
    """A pack on a session; at most one that stands per (session, pack, project)."""

    __tablename__ = "sense_activation"

    id: str = Field(primary_key=True)
    tenant: str = Field(index=True)
    session_id: str = Field(foreign_key="sense_session.id", index=True)
    pack_id: str
    project_id: str | None = None
    workspace: str | None = None
    secret: bytes
    previous_secret: bytes | None = None
    previous_until: int = Field(default=0, sa_column=moment(default=0))
    created_at: int = Field(sa_column=moment())
    revoked_at: int | None = Field(default=None, sa_column=moment(nullable=True))


Index(
    "sense_activation_standing",
    ActivationRow.__table__.c.session_id,  # type: ignore[attr-defined]
    ActivationRow.__table__.c.pack_id,  # type: ignore[attr-defined]
    text("coalesce(project_id, '')"),
    unique=True,
    sqlite_where=text("revoked_at IS NULL"),
    postgresql_where=text("revoked_at IS NULL"),
)


class GrantRow(SQLModel, table=True):
    """Who may cause which effect; `keys` null means all, `[]` matches nothing (§9.4.1)."""

    __tablename__ = "sense_grant"
    __table_args__ = (Index("sense_grant_principal", "tenant", "principal"),)

    id: str = Field(primary_key=True)
    tenant: str
    principal: str
    capability: str
    pack_id: str
    keys: list[str] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True), nullable=True))
    project: str | None = None
    created_by: str
    created_at: int = Field(sa_column=moment())
    expires_at: int | None = Field(default=None, sa_column=moment(nullable=True))


class PackRow(SQLModel, table=True):
    """Which revision of a pack is in force; `generation` null: it was removed."""

    __tablename__ = "sense_pack"

    tenant: str = Field(primary_key=True)
    pack_id: str = Field(primary_key=True)
    generation: int | None = None
    last_generation: int


class PackRevisionRow(SQLModel, table=True):
    """One immutable revision: what every worker on every host reads (DESIGN §3)."""

    __tablename__ = "sense_pack_revision"

    tenant: str = Field(primary_key=True)
    pack_id: str = Field(primary_key=True)
    generation: int = Field(primary_key=True)
    digest: str
    surface: bytes
    policy: bytes
    harness: bytes
    allowed_bins: dict[str, str] = Field(sa_column=Column(JSON, nullable=False))
    installed_by: str
    installed_at: int = Field(sa_column=moment())


class SinkRow(SQLModel, table=True):
    """A sink of one tenant. `options` is a Fernet token over the JSON of the validated options."""

    __tablename__ = "sense_sink"

    tenant: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    kind: str
    options: bytes
    audience: str
    audience_id: str | None = None
    created_at: int = Field(sa_column=moment())
    paused_at: int | None = Field(default=None, sa_column=moment(nullable=True))
    disabled_at: int | None = Field(default=None, sa_column=moment(nullable=True))
    disabled_reason: str | None = None


class RouteRow(SQLModel, table=True):
    """A principal's wish to have a ref of a pack in a sink; stands until removed or expired.

    `filter` is CEL; it never changes while the route stands.
    """

    __tablename__ = "sense_route"
    __table_args__ = (Index("sense_route_match", "tenant", "pack_id", "ref"),)

    id: str = Field(primary_key=True)
    tenant: str
    owner: str
    pack_id: str
    ref: str
    sink: str
    project: str | None = None
    options: dict[str, object] = Field(sa_column=Column(JSON, nullable=False))
    created_by: str
    created_at: int = Field(sa_column=moment())
    expires_at: int | None = Field(default=None, sa_column=moment(nullable=True))
    removed_at: int | None = Field(default=None, sa_column=moment(nullable=True))
    filter: str | None = Field(default=None, sa_column=Column(Text, nullable=True))


class EventRow(SQLModel, table=True):
    """An accepted event. `id` is unique by (tenant, publisher, pack, message id); `body` is kept byte for byte.

    `receipt` says why there is no Delivery where there is none: JSON of text to count (`{"no route": 1}`); where owners
    may know the text, to an object of owner to count (`{"filter error: no such key: n": {"ana": 1}}`).
    `unfinished_land` is null when every candidate route has its row. While a fan-out of several transactions is under
    way it is the land that chooses the rest: the one under which the event was accepted (DESIGN §6.3).
    """

    __tablename__ = "sense_event"
    __table_args__ = (
        Index("sense_event_recent", "tenant", "accepted_at"),
        Index(
            "sense_event_unfinished",
            "accepted_at",
            sqlite_where=text("unfinished_land IS NOT NULL"),
            postgresql_where=text("unfinished_land IS NOT NULL"),
        ),
    )

    id: bytes = Field(sa_column=Column(LargeBinary(16), primary_key=True))
    tenant: str
    pack_id: str
    ref: str
    activation_id: str
    publisher: str
    message_id: str
    project: str | None = None
    subject: str | None = Field(default=None, sa_column=Column(Text, nullable=True))
    occurred_at: str
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    body_digest: bytes = Field(sa_column=Column(LargeBinary(32), nullable=False))
    stream_id: str
    generation: int
    digest: str
    traceparent: str | None = None
    signed_at: int = Field(sa_column=moment())
    accepted_at: int = Field(sa_column=moment())
    receipt: str | None = Field(default=None, sa_column=Column(Text, nullable=True))
    unfinished_land: str | None = None
    repeats: int = Field(default=0, sa_column=Column(SmallInteger, nullable=False, server_default=text("0")))
    last_repeat: str | None = None
    """Stream id of the last repeat, so that its redelivery is not counted again."""


_CLAIMABLE = "state IN ('pending', 'retrying', 'delivering', 'held')"


class DeliveryRow(SQLModel, table=True):
    """One event for one route: the row is the truth, Celery only rings for it (DESIGN §6)."""

    __tablename__ = "sense_delivery"
    __table_args__ = (
        Index(
            "sense_delivery_due",
            "lane",
            "due_at",
            sqlite_where=text(_CLAIMABLE),
            postgresql_where=text(_CLAIMABLE),
        ),
    )

    event_id: bytes = Field(sa_column=Column(LargeBinary(16), primary_key=True))
    route_id: str = Field(primary_key=True)
    tenant: str
    lane: str
    """`<tenant>/<sink>`."""
    owner: str
    state: str
    attempt: int = Field(default=0, sa_column=Column(SmallInteger, nullable=False, server_default=text("0")))
    crashes: int = Field(default=0, sa_column=Column(SmallInteger, nullable=False, server_default=text("0")))
    alone: bool = False
    """The running attempt was claimed by itself: only then does its death count (DESIGN §6.5)."""
    due_at: int = Field(sa_column=moment())
    """When it may be claimed; while `delivering`, when the lease runs out."""
    lease: str | None = None
    reason: str | None = Field(default=None, sa_column=Column(Text, nullable=True))
    step: str | None = None
    grant_id: str | None = None
    digest: str | None = None
    """Of the pack revision that judged the last attempt."""
    receipt: str | None = Field(default=None, sa_column=Column(Text, nullable=True))
    created_at: int = Field(sa_column=moment())
    settled_at: int | None = Field(default=None, sa_column=moment(nullable=True))


class AttemptRow(SQLModel, table=True):
    """One attempt that was not a first success: what it met, by which text (DESIGN §6.3)."""

    __tablename__ = "sense_attempt"

    event_id: bytes = Field(sa_column=Column(LargeBinary(16), primary_key=True))
    route_id: str = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    attempt: int
    state: str
    step: str | None = None
    reason: str | None = Field(default=None, sa_column=Column(Text, nullable=True))
    by: str
    """`intake`, `drain`, `sweep` or `replay`."""
    at: int = Field(sa_column=moment())


class DeadEntry(SQLModel, table=True):
    """A stream entry refused at intake; one row an entry, whatever crashes in between (C43)."""

    __tablename__ = "sense_dead_entry"
    __table_args__ = (Index("sense_dead_entry_recent", "tenant", "at"),)

    stream: str = Field(primary_key=True)
    stream_id: str = Field(primary_key=True)
    tenant: str
    word: str
    detail: str = Field(sa_column=Column(Text, nullable=False))
    raw: str = Field(sa_column=Column(Text, nullable=False))
    """Base64 of the raw fields as netstrings, at most 256 KiB of them."""
    raw_length: int
    raw_digest: str
    activation_id: str | None = None
    event_id: bytes | None = Field(default=None, sa_column=Column(LargeBinary(16), nullable=True))
    """Of a conflict: the event whose key it reused."""
    at: int = Field(sa_column=moment())


class AuditAnchor(SQLModel, table=True):
    """A head of a host's audit chain: lines up to `seq` existed at `at` (DESIGN §9)."""

    __tablename__ = "sense_audit_anchor"

    chain: str = Field(primary_key=True)
    seq: int = Field(primary_key=True, sa_type=BigInteger)
    mac: str
    at: int = Field(sa_column=moment())
