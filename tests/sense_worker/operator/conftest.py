"""An initialized home on both databases, and operators acting as whom a test wants."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from sense_worker.operator import Operator
from sense_worker.settings import Settings
from sense_worker.storage.authority import versions
from sense_worker.storage.engine import Database
from tests.provision import write_pack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class World:
    """A home with tenant t-red, whose operator is `operator`, and everybody a test lets act."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.settings = Settings.load({"HCP_HOME": str(folder / "home"), "SENSE_DATABASE_URL": database_url})
        self.home = self.settings.home
        self.database = Database(database_url)
        self.rung: list[str] = []
        self._opened: list[Operator] = []
        Operator.initialize(self.settings, tenant="t-red")
        self.operator = self.acting(self.home / "t-red.session")

    def acting(self, session_file: Path) -> Operator:
        """Act as the session of a file."""
        opened = Operator.open(self.settings, session_file=session_file)
        opened._ring = self.rung.extend
        self._opened.append(opened)
        return opened

    def principal(self, name: str, *, operator: bool = False, by: Operator | None = None) -> Operator:
        """Add a principal and act as it."""
        by = by or self.operator
        by.add_principal(name, operator=operator)
        file = self.folder / f"{by.acting.tenant}-{name}.session"
        by.create_session(name, file=file)
        return self.acting(file)

    def tenant(self, name: str) -> Operator:
        """Make another tenant and act as its operator."""
        return self.acting(self.folder / Operator.initialize(self.settings, tenant=name).session_file)

    def pack(self, surface: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> Path:
        """Write the source folder of a pack, by default of `mail`."""
        return write_pack(self.folder / "source" / (surface or {"id": "mail"})["id"], surface, policy)

    def audited(self) -> list[tuple[str, bool, str | None, str | None]]:
        """Return action, ok, principal and reason of every line of the audit since `forget`."""
        lines = [json.loads(line) for line in self.settings.audit_file.read_text().splitlines()]
        return [(line["action"], line["ok"], line["principal"], line["reason"]) for line in lines[self._seen :]]

    _seen = 0

    def forget(self) -> None:
        """Let `audited` begin here."""
        self._seen = len(self.settings.audit_file.read_text().splitlines())

    @contextmanager
    def without_audit(self) -> Iterator[None]:
        """Put a folder in the place of the audit, so that no line can be written."""
        kept = self.home / "audit.old"
        self.settings.audit_file.rename(kept)
        self.settings.audit_file.mkdir()
        try:
            yield
        finally:
            self.settings.audit_file.rmdir()
            kept.rename(self.settings.audit_file)

    def version(self, tenant: str = "t-red") -> int:
        """Return the authority version of a tenant."""
        with self.database.read() as connection:
            return versions(connection, [tenant], lock=False)[tenant]

    def count(self, table: sa.Table) -> int:
        """Return how many rows a table has."""
        with self.database.read() as connection:
            return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)

    def put(self, table: sa.Table, **values: Any) -> None:
        """Insert a row that no operator makes."""
        with self.database.write() as connection:
            connection.execute(sa.insert(table).values(**values))

    def change(self, table: sa.Table, *where: Any, **values: Any) -> None:
        """Change rows behind the operator's back, as time or a worker would."""
        with self.database.write() as connection:
            connection.execute(sa.update(table).where(*where).values(**values))

    def rows(self, table: sa.Table) -> list[Any]:
        """Return every row of a table."""
        with self.database.read() as connection:
            return list(connection.execute(sa.select(table)))

    def close(self) -> None:
        """Close every connection."""
        for one in self._opened:
            one.close()
        self.database.dispose()


@pytest.fixture
def world(tmp_path: Path, database_url: str) -> Iterator[World]:
    """An initialized home, on both databases."""
    world = World(tmp_path, database_url)
    yield world
    world.close()


@pytest.fixture
def ana(world: World) -> Operator:
    """An ordinary principal's session."""
    return world.principal("ana")
