"""The tables of Execute: requests with their results, and kept credentials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_OPEN = sa.text("state IN ('pending', 'running')")
_KEYED = sa.text("idempotency_key IS NOT NULL")


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "sense_exec",
        sa.Column("id", sa.LargeBinary(16), primary_key=True),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("tenant", "session_id", "principal")),
        sa.Column("project", sa.String()),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("message_id", "signed_at")),
        sa.Column("idempotency_key", sa.String()),
        sa.Column("request_hash", sa.LargeBinary(32), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("lane", "pack_id", "verb_key")),
        sa.Column("sealed", sa.LargeBinary()),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("write", sa.Boolean(), nullable=False),
        sa.Column("alias_of", sa.LargeBinary(16)),
        sa.Column("attempt", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease", sa.String()),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("due_at", "accepted_at", "deadline_at")),
        sa.Column("ok", sa.Boolean()),
        sa.Column("error", sa.Text()),
        sa.Column("reply", sa.LargeBinary()),
        sa.Column("settled_at", sa.BigInteger()),
    )
    op.create_index("sense_exec_due", "sense_exec", ["lane", "due_at"], sqlite_where=_OPEN, postgresql_where=_OPEN)
    op.create_index(
        "sense_exec_key",
        "sense_exec",
        ["tenant", "principal", "idempotency_key"],
        unique=True,
        sqlite_where=_KEYED,
        postgresql_where=_KEYED,
    )
    op.create_index("sense_exec_recent", "sense_exec", ["tenant", "accepted_at"])
    op.create_index("ix_sense_exec_alias_of", "sense_exec", ["alias_of"])
    op.create_table(
        "sense_credential",
        *(sa.Column(name, sa.String(), primary_key=True) for name in ("tenant", "principal", "hub", "consent")),
        sa.Column("identity", sa.String(), nullable=False),
        sa.Column("fields", sa.LargeBinary(), nullable=False),
        sa.Column("kept_at", sa.BigInteger(), nullable=False),
    )
