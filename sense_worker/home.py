"""What stands in a home, and which sinks this host has: for a command as for a worker.

Apart from `wiring`, which loads redis-py and the drain, 0.15 s of CPU that no command needs.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from typing import TYPE_CHECKING

from runtime_core.audit_chain import ChainedAudit
from runtime_core.errors import SettingsError
from sense_worker.opening import Marks
from sinks.protocol import Host
from sinks.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_core.audit_files import Head
    from sense_worker.settings import Settings
    from sense_worker.vault import Vault

CHAIN_FILE = "audit.chain"
OPENING_FOLDER = "opening"
PLUGINS_FILE = "sink-plugins.json"
"""Keeps which sink plugins this host can import, so that each process need not find out."""


def audit_log(settings: Settings, vault: Vault, on_rotate: Callable[[Head], None] | None = None) -> ChainedAudit:
    """Return this host's audit chain; `on_rotate` is told the head of each file it finishes."""
    return ChainedAudit(
        settings.audit_file,
        vault.derive("audit"),
        fsync=settings.audit_fsync,
        rotate_bytes=settings.audit_rotate_bytes,
        clock=lambda: time.time_ns() // 1000,
        on_rotate=on_rotate,
    )


def chain_name(settings: Settings) -> str:
    """Return the name under which this host's chain is anchored; made once and kept beside the chain.

    A host name would not do: a container gets another at every start and keeps its volume.
    """
    place = settings.home / CHAIN_FILE
    if not place.exists():
        if not settings.home.is_dir():
            raise SettingsError("HCP_HOME", f"there is no folder {settings.home}", "run `sense-worker init`")
        # Linked into place when it is whole: several processes start at once, and none may read an empty name.
        draft = place.with_name(f".audit.chain.{secrets.token_hex(4)}")
        draft.write_text(f"{secrets.token_hex(8)}\n", "ascii")
        with contextlib.suppress(FileExistsError):
            os.link(draft, place)
        draft.unlink()
    return place.read_text("ascii").strip()


def sink_host(settings: Settings) -> Host:
    """Return what the settings allow sinks."""
    return Host(settings.sink_networks, settings.notify_services)


def sink_kinds(settings: Settings, *, fresh: bool = False) -> Registry:
    """Return the kinds of sinks of this host, its plugins among them; `fresh` tries these again (C52)."""
    mark = Marks(settings.home / OPENING_FOLDER).mark
    return Registry.load(sink_host(settings), settings.home / PLUGINS_FILE, fresh=fresh, mark=mark)
