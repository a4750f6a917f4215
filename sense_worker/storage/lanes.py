"""Lanes of deliveries: one for each sink of a tenant, named `<tenant>/<sink>` (DESIGN §6)."""

from __future__ import annotations


def lane_of(tenant: str, sink: str) -> str:
    """Return the lane in which a sink's deliveries wait. No tenant's name holds a slash."""
    return f"{tenant}/{sink}"


def split_lane(lane: str) -> tuple[str, str]:
    """Return tenant and sink of a lane."""
    tenant, _, sink = lane.partition("/")
    return tenant, sink
