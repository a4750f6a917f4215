"""Judging: claims turned into settlements, before any call where no call is needed (DESIGN §6.4).

What is denied, cancelled, held, or written by a transactional sink is settled in the transaction that judges it, under
the authority version that was read in it; what is left is for the sink to be called with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from runtime_core import pipeline
from runtime_core.errors import ROUTE_GONE, SINK_MISSING
from sense_worker.attempts import held_for_workspace, judged, sink_view, standing_route
from sense_worker.storage.lanes import split_lane
from sense_worker.storage.ledger import NEVER
from sense_worker.storage.records import Settlement
from sense_worker.storage.states import State
from sinks.protocol import Delivered, Rejected, Retry
from sinks.raised import kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa

    from runtime_core.authority import Authority
    from runtime_core.identity import Micros
    from runtime_core.identity import Sink as SinkFacts
    from runtime_core.pipeline import Attempt
    from sense_worker.attempts import Judged
    from sense_worker.open_sinks import OpenSink
    from sense_worker.ports import Ports
    from sense_worker.storage.records import Claimed
    from sinks.protocol import Outcome, TransactionalSink


class Judging:
    """Judges what a drain claims; `by` names the drain in the attempt rows."""

    def __init__(self, ports: Ports, by: str) -> None:
        self._ports = ports
        self._by = by

    def judge(
        self,
        connection: sa.Connection,
        authority: Authority,
        sink: SinkFacts,
        opened: OpenSink,
        claims: Sequence[Claimed],
        now: Micros,
    ) -> list[Judged]:
        """Judge one claimed batch; settle what needs no hand-over, return what does.

        Raises LedgerBusy and AuditUnavailable: the transaction is to end without a commit then.
        """
        ports = self._ports
        settlements: list[Settlement] = []
        admitted: list[Judged] = []
        recorded: list[Attempt] = []
        for claimed in claims:
            early = self._before_the_steps(authority, sink, claimed, now)
            if early is not None:
                settlements.append(early)
                continue
            route = standing_route(authority, claimed, now)
            if route is None:
                settlements.append(Settlement(claimed, State.CANCELLED, ROUTE_GONE, give_back=True))
                continue
            one = judged(authority, claimed, route, now)
            if one.attempt.refused is not None:
                settlements.append(_denied(claimed, one.attempt))
                recorded.append(one.attempt)
            else:
                admitted.append(one)
        if admitted and opened.traits.transactional:
            rows = ports.ledger.rows(connection, mostly_new=True)
            cast("TransactionalSink", opened.sink).write([sink_view(one) for one in admitted], rows)
            settlements += [self.settlement(one.claimed, one.attempt, Delivered(), now) for one in admitted]
            recorded += [one.attempt for one in admitted]
            admitted = []
        pipeline.audit(recorded, ports.audit)
        ports.ledger.settle(connection, settlements, now, self._by)
        return admitted

    def judge_again(self, opened: OpenSink, batch: Sequence[Judged]) -> Sequence[Judged]:
        """Read the authority's version once more; where it moved, judge by the new rows, the sink's own among them.

        The end of a grant or a route moves no version: it is looked at by the clock.
        """
        ports = self._ports
        first = batch[0]
        tenant, name = split_lane(first.claimed.lane)
        with ports.database.read() as connection:
            authority = ports.authorities.current(connection, [tenant])[tenant]
            now = ports.database.now(connection)
        if authority.version == first.attempt.authority.version and not any(_ended(one, now) for one in batch):
            return batch
        claims = [one.claimed for one in batch]
        with ports.database.write() as connection:
            now = ports.database.now(connection)
            authority = ports.authorities.locked(connection, [tenant])[tenant]
            sink = authority.sink(name)
            held = SINK_MISSING if sink is None else sink.held
            if sink is not None and held is None:
                return self.judge(connection, authority, sink, opened, claims, now)
            settlements = [Settlement(one, State.HELD, held, "sink", due_at=NEVER, give_back=True) for one in claims]
            ports.ledger.settle(connection, settlements, now, self._by)
            return []

    def settlement(self, claimed: Claimed, attempt: Attempt, outcome: Outcome, now: Micros) -> Settlement:
        """Return how an attempt ends of which its sink said this."""
        digest = _digest(attempt)
        grant = None if attempt.grant is None else attempt.grant.id
        match outcome:
            case Delivered(receipt):
                told = None if receipt is None else kept(receipt)
                return Settlement(claimed, State.DELIVERED, grant_id=grant, digest=digest, receipt=told)
            case Retry(reason, after):
                delay = self._ports.schedule.delay_micros(claimed.attempt, after)
                state = State.DEAD if delay is None else State.RETRYING
                text = kept(reason) if delay is not None else f"attempts used up: {kept(reason)}"
                due = 0 if delay is None else now + delay
                return Settlement(claimed, state, text, "deliver", grant, digest, None, due)
            case Rejected(reason):
                return Settlement(claimed, State.DEAD, f"rejected: {kept(reason)}", "deliver", grant, digest)
        raise AssertionError(outcome)

    def _before_the_steps(
        self, authority: Authority, sink: SinkFacts, claimed: Claimed, now: Micros
    ) -> Settlement | None:
        if claimed.crashes >= self._ports.crash_limit:
            text = f"crashed: its process died {claimed.crashes} times"
            return Settlement(claimed, State.DEAD, text, "deliver", give_back=True)
        held = held_for_workspace(authority, sink, claimed.activation_id, now)
        return (
            None
            if held is None
            else Settlement(claimed, State.HELD, held.reason, "sink", due_at=held.due_at, give_back=True)
        )


def _ended(one: Judged, now: Micros) -> bool:
    grant = one.attempt.grant
    ends = (one.attempt.route.expires_at, None if grant is None else grant.expires_at)
    return any(end is not None and end <= now for end in ends)


def _denied(claimed: Claimed, attempt: Attempt) -> Settlement:
    if attempt.refused is None:
        raise AssertionError(attempt)
    return Settlement(claimed, State.DENIED, attempt.refused.text, attempt.refused.step, digest=_digest(attempt))


def _digest(attempt: Attempt) -> str | None:
    return None if attempt.revision is None else attempt.revision.pack.digest
