"""The hubs that keep and mint the credentials of principals (§1.4.hubs, DESIGN §5).

`keyring`: the desktop's keyring where the ledger is SQLite and this host has one that encrypts, else the table
`sense_credential`. `local-credential`: a file of this host alone. `public` and `none` mint nothing and have no hub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sense_worker.home import chain_name
from sense_worker.hubs.kept import KeptHub
from sense_worker.hubs.places import DesktopPlace, FilePlace

if TYPE_CHECKING:
    from sense_worker.settings import Settings
    from sense_worker.storage.engine import Database
    from sense_worker.vault import Vault

__all__ = ["KeptHub", "build_hubs"]


def build_hubs(settings: Settings, database: Database, vault: Vault) -> dict[str, KeptHub]:
    """Return the hubs of this process by the name a manifest has for them; threads share them."""
    home = chain_name(settings)
    # A desktop is one host, and so is a SQLite ledger; the keyring of one host is no use to the workers of others.
    desktop = DesktopPlace(f"sense-worker {home}") if database.kind == "sqlite" else None
    files = FilePlace(settings.home / "credentials")
    return {
        "keyring": KeptHub("keyring", "keyring", database, vault, desktop),
        "local-credential": KeptHub("local-credential", f"local-credential@{home}", database, vault, files),
    }
