"""Check this host's audit chain against its key and the anchors kept in the database (§9.6, DESIGN §9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime_core.audit_files import rotated_files
from runtime_core.audit_verify import verify
from runtime_core.errors import NotFound
from sense_worker.home import CHAIN_FILE, chain_name
from sense_worker.storage.anchors import anchors_of
from sense_worker.storage.engine import Database
from sense_worker.storage.rows import Rows
from sense_worker.vault import Vault

if TYPE_CHECKING:
    from runtime_core.audit_verify import Problem
    from sense_worker.settings import Settings


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """What was found. `ok`: nothing was changed or is missing; a write that a crash tore is no loss."""

    ok: bool
    file: str
    lines: int
    verified: int
    anchors: int
    """Heads kept in the database that the chain was compared with; without one a cut end cannot be seen."""
    problems: tuple[Problem, ...]
    omitted: int
    """Problems beyond those listed."""


def check_audit(settings: Settings) -> AuditCheck:
    """Walk the whole chain; safe while workers append.

    Raises NotFound where there is none, SettingsError without its key, LedgerBusy where the anchors cannot be read.
    """
    file = settings.audit_file
    if not (file.exists() or (file.parent.is_dir() and rotated_files(file))):
        raise NotFound(str(file), "there is no audit yet", "`sense-worker init` begins one")
    anchors = _anchors(settings)  # read first: what is appended meanwhile is newer than every anchor
    report = verify(file, Vault.load(settings).derive_all("audit"), anchors)
    return AuditCheck(
        *(report.ok, str(file), report.lines, report.verified, len(anchors), report.problems, report.omitted)
    )


def _anchors(settings: Settings) -> list[tuple[int, str]]:
    named = (settings.home / CHAIN_FILE).exists()
    database = Database(settings.database_url)
    try:
        with database.read() as connection:
            if not named:
                return []  # nothing was anchored under a name that was never made; a check makes none
            return anchors_of(Rows(connection, database.kind), chain_name(settings))
    finally:
        database.dispose()
