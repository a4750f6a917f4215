"""The tables as Core sees them: the rows are written and read by statements, not by ORM objects (DESIGN §9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlmodel import SQLModel

from sense_worker.storage import exec_tables, tables

if TYPE_CHECKING:
    import sqlalchemy as sa


def _table(model: type[SQLModel]) -> sa.Table:
    return SQLModel.metadata.tables[str(model.__tablename__)]


TENANT = _table(tables.Tenant)
PRINCIPAL = _table(tables.PrincipalRow)
PROJECT = _table(tables.ProjectRow)
MEMBERSHIP = _table(tables.Membership)
SESSION = _table(tables.SessionRow)
ACTIVATION = _table(tables.ActivationRow)
GRANT = _table(tables.GrantRow)
PACK = _table(tables.PackRow)
REVISION = _table(tables.PackRevisionRow)
SINK = _table(tables.SinkRow)
ROUTE = _table(tables.RouteRow)
EVENT = _table(tables.EventRow)
DELIVERY = _table(tables.DeliveryRow)
ATTEMPT = _table(tables.AttemptRow)
DEAD_ENTRY = _table(tables.DeadEntry)
CREDENTIAL = _table(exec_tables.CredentialRow)
