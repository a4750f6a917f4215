"""Connections after a failure: the next transaction does not suffer for the last (C57)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from runtime_core.errors import LedgerBusy, LedgerLost, SettingsError
from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import migrate
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


ONE = {"pool_size": 1, "max_overflow": 0}


@pytest.fixture
def one_connection(postgresql_url: str, monkeypatch) -> Iterator[Database]:
    """A database whose pool has a single connection: whatever breaks it breaks what comes next."""
    make = sa.create_engine
    monkeypatch.setattr(sa, "create_engine", lambda url, **options: make(url, **{**options, **ONE}))
    database = Database(postgresql_url)
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


@pytest.mark.case("C57")
@pytest.mark.parametrize(("rested_s", "fails"), [(0.0, 0), (60.0, 1)])
def test_a_connection_cut_while_nobody_uses_it(one_connection, postgresql_url, monkeypatch, rested_s, fails):
    """One that has rested is looked at and replaced; where it was used a moment ago, the next task fails, alone."""
    monkeypatch.setattr("sense_worker.storage.engine.RESTED_S", rested_s)
    database = one_connection
    with database.write() as connection:
        pid = connection.scalar(sa.select(sa.func.pg_backend_pid()))
    other = Database(postgresql_url)
    with other.read() as killer:
        assert killer.scalar(sa.select(sa.func.pg_terminate_backend(pid, 5000)))
    other.dispose()

    failed = 0
    for number in range(10):
        try:
            add(database, f"t-{number}")
        except LedgerBusy:
            failed += 1
    assert (failed, len(tenants(database))) == (fails, 10 - fails)


def cut_in_the_middle(database: Database, other: Database) -> None:
    """Let the server end the connection of a transaction that has written."""
    with database.write() as connection:
        connection.execute(sa.insert(TENANT).values(id="t-lost", authority_version=1, created_at=1))
        pid = connection.scalar(sa.select(sa.func.pg_backend_pid()))
        with other.read() as killer:
            assert killer.scalar(sa.select(sa.func.pg_terminate_backend(pid, 5000)))
        connection.execute(sa.select(TENANT))


def test_a_look_at_a_file_that_is_not_there_makes_none(tmp_path):
    """Neither reading nor writing makes a database: the error names the place and what makes one."""
    database = Database(f"sqlite:///{tmp_path}/none.db")

    for look in (database.read, database.write):
        with pytest.raises(SettingsError, match=r"no database at .*/none\.db \(run `sense-worker init`"), look():
            pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["sense.db", "with space", "100%25?mode=ro#x&é.db"])
def test_only_the_maker_of_the_tables_makes_the_file(tmp_path, name):
    """Whatever its name is, also through a link that leads nowhere yet; a second run finds it."""
    (tmp_path / "link").symlink_to(tmp_path / name)
    database = Database(sa.URL.create("sqlite", database=str(tmp_path / "link")).render_as_string())
    migrate(database)
    migrate(database)
    add(database, "t-red")
    database.dispose()

    again = Database(sa.URL.create("sqlite", database=str(tmp_path / name)).render_as_string())
    assert tenants(again) == ["t-red"]
    again.dispose()


def test_a_folder_that_is_not_there_is_told(tmp_path):
    """The maker of the tables makes no folders: it names the place."""
    with pytest.raises(SettingsError, match=r"none/sense\.db: No such file or directory"):
        migrate(Database(f"sqlite:///{tmp_path}/none/sense.db"))


@pytest.fixture
def lost(sqlite_url: str) -> Iterator[tuple[Database, Path, list[LedgerLost]]]:
    """A database with one row and an open connection, its file, and what it told who asked to be told."""
    told: list[LedgerLost] = []
    database = Database(sqlite_url, on_lost=told.append)
    add(database, "t-red")
    yield database, Path(str(database.url.database)), told
    database.dispose()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_no_longer_the_one_that_was_opened_is_not_used(lost, replaced):
    """Removed, or another in its place: nothing is read or written, whoever asked is told; put back, it goes on."""
    database, file, told = lost
    kept = file.rename(file.with_suffix(".kept"))
    if replaced:
        file.write_bytes(kept.read_bytes())

    for use in (tenants, lambda database: add(database, "t-blue")):
        with pytest.raises(LedgerLost, match="was removed or replaced"):
            use(database)

    assert [str(file) == error.place for error in told] == [True, True]
    kept.rename(file)
    assert tenants(database) == ["t-red"]


def test_a_commit_into_a_file_whose_name_is_gone_is_no_success(lost):
    """The file is removed while a transaction writes: what it committed nobody can read, so it fails."""
    database, file, _ = lost

    def write_and_remove() -> None:
        with database.write() as connection:
            connection.execute(sa.insert(TENANT).values(id="t-lost", authority_version=1, created_at=1))
            file.unlink()

    with pytest.raises(LedgerLost):
        write_and_remove()
