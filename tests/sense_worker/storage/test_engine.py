"""Connections after a failure: the next transaction does not suffer for the last (C57)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from runtime_core.errors import LedgerBusy
from sense_worker.storage.engine import Database
from sense_worker.storage.schema import TENANT

if TYPE_CHECKING:
    from collections.abc import Iterator


def add(database: Database, tenant: str) -> None:
    """Do one good task: insert a row in a transaction of its own."""
    with database.write() as connection:
        connection.execute(sa.insert(TENANT).values(id=tenant, authority_version=1, created_at=1))


def tenants(database: Database) -> list[str]:
    """Return what is there."""
    with database.read() as connection:
        return list(connection.scalars(sa.select(TENANT.c.id).order_by(TENANT.c.id)))


def test_a_pool_without_a_free_connection_is_busy(one_connection):
    """Waiting for a connection in vain is a fault of the moment, and is told as one."""
    pool = one_connection.engine.pool
    pool._timeout = 0.01

    with one_connection.read(), pytest.raises(LedgerBusy, match="no connection is free"), one_connection.read():
        pass


def test_an_error_does_not_tell_values(database):
    """What a log shows of a statement that failed holds none of its values."""
    add(database, "t-red")

    with pytest.raises(IntegrityError) as caught:
        add(database, "t-red")

    assert "parameters hidden" in str(caught.value)


@pytest.fixture
def one_connection(postgresql_url: str) -> Iterator[Database]:
    """A database whose pool has a single connection: whatever breaks it breaks what comes next."""
    database = Database(postgresql_url)
    database.engine.dispose()
    database.engine = sa.create_engine(database.url, pool_pre_ping=True, pool_size=1, max_overflow=0)
    yield database
    database.dispose()


@pytest.mark.case("C57")
def test_a_constraint_that_fails_breaks_nothing_after_it(database):
    """The failure is an IntegrityError of its own; ten tasks after it succeed in the same process."""
    add(database, "t-red")
    with pytest.raises(IntegrityError):
        add(database, "t-red")

    for number in range(10):
        add(database, f"t-{number}")
    assert tenants(database) == [*(f"t-{number}" for number in range(10)), "t-red"]


@pytest.mark.case("C57")
def test_a_connection_cut_by_the_server_breaks_nothing_after_it(one_connection, postgresql_url):
    """One task fails on a constraint, the next on a cut connection, each with its own cause; ten more succeed."""
    database = one_connection
    add(database, "t-red")
    with pytest.raises(IntegrityError):
        add(database, "t-red")
    other = Database(postgresql_url)
    with pytest.raises(LedgerBusy, match="terminating connection due to administrator command"):
        cut_in_the_middle(database, other)
    other.dispose()

    for number in range(10):
        add(database, f"t-{number}")
    assert tenants(database) == [*(f"t-{number}" for number in range(10)), "t-red"]


def cut_in_the_middle(database: Database, other: Database) -> None:
    """Let the server end the connection of a transaction that has written."""
    with database.write() as connection:
        connection.execute(sa.insert(TENANT).values(id="t-lost", authority_version=1, created_at=1))
        pid = connection.scalar(sa.select(sa.func.pg_backend_pid()))
        with other.read() as killer:
            assert killer.scalar(sa.select(sa.func.pg_terminate_backend(pid, 5000)))
        connection.execute(sa.select(TENANT))
