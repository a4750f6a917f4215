"""The naive worker: one Celery task per event, the same checks and rows, one commit each.

The checks are the product's own code (signature, strict parse, schema, candidates, gates) and so are the rows and the
audit (chained, fsync). What is naive: a Celery message per event, SQLModel objects in a session, one commit and one
fsync per event. Two things are easier for it than for the product: its publisher sends the Celery message itself, so
no stream is paid for, and each process reads the tenant's rows once and keeps them for good (a revocation would not
reach it), because reading them for each event would only measure that.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from celery import Celery
from sqlmodel import Session

from runtime_core import pipeline
from runtime_core.authority import Authority
from sense_worker.attempts import judged, sink_view
from sense_worker.home import audit_log
from sense_worker.intake.door import Admitted, admit
from sense_worker.intake.record import _accepted_event, _event_record
from sense_worker.intake.stream import StreamEntry
from sense_worker.settings import Settings
from sense_worker.storage import tables
from sense_worker.storage.authority import SqlAuthoritySource
from sense_worker.storage.engine import Database
from sense_worker.storage.records import Claimed
from sense_worker.storage.rows import Rows
from sense_worker.vault import Vault
from sinks.inbox import Inbox
from sinks.protocol import NoOptions
from sinks.registry import Registry

if TYPE_CHECKING:
    from runtime_core.audit_chain import ChainedAudit

app = Celery("naive", broker=os.environ.get("BENCH_BROKER"), set_as_current=False)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=4,
    worker_hijack_root_logger=False,
    task_default_queue="naive",
    broker_transport_options={"visibility_timeout": 3600},
)


@cache
def parts(tenant: str) -> tuple[Database, Authority, ChainedAudit, Inbox]:
    """Return what the process keeps: connections, the tenant's rows, audit. Built after the fork."""
    settings = Settings.load()
    vault = Vault.load(settings)
    database = Database(settings.database_url)
    source = SqlAuthoritySource(database, Registry(), vault)
    return database, Authority(tenant, 0, source), audit_log(settings, vault), Inbox("inbox", NoOptions())


@app.task(name="naive.deliver")
def deliver(tenant: str, entry_id: str, fields: dict[str, str]) -> None:
    """Check one event and write its rows."""
    database, authority, audit, inbox = parts(tenant)
    entry = StreamEntry(tenant, "naive", entry_id, {k.encode(): v.encode() for k, v in fields.items()}, 1)
    one = admit(entry, authority, int(time.time() * 1e6), 300.0)
    if not isinstance(one, Admitted):
        raise TypeError(one.word)
    with Session(database.engine) as session:
        session.add(tables.EventRow(**_event_record(one)._asdict()))
        session.flush()
        now = int(time.time() * 1e6)
        attempts = []
        event = _accepted_event(one)
        for route in one.routes:
            lane = f"{tenant}/{route.sink}"
            claimed = Claimed(event.id, route.id, "", 1, False, 0, lane, route.owner, *event[1:])
            decision = judged(one.authority, claimed, route, now)
            attempts.append(decision.attempt)
            refused = decision.attempt.refused
            session.add(_delivery(one, route, now, None if refused is None else refused.text))
            if refused is None:
                inbox.write([sink_view(decision)], Rows(session.connection(), database.kind))
        session.flush()
        pipeline.audit(attempts, audit)
        session.commit()


def _delivery(one: Admitted, route: Any, now: int, refused: str | None) -> tables.DeliveryRow:
    return tables.DeliveryRow(
        event_id=one.facts.event_id,
        route_id=route.id,
        tenant=one.facts.tenant,
        lane=f"{one.facts.tenant}/{route.sink}",
        owner=route.owner,
        state="delivered" if refused is None else "denied",
        attempt=1,
        due_at=now,
        reason=refused,
        digest=one.revision.pack.digest,
        created_at=now,
        settled_at=now,
    )
