"""The tables as statements see them: names and types, in the columns' order (DESIGN §9).

Rows are written and read by statements, not by ORM objects. SQLModel and its models take 0.25 s of CPU to load, the ORM
and both dialects among it, and every command and every process of a worker paid that. They stand in `tables`, for the
migrations; a test holds the two to each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine

_STRING, _TEXT, _JSON, _FLAG = sa.String(), sa.Text(), sa.JSON(), sa.Boolean()
_BYTES, _KEY, _DIGEST = sa.LargeBinary(), sa.LargeBinary(16), sa.LargeBinary(32)
_SMALL, _WHOLE, _LONG = sa.SmallInteger(), sa.Integer(), sa.BigInteger()
_MOMENT = _LONG
"""Microseconds since the epoch, UTC."""


def _table(name: str, /, **columns: TypeEngine[Any]) -> sa.TableClause:
    return sa.table(name, *(sa.column(column, kind) for column, kind in columns.items()))


TENANT = _table(
    "sense_tenant",
    id=_STRING,
    authority_version=_LONG,
    created_at=_MOMENT,
)
PRINCIPAL = _table(
    "sense_principal",
    tenant=_STRING,
    id=_STRING,
    kind=_STRING,
    operator=_FLAG,
    created_at=_MOMENT,
    disabled_at=_MOMENT,
)
PROJECT = _table(
    "sense_project",
    tenant=_STRING,
    id=_STRING,
    created_at=_MOMENT,
)
MEMBERSHIP = _table(
    "sense_membership",
    tenant=_STRING,
    project=_STRING,
    principal=_STRING,
    created_at=_MOMENT,
)
SESSION = _table(
    "sense_session",
    id=_STRING,
    tenant=_STRING,
    principal=_STRING,
    secret=_BYTES,
    previous_secret=_BYTES,
    previous_until=_MOMENT,
    created_at=_MOMENT,
    expires_at=_MOMENT,
    revoked_at=_MOMENT,
)
ACTIVATION = _table(
    "sense_activation",
    id=_STRING,
    tenant=_STRING,
    session_id=_STRING,
    pack_id=_STRING,
    project_id=_STRING,
    workspace=_STRING,
    secret=_BYTES,
    previous_secret=_BYTES,
    previous_until=_MOMENT,
    created_at=_MOMENT,
    revoked_at=_MOMENT,
)
GRANT = _table(
    "sense_grant",
    id=_STRING,
    tenant=_STRING,
    principal=_STRING,
    capability=_STRING,
    pack_id=_STRING,
    keys=sa.JSON(none_as_null=True),
    project=_STRING,
    created_by=_STRING,
    created_at=_MOMENT,
    expires_at=_MOMENT,
)
PACK = _table(
    "sense_pack",
    tenant=_STRING,
    pack_id=_STRING,
    generation=_WHOLE,
    last_generation=_WHOLE,
)
REVISION = _table(
    "sense_pack_revision",
    tenant=_STRING,
    pack_id=_STRING,
    generation=_WHOLE,
    digest=_STRING,
    surface=_BYTES,
    policy=_BYTES,
    harness=_BYTES,
    allowed_bins=_JSON,
    installed_by=_STRING,
    installed_at=_MOMENT,
)
SINK = _table(
    "sense_sink",
    tenant=_STRING,
    name=_STRING,
    kind=_STRING,
    options=_BYTES,
    audience=_STRING,
    audience_id=_STRING,
    created_at=_MOMENT,
    paused_at=_MOMENT,
    disabled_at=_MOMENT,
    disabled_reason=_STRING,
)
ROUTE = _table(
    "sense_route",
    id=_STRING,
    tenant=_STRING,
    owner=_STRING,
    pack_id=_STRING,
    ref=_STRING,
    sink=_STRING,
    project=_STRING,
    options=_JSON,
    created_by=_STRING,
    created_at=_MOMENT,
    expires_at=_MOMENT,
    removed_at=_MOMENT,
    filter=_TEXT,
)
EVENT = _table(
    "sense_event",
    id=_KEY,
    tenant=_STRING,
    pack_id=_STRING,
    ref=_STRING,
    activation_id=_STRING,
    publisher=_STRING,
    message_id=_STRING,
    project=_STRING,
    subject=_TEXT,
    occurred_at=_STRING,
    body=_BYTES,
    body_digest=_DIGEST,
    stream_id=_STRING,
    generation=_WHOLE,
    digest=_STRING,
    traceparent=_STRING,
    signed_at=_MOMENT,
    accepted_at=_MOMENT,
    receipt=_TEXT,
    unfinished_land=_STRING,
    repeats=_SMALL,
    last_repeat=_STRING,
)
DELIVERY = _table(
    "sense_delivery",
    event_id=_KEY,
    route_id=_STRING,
    tenant=_STRING,
    lane=_STRING,
    owner=_STRING,
    state=_STRING,
    attempt=_SMALL,
    crashes=_SMALL,
    alone=_FLAG,
    due_at=_MOMENT,
    lease=_STRING,
    reason=_TEXT,
    step=_STRING,
    grant_id=_STRING,
    digest=_STRING,
    receipt=_TEXT,
    created_at=_MOMENT,
    settled_at=_MOMENT,
)
ATTEMPT = _table(
    "sense_attempt",
    event_id=_KEY,
    route_id=_STRING,
    seq=_WHOLE,
    attempt=_WHOLE,
    state=_STRING,
    step=_STRING,
    reason=_TEXT,
    by=_STRING,
    at=_MOMENT,
)
DEAD_ENTRY = _table(
    "sense_dead_entry",
    stream=_STRING,
    stream_id=_STRING,
    tenant=_STRING,
    word=_STRING,
    detail=_TEXT,
    raw=_TEXT,
    raw_length=_WHOLE,
    raw_digest=_STRING,
    activation_id=_STRING,
    event_id=_KEY,
    at=_MOMENT,
)
CREDENTIAL = _table(
    "sense_credential",
    tenant=_STRING,
    principal=_STRING,
    hub=_STRING,
    consent=_STRING,
    identity=_STRING,
    fields=_BYTES,
    kept_at=_MOMENT,
)
