"""From a claimed delivery to what the pipeline judges and what the sink sees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from runtime_core.errors import WORKSPACE_NOT_SERVED
from runtime_core.event import delivery_id
from runtime_core.pipeline import Attempt, Facts, decide
from sinks.protocol import Delivery

if TYPE_CHECKING:
    from runtime_core.authority import Authority
    from runtime_core.identity import Micros, Route, Sink
    from sense_worker.storage.records import Claimed

WORKSPACE_RECHECK_MICROS = 60_000_000
"""So long a delivery waits before another look at its workspace."""


class Judged(NamedTuple):
    """A claimed delivery with the pipeline's decision on this attempt."""

    claimed: Claimed
    attempt: Attempt


class Held(NamedTuple):
    """Why a delivery waits, and until when."""

    reason: str
    due_at: Micros


def standing_route(authority: Authority, claimed: Claimed, now: Micros) -> Route | None:
    """Return the route of a delivery while it stands: not removed, not expired."""
    route = authority.routes(claimed.pack_id, claimed.ref).get(claimed.route_id)
    return None if route is None or (route.expires_at is not None and now >= route.expires_at) else route


def judged(authority: Authority, claimed: Claimed, route: Route, now: Micros) -> Judged:
    """Walk the gates for one claimed delivery."""
    facts = Facts(
        *(claimed.event_id, claimed.tenant, claimed.pack_id, claimed.ref, claimed.activation_id, claimed.publisher)
    )
    return Judged(claimed, decide(authority, facts, route, now))


def held_for_workspace(authority: Authority, sink: Sink, activation_id: str, now: Micros) -> Held | None:
    """Return how a delivery is held whose workspace this worker's file system does not have (DESIGN §6), else None."""
    activation = authority.activation(activation_id) if sink.workspace else None
    workspace = None if activation is None else activation.workspace
    # Not Path.is_dir: it raises where the folder may not be looked at, or its name is too long here.
    if workspace is None or os.path.isdir(workspace):  # noqa: PTH112
        return None
    return Held(WORKSPACE_NOT_SERVED, now + WORKSPACE_RECHECK_MICROS)


def sink_view(one: Judged) -> Delivery:
    """Return the delivery as its sink sees it; only for an admitted attempt."""
    claimed, activation = one.claimed, one.attempt.activation
    return Delivery(
        id=delivery_id(claimed.event_id, claimed.route_id),
        event_id=claimed.event_id.hex(),
        route_id=claimed.route_id,
        tenant=claimed.tenant,
        principal=claimed.owner,
        publisher=claimed.publisher,
        project=claimed.project,
        pack_id=claimed.pack_id,
        ref=claimed.ref,
        land="personal" if one.attempt.trigger is None else one.attempt.trigger.land,
        subject=claimed.subject,
        occurred_at=claimed.occurred_at,
        accepted_at=claimed.accepted_at,
        body=claimed.body,
        attempt=claimed.attempt,
        workspace=None if activation is None else activation.workspace,
        route_options={},
    )
