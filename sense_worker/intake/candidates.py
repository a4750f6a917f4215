"""Candidates: which routes get a Delivery of an event, and why the others that match do not (DESIGN §6.2).

    pack, ref, expiry → project → land → what the owner may know → filter

A filter is asked last, and only for an owner who may know the event: what it answers tells of the event's data.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from runtime_core import pipeline
from sense_worker.filters import NO, Filtering

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runtime_core.authority import Authority
    from runtime_core.identity import Activation, Micros, Route
    from runtime_core.pipeline import Facts

NO_ROUTE = "no route"
REASONS = 1_000
"""Different reasons that one receipt keeps apart."""
OTHERS = "filter error: others"


class Reason(NamedTuple):
    """Why a matching route gets no Delivery. `owner`: whose it is, where its owner may know the text."""

    text: str
    owner: str | None = None


class Announced(NamedTuple):
    """An event as its routes are chosen by: who announced it, what, and what a filter sees of it."""

    authority: Authority
    activation: Activation
    facts: Facts
    land: str
    now: Micros
    filtering: Filtering


def candidates(event: Announced) -> tuple[tuple[Route, ...], Counter[Reason]]:
    """Split the matching routes into those that get a Delivery and a count by reason of those that do not."""
    chosen = []
    without: Counter[Reason] = Counter()
    for route, reason in matching(event):
        if reason is None:
            chosen.append(route)
        else:
            without[reason if reason in without or len(without) < REASONS else Reason(OTHERS)] += 1
    if not chosen and not without:
        without[Reason(NO_ROUTE)] = 1
    return tuple(chosen), without


def matching(event: Announced) -> Iterator[tuple[Route, Reason | None]]:
    """Yield each matching route with why it gets no Delivery, None for a candidate.

    A route matches by pack and ref while it has not expired; one with a project matches only that project's events,
    and one with a filter only those for which that is true. A filter that cannot be evaluated is a reason.
    """
    for route in event.authority.routes(event.facts.pack_id, event.facts.ref).values():
        if route.expires_at is not None and event.now >= route.expires_at:
            continue
        if route.project is None or route.project == event.activation.project_id:
            reason = refusal(event, route)
            if reason is None or reason.text != NO:
                yield route, reason


def refusal(event: Announced, route: Route) -> Reason | None:
    """Tell why a route gets no Delivery of an event of its ref and project, NO among the texts; None: a candidate."""
    authority, facts = event.authority, event.facts
    text = pipeline.candidate_refusal(authority, event.activation, event.land, facts.publisher, route.owner)
    if text is not None:
        return Reason(text)
    if route.filter is None:
        return None
    text = _may_not_know(event, route) or event.filtering.says(route.owner, route.filter)
    return None if text is None else Reason(text, route.owner)


def _may_not_know(event: Announced, route: Route) -> str | None:
    """Tell why the owner may not have the event's data, None where it may: the publisher knows its own.

    Without a filter such a route gets its Delivery, and that is denied.
    """
    if route.owner == event.facts.publisher:
        return None
    one = pipeline.attempt(event.authority, event.facts, route, event.now)
    found = pipeline.authenticate(one) or pipeline.require_capability(one)
    return found.text if isinstance(found, pipeline.Refused) else None
