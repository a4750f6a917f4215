"""Which events of a new route would be denied by their land whatever comes: told when it is added (§4.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime_core.grants import GrantTable
from runtime_core.identity import Activation, Credential
from runtime_core.pipeline import Attempt, Facts, require_land
from sense_worker.ways_out import Wanted, way_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runtime_core.authority import Authority
    from runtime_core.identity import Route
    from runtime_core.pack import Trigger

SHOWN = 5
"""Triggers that one warning names."""


def land_warnings(authority: Authority, route: Route, triggers: Iterable[Trigger]) -> Iterator[str]:
    """Yield a line for each reason for which the sink of a route may hold none of these triggers, with the way out.

    Judged is the best that may come: an event of the owner's own, out of a workspace and of the project. Nothing is
    said of a sink that cannot be read here.
    """
    sink = authority.sink(route.sink)
    if sink is None or not sink.lands:
        return
    project = route.project or (sink.audience_id if sink.audience == "project" else None)
    denied: dict[str, list[str]] = {}
    for trigger in triggers:
        if trigger.land == "brain" and sink.audience == "principal" and project is None:
            continue  # its project decides, and whether that principal is in it then
        announced = Activation("", route.tenant, "", route.pack_id, project, "/", False, Credential(b""))
        facts = Facts(b"", route.tenant, route.pack_id, trigger.ref, "", route.owner)
        rows = (authority, None, trigger, announced, None, None, GrantTable(()), None, sink)
        refused = require_land(Attempt(facts, route, 0, *rows))
        if refused is not None:
            denied.setdefault(refused.text, []).append(trigger.ref)
    for text, refs in denied.items():
        more = f" and {len(refs) - SHOWN} more" if len(refs) > SHOWN else ""
        todo = way_out(text, Wanted(route.owner, route.owner, route.pack_id, refs[0], route.sink, project))
        shown = ", ".join(sorted(refs)[:SHOWN])
        yield f"sink {route.sink!r} will get no event of {shown}{more}: each is {text} ({todo})"
