"""KeptHub: one row a credential, whose material stands sealed in the row, or sealed in a place apart (DESIGN §5).

The row is the truth: without it nothing is minted, whatever a place still holds. Every document is sealed by the vault
and names its holder, so that neither a row nor a file is of use under another name.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from runtime_core.binding import HubUnavailable, NotConnected
from runtime_core.errors import HcpError
from sense_worker.logs import log
from sense_worker.storage import credentials

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import sqlalchemy as sa

    from runtime_core.binding import Holder
    from sense_worker.storage.engine import Database
    from sense_worker.vault import Vault

_VERSION = 1


class Place(Protocol):
    """Where sealed material stands apart from its row. Whatever it raises means that it cannot be asked now."""

    def usable(self) -> bool:
        """Tell whether it is there on this host at all; one that is there and locked is usable, and raises."""
        ...

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, token: bytes) -> None: ...

    def drop(self, key: str) -> None: ...


class Removed(NamedTuple):
    """A credential whose row is removed; `apart` names what is left in the place."""

    identity: str
    apart: str | None


class KeptHub:
    """A hub of one name; `scope` is the name its rows have, which tells the hosts of a per-host hub apart."""

    def __init__(self, name: str, scope: str, database: Database, vault: Vault, place: Place | None) -> None:
        self._name = name
        self._scope = scope
        self._database = database
        self._vault = vault
        self._place = place

    def connected(self, holder: Holder) -> bool:
        """Tell whether a credential is kept and can be had. Raises HubUnavailable."""
        return self._found(holder) is not None

    def mint(self, holder: Holder) -> tuple[str, Mapping[str, str]]:
        """Return the identity and the material. Raises NotConnected and HubUnavailable."""
        found = self._found(holder)
        if found is None:
            raise NotConnected
        return found

    def keep(self, holder: Holder, identity: str, fields: Mapping[str, str]) -> None:
        """Keep a credential in place of the one before. Raises HubUnavailable; it is then not connected anew."""
        with self._closed():
            apart = self._place is not None and self._place.usable()
            document = self._sealed(holder, identity, dict(fields))
            row = document
            if apart and self._place is not None:
                # First the material and then the row: a crash in between leaves what the row before tells of, or
                # nothing, and never a row that promises what is not there.
                self._place.put(self._key(holder), document)
                row = self._sealed(holder, identity, None)
            with self._database.write() as connection:
                now = self._database.now(connection)
                credentials.keep(connection, holder, self._scope, credentials.KeptRow(identity, row), now)

    def forget(self, holder: Holder) -> bool:
        """Forget a credential; False where none was kept. Raises HubUnavailable."""
        with self._closed(), self._database.write() as connection:
            removed = self.remove(connection, holder)
        if removed is not None:
            self.clear(removed)
        return removed is not None

    def remove(self, connection: sa.Connection, holder: Holder) -> Removed | None:
        """Remove the row within a transaction; from its commit on nothing is minted. `clear` what it returns then."""
        row = credentials.find(connection, holder, self._scope)
        if row is None:
            return None
        credentials.remove(connection, holder, self._scope)
        return Removed(row.identity, None if self._place is None else self._key(holder))

    def clear(self, removed: Removed) -> None:
        """Take out of the place what no row tells of any more. Raises HubUnavailable; the material is dead anyway."""
        if removed.apart is None or self._place is None:
            return
        with self._closed():
            if self._place.usable():
                self._place.drop(removed.apart)

    def _found(self, holder: Holder) -> tuple[str, dict[str, str]] | None:
        with self._closed():
            with self._database.read() as connection:
                row = credentials.find(connection, holder, self._scope)
            if row is None:
                return None
            identity, fields = self._opened(holder, row.sealed)
            if fields is not None:
                return identity, fields
            if self._place is None or not self._place.usable():
                raise HubUnavailable(f"{self._name}: the material stands in a keyring that this process has not")
            token = self._place.get(self._key(holder))
            if token is None:
                return None
            identity, fields = self._opened(holder, token)
            if fields is None:
                raise HubUnavailable(f"{self._name}: the place holds no material")
            return identity, fields

    def _sealed(self, holder: Holder, identity: str, fields: dict[str, str] | None) -> bytes:
        document = {"v": _VERSION, "holder": [*holder, self._scope], "identity": identity, "fields": fields}
        return self._vault.seal(json.dumps(document, ensure_ascii=False).encode())

    def _opened(self, holder: Holder, token: bytes) -> tuple[str, dict[str, str] | None]:
        document: dict[str, Any] = json.loads(self._vault.open(token))
        if document["v"] != _VERSION or document["holder"] != [*holder, self._scope]:
            raise HubUnavailable(f"{self._name}: what is kept was sealed for another holder")
        return document["identity"], document["fields"]

    def _key(self, holder: Holder) -> str:
        """Return the name of a holder's material: no part of it is a path, or tells whose it is."""
        return hashlib.sha256(json.dumps([*holder, self._scope]).encode()).hexdigest()

    @contextmanager
    def _closed(self) -> Iterator[None]:
        """Turn whatever breaks into HubUnavailable, without the text of strangers: it may hold material (C53)."""
        try:
            yield
        except HubUnavailable as error:
            log().warning("hub unavailable", hub=self._name, error=str(error))
            raise
        except Exception as error:  # noqa: BLE001 - drivers, backends of keyrings, the file system
            told = str(error) if isinstance(error, HcpError) else type(error).__name__
            log().warning("hub unavailable", hub=self._name, error=told)
            raise HubUnavailable(f"{self._name}: {told}") from None
