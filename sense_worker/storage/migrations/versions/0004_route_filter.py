"""Routes get a filter: a condition in CEL, null where every event of the route's ref passes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column; a route that stands has no filter."""
    op.add_column("sense_route", sa.Column("filter", sa.Text()))
