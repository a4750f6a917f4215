"""Rows put straight into a ledger's database: a small world for tests of intake and drain, without the operator."""

from __future__ import annotations

import json
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, update

from runtime_core.pack import read_pack
from sense_worker.storage import tables
from sense_worker.storage.authority import bump_authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection

    from sense_worker.storage.engine import Database
    from sense_worker.vault import Vault

NEVER = 2**61
SURFACE: dict[str, Any] = {
    "id": "mail",
    "version": "1.0.0",
    "title": "Mail",
    "plane": "runtime",
    "adapter": {"kind": "sense_only"},
    "binding": {"mode": "public", "hub": "none"},
    "verbs": {},
    "stimulusTriggers": [
        {"ref": "new_item", "summary": "A message came", "data": {"type": "object"}},
        {"ref": "shared_item", "summary": "A message came to the project"},
        {"ref": "saved_item", "summary": "A message was saved in the workspace"},
        {
            "ref": "counted_item",
            "summary": "So many messages",
            "data": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        },
    ],
}
LANDS = {"new_item": "personal", "shared_item": "brain", "saved_item": "local", "counted_item": "personal"}
POLICY: dict[str, Any] = {
    "surface_id": "mail",
    "version": 1,
    "verbs": {},
    "stimuli": {ref: {"operation": "read", "privacy": {"land": land}} for ref, land in LANDS.items()},
}


def write_pack(folder: Path, surface: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> Path:
    """Write a pack folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "surface.json").write_text(json.dumps(surface or SURFACE))
    (folder / "policy.json").write_text(json.dumps(policy or POLICY))
    (folder / "HARNESS.md").write_text("# Mail\n")
    return folder


class Rows:
    """Puts rows of one tenant, each change with its bump, as the operator does."""

    def __init__(self, database: Database, vault: Vault, tenant: str = "t-red") -> None:
        self.database = database
        self.vault = vault
        self.tenant = tenant
        self._together: Connection | None = None
        with database.write() as connection:
            connection.execute(insert(tables.Tenant).values(id=tenant, authority_version=1, created_at=1))
            self._together = connection
            self.sink("inbox", "inbox")
        self._together = None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make the changes within it one transaction with one bump, for a world that is made before anybody looks.

        Each by itself takes 4 ms, and thousands of tests begin with ten of them.
        """
        if self._together is not None:
            yield
            return
        with self._changing() as connection:
            self._together = connection
            try:
                yield
            finally:
                self._together = None

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        if self._together is not None:
            yield self._together
            return
        with self.database.write() as connection:
            yield connection
            bump_authority(connection, self.tenant)

    def put(self, table: type[Any], **values: Any) -> None:
        """Insert one row and bump the tenant's version."""
        with self._changing() as connection:
            connection.execute(insert(table.__table__).values(tenant=self.tenant, **values))

    def change(self, table: type[Any], key: dict[str, Any], **values: Any) -> None:
        """Change the rows of this tenant that have `key`, and bump."""
        with self._changing() as connection:
            where = [getattr(table, name) == value for name, value in key.items()]
            connection.execute(update(table).where(table.tenant == self.tenant, *where).values(**values))

    def principal(self, name: str, *, operator: bool = False) -> str:
        """Add a principal with a session `ses-<name>` (in another tenant than t-red: `ses-<tenant>-<name>`)."""
        self.put(tables.PrincipalRow, id=name, kind="human", operator=operator, created_at=1)
        self.session(self.session_of(name), name)
        return name

    def session_of(self, principal: str) -> str:
        """Return the id of a principal's session; it is unique over tenants."""
        return f"ses-{principal}" if self.tenant == "t-red" else f"ses-{self.tenant}-{principal}"

    def session(self, session_id: str, principal: str, *, expires_at: int = NEVER) -> str:
        """Add a session."""
        secret = self.vault.seal(secrets.token_bytes(32))
        self.put(
            tables.SessionRow,
            id=session_id,
            principal=principal,
            secret=secret,
            previous_until=0,
            created_at=1,
            expires_at=expires_at,
        )
        return session_id

    def activation(
        self, name: str, principal: str, *, project: str | None = None, workspace: Path | None = None
    ) -> bytes:
        """Add an activation of the pack on the principal's session; returns its secret."""
        secret = secrets.token_hex(16).encode()
        self.put(
            tables.ActivationRow,
            id=name,
            session_id=self.session_of(principal),
            pack_id="mail",
            project_id=project,
            workspace=None if workspace is None else str(workspace),
            secret=self.vault.seal(secret),
            previous_until=0,
            created_at=1,
        )
        return secret

    def pack(
        self,
        surface: dict[str, Any] | None = None,
        policy: dict[str, Any] | None = None,
        bins: dict[str, str] | None = None,
    ) -> None:
        """Install the pack, or a next generation of it; `bins` are the allowed binaries."""
        raw = json.dumps(surface or SURFACE).encode(), json.dumps(policy or POLICY).encode(), b"# Mail\n"
        pack = read_pack(*raw)
        with self._changing() as connection:
            before = connection.execute(
                update(tables.PackRow)
                .where(tables.PackRow.tenant == self.tenant, tables.PackRow.pack_id == pack.pack_id)
                .values(
                    generation=tables.PackRow.last_generation + 1, last_generation=tables.PackRow.last_generation + 1
                )
                .returning(tables.PackRow.generation)
            ).scalar()
            if before is None:
                row = {"tenant": self.tenant, "pack_id": pack.pack_id, "generation": 1, "last_generation": 1}
                connection.execute(insert(tables.PackRow).values(**row))
            connection.execute(
                insert(tables.PackRevisionRow).values(
                    tenant=self.tenant,
                    pack_id=pack.pack_id,
                    generation=before or 1,
                    digest=pack.digest,
                    surface=raw[0],
                    policy=raw[1],
                    harness=raw[2],
                    allowed_bins=bins or {},
                    installed_by="test",
                    installed_at=1,
                )
            )

    def grant(self, principal: str, ref: str = "new_item", *, project: str | None = None) -> str:
        """Grant sense.enable for one ref; returns the grant's id."""
        name = f"grt-{'' if self.tenant == 't-red' else self.tenant}{principal}-{ref}-{project or ''}"
        self.put(
            tables.GrantRow,
            id=name,
            principal=principal,
            capability="sense.enable",
            pack_id="mail",
            keys=[ref],
            project=project,
            created_by="test",
            created_at=1,
        )
        return name

    def revoke(self, grant: str) -> None:
        """Take a grant away."""
        with self.database.write() as connection:
            connection.exec_driver_sql(f"DELETE FROM sense_grant WHERE id = '{grant}'")
            bump_authority(connection, self.tenant)

    def sink(self, name: str, kind: str, options: dict[str, Any] | None = None, audience: str = "tenant") -> str:
        """Add a sink; `audience` is `tenant`, `principal:ID` or `project:ID`."""
        shape, _, who = audience.partition(":")
        self.put(
            tables.SinkRow,
            name=name,
            kind=kind,
            options=self.vault.seal(json.dumps(options or {}).encode()),
            audience=shape,
            audience_id=who or None,
            created_at=1,
        )
        return name

    def route(self, owner: str, ref: str = "new_item", sink: str = "inbox", **values: Any) -> str:
        """Add a route; returns its id."""
        name = f"rte-{self.tenant}-{owner}-{ref.replace('*', 'any')}-{sink}"
        self.put(
            tables.RouteRow,
            **(
                {"id": name, "owner": owner, "pack_id": "mail", "ref": ref, "sink": sink, "options": {}}
                | {"created_by": "test", "created_at": 1}
                | values
            ),
        )
        return str(values.get("id", name))

    def member(self, project: str, *principals: str) -> None:
        """Make principals members of a project."""
        for principal in principals:
            self.put(tables.Membership, project=project, principal=principal, created_at=1)
