"""The first tables: tenants and who is who, packs, sinks and routes, the ledger, and the inbox."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_CLAIMABLE = "state IN ('pending', 'retrying', 'delivering', 'held')"


def upgrade() -> None:
    """Create every table."""
    _who_is_who()
    _credentials()
    _grants_and_packs()
    _sinks_and_routes()
    _events()
    _deliveries()
    _records()
    _inbox()


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(), nullable=null)


def _long_text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=null)


def _big(name: str, *, null: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=null)


def _counter(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.SmallInteger(), server_default=sa.text("0"), nullable=False)


def _bytes(name: str, length: int | None = None, *, null: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(length), nullable=null)


def _secrets() -> tuple[sa.Column[bytes], sa.Column[bytes], sa.Column[int]]:
    until = sa.Column("previous_until", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    return _bytes("secret"), _bytes("previous_secret", null=True), until


def _who_is_who() -> None:
    op.create_table(
        "sense_tenant",
        _text("id"),
        _big("authority_version"),
        _big("created_at"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "sense_principal",
        _text("tenant"),
        _text("id"),
        _text("kind"),
        sa.Column("operator", sa.Boolean(), nullable=False),
        _big("created_at"),
        _big("disabled_at", null=True),
        sa.ForeignKeyConstraint(["tenant"], ["sense_tenant.id"]),
        sa.PrimaryKeyConstraint("tenant", "id"),
    )
    op.create_table(
        "sense_project",
        _text("tenant"),
        _text("id"),
        _big("created_at"),
        sa.ForeignKeyConstraint(["tenant"], ["sense_tenant.id"]),
        sa.PrimaryKeyConstraint("tenant", "id"),
    )
    op.create_table(
        "sense_membership",
        _text("tenant"),
        _text("project"),
        _text("principal"),
        _big("created_at"),
        sa.PrimaryKeyConstraint("tenant", "project", "principal"),
    )


def _credentials() -> None:
    op.create_table(
        "sense_session",
        _text("id"),
        _text("tenant"),
        _text("principal"),
        *_secrets(),
        _big("created_at"),
        _big("expires_at"),
        _big("revoked_at", null=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_sense_session_tenant", "sense_session", ["tenant"])
    op.create_table(
        "sense_activation",
        _text("id"),
        _text("tenant"),
        _text("session_id"),
        _text("pack_id"),
        _text("project_id", null=True),
        _text("workspace", null=True),
        *_secrets(),
        _big("created_at"),
        _big("revoked_at", null=True),
        sa.ForeignKeyConstraint(["session_id"], ["sense_session.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_sense_activation_session_id", "sense_activation", ["session_id"])
    op.create_index("ix_sense_activation_tenant", "sense_activation", ["tenant"])
    op.create_index(
        "sense_activation_standing",
        "sense_activation",
        ["session_id", "pack_id", sa.text("coalesce(project_id, '')")],
        unique=True,
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    )


def _grants_and_packs() -> None:
    op.create_table(
        "sense_grant",
        _text("id"),
        _text("tenant"),
        _text("principal"),
        _text("capability"),
        _text("pack_id"),
        sa.Column("keys", sa.JSON(none_as_null=True), nullable=True),
        _text("project", null=True),
        _text("created_by"),
        _big("created_at"),
        _big("expires_at", null=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("sense_grant_principal", "sense_grant", ["tenant", "principal"])
    op.create_table(
        "sense_pack",
        _text("tenant"),
        _text("pack_id"),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("last_generation", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "pack_id"),
    )
    op.create_table(
        "sense_pack_revision",
        _text("tenant"),
        _text("pack_id"),
        sa.Column("generation", sa.Integer(), nullable=False),
        _text("digest"),
        _bytes("surface"),
        _bytes("policy"),
        _bytes("harness"),
        sa.Column("allowed_bins", sa.JSON(), nullable=False),
        _text("installed_by"),
        _big("installed_at"),
        sa.PrimaryKeyConstraint("tenant", "pack_id", "generation"),
    )


def _sinks_and_routes() -> None:
    op.create_table(
        "sense_sink",
        _text("tenant"),
        _text("name"),
        _text("kind"),
        _bytes("options"),
        _text("audience"),
        _text("audience_id", null=True),
        _big("created_at"),
        _big("paused_at", null=True),
        _big("disabled_at", null=True),
        _text("disabled_reason", null=True),
        sa.PrimaryKeyConstraint("tenant", "name"),
    )
    op.create_table(
        "sense_route",
        _text("id"),
        _text("tenant"),
        _text("owner"),
        _text("pack_id"),
        _text("ref"),
        _text("sink"),
        _text("project", null=True),
        sa.Column("options", sa.JSON(), nullable=False),
        _text("created_by"),
        _big("created_at"),
        _big("expires_at", null=True),
        _big("removed_at", null=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("sense_route_match", "sense_route", ["tenant", "pack_id", "ref"])


def _events() -> None:
    op.create_table(
        "sense_event",
        _bytes("id", 16),
        _text("tenant"),
        _text("pack_id"),
        _text("ref"),
        _text("activation_id"),
        _text("publisher"),
        _text("message_id"),
        _text("project", null=True),
        _long_text("subject", null=True),
        _text("occurred_at"),
        _bytes("body"),
        _bytes("body_digest", 32),
        _text("stream_id"),
        sa.Column("generation", sa.Integer(), nullable=False),
        _text("digest"),
        _text("traceparent", null=True),
        _big("signed_at"),
        _big("accepted_at"),
        _long_text("receipt", null=True),
        _text("unfinished_land", null=True),
        _counter("repeats"),
        _text("last_repeat", null=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("sense_event_recent", "sense_event", ["tenant", "accepted_at"])
    unfinished = sa.text("unfinished_land IS NOT NULL")
    op.create_index(
        "sense_event_unfinished",
        "sense_event",
        ["accepted_at"],
        sqlite_where=unfinished,
        postgresql_where=unfinished,
    )


def _deliveries() -> None:
    op.create_table(
        "sense_delivery",
        _bytes("event_id", 16),
        _text("route_id"),
        _text("tenant"),
        _text("lane"),
        _text("owner"),
        _text("state"),
        _counter("attempt"),
        _counter("crashes"),
        sa.Column("alone", sa.Boolean(), nullable=False),
        _big("due_at"),
        _text("lease", null=True),
        _long_text("reason", null=True),
        _text("step", null=True),
        _text("grant_id", null=True),
        _text("digest", null=True),
        _long_text("receipt", null=True),
        _big("created_at"),
        _big("settled_at", null=True),
        sa.PrimaryKeyConstraint("event_id", "route_id"),
    )
    op.create_index(
        "sense_delivery_due",
        "sense_delivery",
        ["lane", "due_at"],
        sqlite_where=sa.text(_CLAIMABLE),
        postgresql_where=sa.text(_CLAIMABLE),
    )


def _records() -> None:
    op.create_table(
        "sense_attempt",
        _bytes("event_id", 16),
        _text("route_id"),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        _text("state"),
        _text("step", null=True),
        _long_text("reason", null=True),
        _text("by"),
        _big("at"),
        sa.PrimaryKeyConstraint("event_id", "route_id", "seq"),
    )
    op.create_table(
        "sense_dead_entry",
        _text("stream"),
        _text("stream_id"),
        _text("tenant"),
        _text("word"),
        _long_text("detail"),
        _long_text("raw"),
        sa.Column("raw_length", sa.Integer(), nullable=False),
        _text("raw_digest"),
        _text("activation_id", null=True),
        _bytes("event_id", 16, null=True),
        _big("at"),
        sa.PrimaryKeyConstraint("stream", "stream_id"),
    )
    op.create_index("sense_dead_entry_recent", "sense_dead_entry", ["tenant", "at"])
    op.create_table(
        "sense_audit_anchor",
        _text("chain"),
        _big("seq"),
        _text("mac"),
        _big("at"),
        sa.PrimaryKeyConstraint("chain", "seq"),
    )


def _inbox() -> None:
    op.create_table(
        "inbox_item",
        _bytes("event_id", 16),
        _text("route_id"),
        _text("tenant"),
        _text("principal"),
        _text("project", null=True),
        _text("publisher"),
        _text("pack_id"),
        _text("ref"),
        _text("land"),
        _long_text("subject", null=True),
        _long_text("occurred_at"),
        _big("accepted_at"),
        _bytes("body"),
        sa.PrimaryKeyConstraint("event_id", "route_id"),
    )
    op.create_index("inbox_item_recent", "inbox_item", ["tenant", "principal", "accepted_at"])
