"""OpenSinks: the sinks of this process, built from their rows once and kept while the row stays the same."""

from __future__ import annotations

import contextlib
import json
import os
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from runtime_core.errors import SINK_MISSING, HcpError
from sense_worker.logs import log
from sinks.raised import origin

if TYPE_CHECKING:
    from runtime_core.authority import Authority
    from sense_worker.storage.rows import Rows
    from sense_worker.vault import Vault
    from sinks.protocol import Sink
    from sinks.registry import Registry, Traits

REOPEN_S = 10.0
"""A sink that could not be opened is tried again after this: what it wants may be there again, and no row tells."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class OpenSink:
    """A built and opened sink, with the traits of its kind under these options.

    Whoever holds it may use it. The sink is closed when its last holder lets go: a row that changes in the middle of a
    hand-over, or between a claim and its hand-over, closes nothing under another thread's hands.
    """

    sink: Sink
    traits: Traits


class _Kept(NamedTuple):
    version: int
    row: tuple[str, bytes]
    opened: OpenSink | str
    at: float
    """When it was opened, by this process's monotonic clock."""

    @property
    def sound(self) -> bool:
        """Whether it is open, or failed so lately that it is not tried again yet."""
        return isinstance(self.opened, OpenSink) or time.monotonic() - self.at < REOPEN_S


class OpenSinks:
    """Fork-safe: a child forgets what its parent opened and opens its own (C56)."""

    def __init__(self, registry: Registry, vault: Vault) -> None:
        self._registry = registry
        self._vault = vault
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._pid = os.getpid()

    def get(self, rows: Rows, authority: Authority, name: str) -> OpenSink | str:
        """Return the sink, or why it cannot be used now: its deliveries are held with that reason.

        The row is read again whenever the authority version has moved; the sink is built again only when it changed.
        """
        if os.getpid() != self._pid:
            self._kept, self._pid = {}, os.getpid()
        sink = authority.sink(name)
        if sink is not None and sink.held is not None:
            return sink.held
        at = (authority.tenant, name)
        kept = self._kept.get(at)
        if kept is not None and not kept.sound:
            self._kept.pop(at)
            kept = None
        if kept is not None and kept.version == authority.version:
            return kept.opened
        found = rows.query("SELECT kind, options FROM sense_sink WHERE tenant = ? AND name = ?", at)
        if not found:
            self._kept.pop(at, None)
            return SINK_MISSING
        row = (str(found[0][0]), bytes(found[0][1]))
        if kept is not None and kept.row != row:
            self._kept.pop(at)
            kept = None  # let go of first: where nobody uses the old one it is closed before the new one opens
        if kept is None:
            kept = _Kept(authority.version, row, self.open_row(name, *row), time.monotonic())
        self._kept[at] = kept._replace(version=authority.version)
        return kept.opened

    def close(self) -> None:
        """Let go of every sink of this process: each is closed now, or when whoever uses it is done."""
        self._kept.clear()

    def open_row(self, name: str, kind: str, sealed: bytes) -> OpenSink | str:
        """Open a sink as its row says, for whoever asks: it is not kept. Returns why not where it cannot be."""
        try:
            options = json.loads(self._vault.open(sealed))
            traits = self._registry.traits(kind, options)
            if traits is None:
                return SINK_MISSING
            sink = self._registry.build(kind, name, options)
            sink.open()
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; its deliveries wait, nothing is lost
            # Only our own texts are known to hold no secret (C53).
            why = str(error) if isinstance(error, HcpError) else f"{type(error).__name__}, {origin(error)}"
            log().warning("sink cannot be opened", sink=name, kind=kind, error=why)
            return f"sink cannot be opened: {why}"
        opened = OpenSink(sink, traits)
        weakref.finalize(opened, _close, sink, os.getpid())
        return opened


def _close(sink: Sink, pid: int) -> None:
    """Close a sink nobody holds any more; a child lets go of its parent's without touching what they share."""
    if os.getpid() == pid:
        with contextlib.suppress(Exception):
            sink.close()
