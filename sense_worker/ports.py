"""Ports: what intake, drain and sweep share in one process, as one frozen bundle built by `wiring`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime_core.audit_chain import ChainedAudit
    from sense_worker.open_sinks import OpenSinks
    from sense_worker.retry import Schedule
    from sense_worker.storage.authorities import Authorities
    from sense_worker.storage.engine import Database
    from sense_worker.storage.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Ports:
    """One process's ledger, authority, audit and sinks, with the limits they work under."""

    database: Database
    ledger: Ledger
    authorities: Authorities
    audit: ChainedAudit
    sinks: OpenSinks
    schedule: Schedule
    crash_limit: int
    freshness_s: float
    lease_slack_s: float
