"""Trying a sink: one delivery that is made up goes the way that every delivery goes."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING

from runtime_core.errors import UsageError
from sense_worker.open_sinks import OpenSinks
from sense_worker.operator.desk import Desk, need_sink
from sense_worker.operator.views import SinkTrial
from sense_worker.sink_call import call_sink
from sinks.line import rfc3339
from sinks.protocol import Delivered, Delivery, Rejected, Retry
from sinks.raised import kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sense_worker.operator.acting import Acting
    from sinks.protocol import Outcome

TRIAL_REF = "sink.test"
TRIAL_ROUTE = "rte_test"


class SinkTrials(Desk):
    """What is sent leaves the runtime, so it needs an operator and is a line of the audit."""

    def test_sink(self, name: str) -> SinkTrial:
        """Hand a made-up delivery of `sink.test` to a sink, paused or not, and return what came of it.

        It is no event: nothing of it is recorded but the audit line, and nothing is tried again. Raises NotFound;
        UsageError for a kind that is written in the ledger's own transaction.
        """
        with self._change("sink.test", name) as change:
            row = need_sink(change, name)
        begun = time.monotonic()
        opened = OpenSinks(self._registry, self._vault).open_row(name, row.kind, bytes(row.options))
        if isinstance(opened, str):
            return SinkTrial(name, row.kind, "held", opened, 0.0)
        if opened.traits.transactional:
            raise UsageError(
                "sink", f"kind {row.kind!r} is a table of the ledger; nothing is sent", "there is no more to it"
            )
        made_up = _made_up(change.acting, change.now, opened.traits.lands)
        (outcome,) = call_sink(opened.sink, [made_up])
        note = self._registry.note(row.kind, json.loads(self._vault.open(row.options)))
        return SinkTrial(name, row.kind, *_told(outcome), round(time.monotonic() - begun, 3), note)


def _made_up(acting: Acting, now: int, lands: Sequence[str]) -> Delivery:
    event_id, occurred_at = uuid.uuid4().hex, rfc3339(now)
    data = {"test": True, "sent_by": acting.principal}
    body = {"ref": TRIAL_REF, "data": data, "subject": "test", "occurred_at": occurred_at}
    return Delivery(
        id=f"{event_id}.{TRIAL_ROUTE}",
        event_id=event_id,
        route_id=TRIAL_ROUTE,
        tenant=acting.tenant,
        principal=acting.principal,
        publisher=acting.principal,
        project=None,
        pack_id="sense-worker",
        ref=TRIAL_REF,
        land="brain" if "brain" in lands else lands[0],
        subject="test",
        occurred_at=occurred_at,
        accepted_at=now,
        body=json.dumps(body).encode(),
        attempt=1,
        workspace=None,
        route_options={},
    )


def _told(outcome: Outcome) -> tuple[str, str | None]:
    match outcome:
        case Delivered(receipt):
            return "delivered", None if receipt is None else kept(receipt)
        case Retry(reason):
            return "retry", kept(reason)
        case Rejected(reason):
            return "rejected", kept(reason)
    raise AssertionError(outcome)
