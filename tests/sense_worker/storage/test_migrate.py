"""The schema: what the steps build, who may build it at once, and which one a worker accepts."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql

from runtime_core.errors import LedgerBusy, SettingsError
from sense_worker.storage import exec_tables, schema
from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import HEAD, MIGRATIONS, VERSION_TABLE, check_schema, migrate, schema_step
from sense_worker.tether import tethered
from sinks import inbox_indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STARTER = """
import sys
from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import check_schema, migrate
for line in sys.stdin:
    database = Database(line.strip())
    migrate(database)
    check_schema(database)
    database.dispose()
    print("up", line.strip(), flush=True)
"""
PROCESSES = 6


def metadata() -> list[sa.MetaData]:
    """Return what the schema must equal."""
    tables = [table for table in exec_tables.ExecRow.metadata.sorted_tables if table.name.startswith("sense_")]
    ledger = sa.MetaData()
    for table in tables:
        table.to_metadata(ledger)
    return [ledger, inbox_indexes.metadata]


def differences(database: Database) -> list[object]:
    """Return what Alembic would still change."""
    with database.engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata())


def set_step(database: Database, step: str) -> None:
    """Write a step into the schema's own row, as another release would have."""
    with database.write() as connection:
        connection.execute(sa.update(sa.table(VERSION_TABLE, sa.column("version_num"))).values(version_num=step))


@pytest.fixture(scope="module")
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Six processes that each open and migrate every database whose URL they are told; then they must end well."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [subprocess.Popen(tethered([sys.executable, "-c", STARTER]), **pipes) for _ in range(PROCESSES)]
    yield started
    for process in started:
        rest, _ = process.communicate(timeout=60)
        assert (process.returncode, rest) == (0, "")


def start_at_once(processes: list[subprocess.Popen[str]], url: str) -> list[str]:
    """Tell all of them of one database at the same moment, and return the line that each prints about it."""
    for process in processes:
        process.stdin.write(f"{url}\n")
        process.stdin.flush()
    return [_about(process, url) for process in processes]


def _about(process: subprocess.Popen[str], url: str) -> str:
    """Return the next line that is not about a database of an earlier test."""
    while (line := process.stdout.readline()).startswith("up ") and line != f"up {url}\n":
        continue
    return line


@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based index")
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
def test_the_steps_build_what_the_tables_say(database: Database) -> None:
    """What the migrations build equals the metadata of the ledger's and the inbox's tables."""
    assert differences(database) == []


def test_statements_know_the_tables_as_they_are():
    """What statements name of a table is its columns in their order, each of the type that the table says."""

    def kind(column: sa.ColumnElement) -> tuple[object, ...]:
        bare: Any = column.type.dialect_impl(postgresql.dialect())
        while isinstance(bare, sa.TypeDecorator):
            bare = bare.impl
        return type(bare).__name__, getattr(bare, "length", None), getattr(bare, "none_as_null", None)

    tables = {table.name: table for table in metadata()[0].sorted_tables}
    named = [table for table in vars(schema).values() if isinstance(table, sa.TableClause)]

    assert {table.name for table in named} == tables.keys() - {"sense_exec", "sense_audit_anchor"}
    for table in named:
        assert [(column.name, kind(column)) for column in table.columns] == [
            (column.name, kind(column)) for column in tables[table.name].columns
        ]


def test_the_standing_activation_index_is_built(database: Database) -> None:
    """The index that no comparison sees (it has an expression) keeps one standing activation per place."""
    session = {
        "id": "ses_1",
        "tenant": "t-red",
        "principal": "ana",
        "secret": b"",
        "created_at": 0,
        "expires_at": 1,
    }
    row = {"tenant": "t-red", "session_id": "ses_1", "pack_id": "mail", "secret": b"", "created_at": 0}
    with database.write() as connection:
        connection.execute(sa.insert(schema.SESSION), session)
        connection.execute(sa.insert(schema.ACTIVATION), [{"id": "act_1", "revoked_at": 1, **row}])
        connection.execute(sa.insert(schema.ACTIVATION), [{"id": "act_2", **row}])

    with pytest.raises(sa.exc.IntegrityError), database.write() as connection:
        connection.execute(sa.insert(schema.ACTIVATION), [{"id": "act_3", **row}])


def test_steps_are_numbered_without_a_gap() -> None:
    """Steps count up from 0001 to HEAD, each on the one before: the distance between two is a subtraction."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    steps = list(ScriptDirectory.from_config(config).walk_revisions())

    assert [step.revision for step in reversed(steps)] == [f"{n:04}" for n in range(1, int(HEAD) + 1)]
    assert [step.down_revision for step in reversed(steps)] == [None, *(f"{n:04}" for n in range(1, int(HEAD)))]


def test_migrating_again_changes_nothing(database: Database) -> None:
    """A second run on an up-to-date schema leaves every row where it was."""
    with database.write() as connection:
        connection.execute(sa.insert(schema.TENANT), {"id": "t-red", "created_at": 1, "authority_version": 7})

    migrate(database)

    with database.read() as connection:
        assert connection.execute(sa.select(schema.TENANT)).all() == [("t-red", 7, 1)]
        assert schema_step(connection) == HEAD


def test_a_step_that_fails_leaves_nothing_behind(empty_database_urls: Callable[[], str]) -> None:
    """A migration is one transaction: when it meets a table that is in its way, no other table stays."""
    database = Database(empty_database_urls())
    database.create()
    with database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE sense_route (id INTEGER)")

    with pytest.raises(LedgerBusy, match="sense_route"):
        migrate(database)

    with database.read() as connection:
        assert sa.inspect(connection).get_table_names() == ["sense_route"]
    database.dispose()


def test_a_database_without_tables_is_refused_with_the_way_out(empty_database_urls: Callable[[], str]) -> None:
    """A worker does not start on an empty database, and says what to run."""
    database = Database(empty_database_urls())
    database.create()

    with pytest.raises(SettingsError) as refused:
        check_schema(database)

    assert str(refused.value) == "SENSE_DATABASE_URL: the database has no tables yet (run `sense-worker init`)"
    database.dispose()


def test_a_worker_runs_on_a_schema_one_step_newer(database: Database) -> None:
    """One step newer is accepted, and migrating leaves it alone: a rolling upgrade needs no stop."""
    newer = f"{int(HEAD) + 1:04}"
    set_step(database, newer)

    check_schema(database)
    migrate(database)

    with database.read() as connection:
        assert schema_step(connection) == newer


@pytest.mark.parametrize("step", [f"{int(HEAD) + 2:04}", "9999", "abc123", "²"])
def test_a_schema_this_release_cannot_know_is_refused(database: Database, step: str) -> None:
    """Two steps newer, or no step of ours at all: neither started on nor migrated."""
    set_step(database, step)

    for use in (check_schema, migrate):
        with pytest.raises(SettingsError, match="works with one step newer"):
            use(database)


@pytest.mark.parametrize("step", [f"{int(HEAD) - 1:04}"])
def test_an_older_schema_is_refused_until_it_is_migrated(database: Database, step: str) -> None:
    """One step older: the worker names the step it needs and what upgrades it."""
    set_step(database, step)

    with pytest.raises(SettingsError, match=f"is at step {step}, this release needs {HEAD}"):
        check_schema(database)


@pytest.mark.case("C58")
@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id="quick"), pytest.param(20, id="literal", marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)
@pytest.mark.parametrize("behind", ["empty", pytest.param("one version behind", marks=pytest.mark.long)])
def test_six_processes_may_create_the_tables_at_once(
    empty_database_urls: Callable[[], str], processes: list[subprocess.Popen[str]], rounds: int, behind: str
) -> None:
    """Six processes that start at the same moment all succeed, say nothing, and leave the whole schema."""
    for _ in range(rounds):
        url = empty_database_urls()
        database = Database(url)
        if behind == "one version behind":  # of 0001: the schema's own table is there and says nothing yet
            database.create()
            with database.write() as connection:
                connection.exec_driver_sql(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) PRIMARY KEY)")

        assert start_at_once(processes, url) == [f"up {url}\n"] * PROCESSES
        with database.read() as connection:
            assert schema_step(connection) == HEAD
            assert set(sa.inspect(connection).get_table_names()) >= {
                *(table.name for one in metadata() for table in one.sorted_tables)
            }
        database.dispose()
