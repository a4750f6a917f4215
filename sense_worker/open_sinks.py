"""OpenSinks: the sinks of this process, built from their rows once and kept while the row stays the same."""

from __future__ import annotations

import hashlib
import json
import os
import time
import weakref
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runtime_core.errors import SINK_MISSING, SINK_UNOPENED, HcpError
from sense_worker.logs import log
from sense_worker.opening import OPEN_LIMIT_S, Marks, Opening, close_within
from sinks import raised

if TYPE_CHECKING:
    from runtime_core.authority import Authority
    from sense_worker.storage.rows import Rows
    from sense_worker.vault import Vault
    from sinks.protocol import Sink
    from sinks.registry import Registry, Traits

UNOPENED = SINK_UNOPENED.partition("{}")[0]
"""How the reason begins of what waits for a sink that this process cannot open."""
OPENING_S = 0.1
"""Seconds that a transaction waits for a sink to open: most make a client, and connect later."""
OPENING_WAIT_S = 2.0
"""Seconds that a drain waits for one that takes longer."""
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


@dataclass(slots=True)
class _Kept:
    """What is known of a sink's row, and the sink once somebody wanted it open."""

    version: int
    row: tuple[str, bytes]
    traits: Traits | str
    opening: Opening[OpenSink | str] | None = None
    failed_at: float = 0.0
    """When it turned out that it cannot be opened, by this process's monotonic clock."""


class OpenSinks:
    """Fork-safe: a child forgets what its parent opened and opens its own (C56).

    `marks`: see `sense_worker.opening`. `crash_limit`: so many processes may end while they open one sink.
    """

    def __init__(self, registry: Registry, vault: Vault, marks: Marks | None = None, crash_limit: int = 3) -> None:
        self._registry = registry
        self._vault = vault
        self._marks = Marks(None) if marks is None else marks
        self._crash_limit = crash_limit
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._warned: dict[tuple[str, str], str] = {}
        """Of each sink that cannot be opened, the cause that the log has."""
        self._pid = os.getpid()

    def traits(self, rows: Rows, authority: Authority, name: str) -> Traits | str:
        """Return what the sink is, without opening it; or why it cannot be used, like `get`.

        The row is read again whenever the authority version has moved; the sink is built again only when it changed.
        """
        kept = self._look(rows, authority, name)
        found = kept if isinstance(kept, str) else kept.traits
        self._warn(authority.tenant, name, found)
        return found

    def get(self, rows: Rows, authority: Authority, name: str) -> OpenSink | str | None:
        """Return the sink, opened; why it cannot be used now: its deliveries are held with that reason; or None.

        None: it is being opened, and that takes longer than a transaction may wait. `wait` waits for it. One that
        cannot be opened is a warning in the log: one a cause, not one an event.
        """
        found = self._found(rows, authority, name)
        self._warn(authority.tenant, name, found)
        return found

    def _found(self, rows: Rows, authority: Authority, name: str) -> OpenSink | str | None:
        kept = self._look(rows, authority, name)
        if isinstance(kept, str):
            return kept
        if isinstance(kept.traits, str):
            return kept.traits
        if kept.opening is None or (kept.failed_at and time.monotonic() - kept.failed_at >= REOPEN_S):
            kept.failed_at = 0.0
            kept.opening = Opening(partial(self.open_row, name, *kept.row))
            kept.opening.answer(OPENING_S)
        opened = kept.opening.answer()
        if isinstance(opened, str) and not kept.failed_at:
            kept.failed_at = time.monotonic()
        if opened is None and kept.opening.late:
            return SINK_UNOPENED.format(f"open did not return within {OPEN_LIMIT_S:g} s")
        return opened

    def wait(self, tenant: str, name: str) -> None:
        """Wait a moment for a sink that is being opened; to be called outside of any transaction."""
        kept = self._kept.get((tenant, name))
        if kept is not None and kept.opening is not None:
            kept.opening.answer(OPENING_WAIT_S)

    def close(self) -> None:
        """Let go of every sink of this process: each is closed now, or when whoever uses it is done."""
        self._kept.clear()

    def open_row(self, name: str, kind: str, sealed: bytes) -> OpenSink | str:
        """Open a sink as its row says, for whoever asks: it is not kept. Returns why not where it cannot be."""
        try:
            options = json.loads(self._vault.open(sealed))
            traits = self._registry.traits(kind, options)
            if isinstance(traits, str):
                return SINK_UNOPENED.format(traits)
            sink = self._registry.build(kind, name, options)
            with self._marks.mark(name, kind, hashlib.sha256(sealed).hexdigest()) as deaths:
                if deaths >= self._crash_limit:
                    return SINK_UNOPENED.format(f"its process ended {deaths} times while it was opened")
                sink.open()
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; its deliveries wait, nothing is lost
            # Only our own texts are known to hold no secret (C53).
            why = str(error) if isinstance(error, HcpError) else f"{type(error).__name__}, {raised.origin(error)}"
            return SINK_UNOPENED.format(raised.kept(why))
        opened = OpenSink(sink, traits)
        weakref.finalize(opened, _close, sink, os.getpid())
        return opened

    def _warn(self, tenant: str, name: str, found: object) -> None:
        at = (tenant, name)
        if isinstance(found, OpenSink):
            self._warned.pop(at, None)
        elif isinstance(found, str) and found.startswith(UNOPENED) and self._warned.get(at) != found:
            self._warned[at] = found
            if self._marks.first("held", *at, found):
                log().warning("sink held", tenant=tenant, sink=name, reason=found)

    def _look(self, rows: Rows, authority: Authority, name: str) -> _Kept | str:
        """Return what is known of a sink's row now; or why it cannot be used."""
        if os.getpid() != self._pid:
            self._kept, self._pid = {}, os.getpid()
        sink = authority.sink(name)
        if sink is not None and sink.held is not None:
            return sink.held
        at = (authority.tenant, name)
        kept = self._kept.get(at)
        if kept is not None and kept.version == authority.version:
            return kept
        found = rows.query("SELECT kind, options FROM sense_sink WHERE tenant = ? AND name = ?", at)
        if not found:
            self._kept.pop(at, None)
            return SINK_MISSING
        row = (str(found[0][0]), bytes(found[0][1]))
        if kept is None or kept.row != row:
            self._kept.pop(at, None)
            kept = None  # let go of first: where nobody uses the old one it is closed before the new one opens
            try:
                traits = self._registry.traits(row[0], json.loads(self._vault.open(row[1])))
            except HcpError as error:
                return SINK_UNOPENED.format(error)
            said = SINK_UNOPENED.format(traits) if isinstance(traits, str) else traits
            kept = self._kept[at] = _Kept(authority.version, row, said)
        kept.version = authority.version
        return kept


def _close(sink: Sink, pid: int) -> None:
    """Close a sink nobody holds any more; a child lets go of its parent's without touching what they share."""
    if os.getpid() == pid and not close_within(sink.close):
        log().warning("sink does not close", sink=getattr(sink, "name", None), kind=sink.kind)
