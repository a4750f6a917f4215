"""Ports: what intake, drain and sweep share in one process, as one frozen bundle built by `wiring`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime_core.errors import LedgerBusy
from sense_worker.storage.anchors import keep_anchor

if TYPE_CHECKING:
    from collections import deque

    from runtime_core.audit_chain import ChainedAudit
    from runtime_core.audit_files import Head
    from sense_worker.open_sinks import OpenSinks
    from sense_worker.retry import Schedule
    from sense_worker.storage.authorities import Authorities
    from sense_worker.storage.engine import Database
    from sense_worker.storage.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Ports:
    """One process's ledger, authority, audit and sinks, with the limits they work under."""

    database: Database
    requests: Database
    """Where requests for commands are kept: the same, or with SQLite a file of its own."""
    ledger: Ledger
    authorities: Authorities
    audit: ChainedAudit
    sinks: OpenSinks
    schedule: Schedule
    crash_limit: int
    freshness_s: float
    lease_slack_s: float
    rotated: deque[Head]
    """Heads of audit files that this process finished, to be anchored after the transaction at hand."""
    chain: str

    def anchor_rotated(self) -> None:
        """Anchor the heads of finished audit files (DESIGN §9). Not while appending: that is inside a transaction.

        What cannot be anchored now is at the next call: the transaction before this one stands, and is not undone.
        """
        with contextlib.suppress(IndexError):  # threads share the deque
            while True:
                head = self.rotated.popleft()
                try:
                    with self.database.write() as connection:
                        keep_anchor(self.ledger.rows(connection), self.chain, head, self.database.now(connection))
                except LedgerBusy:
                    self.rotated.appendleft(head)
                    return

    def close(self) -> None:
        """Close the sinks, the audit's files and the connections of this process."""
        self.sinks.close()
        self.audit.close()
        self.database.dispose()
        self.requests.dispose()
