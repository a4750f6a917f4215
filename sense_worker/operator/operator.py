"""Operator: all of provisioning and reading behind one door, as one session in its tenant (DESIGN §3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from sense_worker.held_file import Held
from sense_worker.home import audit_log, sink_kinds
from sense_worker.operator.acting import SessionFile, held_session
from sense_worker.operator.connections import Connections
from sense_worker.operator.grants import Grants
from sense_worker.operator.inbox import Inboxes
from sense_worker.operator.initialize import DEFAULT_TENANT, OPERATOR, initialize
from sense_worker.operator.packs import Packs
from sense_worker.operator.principals import Principals
from sense_worker.operator.reading import Reading
from sense_worker.operator.replay import Replays
from sense_worker.operator.rotation import Rotation
from sense_worker.operator.route_trials import RouteTrials
from sense_worker.operator.routes import Routes
from sense_worker.operator.sink_trials import SinkTrials
from sense_worker.operator.sinks import Sinks
from sense_worker.ring import ring_by
from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import check_schema
from sense_worker.vault import Vault

if TYPE_CHECKING:
    from pathlib import Path

    from sense_worker.operator.views import InitResult, IssuedSession
    from sense_worker.settings import Settings
    from sinks.registry import Registry


class Operator(
    Principals, Grants, Packs, Connections, Sinks, SinkTrials, Routes, RouteTrials, Rotation, Replays, Reading, Inboxes
):
    """Acts as the session of a file. Use it as a context manager, or `close` it."""

    @classmethod
    def open(cls, settings: Settings, *, session_file: Path | None = None, registry: Registry | None = None) -> Self:
        """Act as the session in `session_file`, by default SENSE_SESSION_FILE; read again once it was rotated.

        Raises UsageError for a file that is missing or no session's, SettingsError for keys, for a database address,
        or for a schema this release cannot work with.
        """
        held = held_session(session_file or settings.session_file)
        vault = Vault.load(settings)
        database = Database(settings.database_url)
        try:
            check_schema(database)
            kinds = sink_kinds(settings) if registry is None else registry
        except BaseException:
            database.dispose()
            raise
        return cls(settings, database, vault, audit_log(settings, vault), kinds, held, ring_by(settings))

    @classmethod
    def initialize(cls, settings: Settings, *, tenant: str = DEFAULT_TENANT, principal: str = OPERATOR) -> InitResult:
        """Make what is missing: home, keys, tables, tenant, its operator with session and grant, its sink `inbox`.

        See `sense_worker.operator.initialize`.
        """
        return initialize(settings, tenant, principal)

    def acting_as(self, issued: IssuedSession) -> Self:
        """Act as a session just issued, over what this one has open: such as to activate packs on it.

        It is held in memory alone, as a web app holds its logins. Close this one, not the returned one.
        """
        held = Held(SessionFile(issued.tenant, issued.principal, issued.id, issued.secret))
        return type(self)(self.settings, self._database, self._vault, self._audit, self._registry, held, self._ring)

    def close(self) -> None:
        """Close the connections and the audit's files."""
        self._database.dispose()
        self._audit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
