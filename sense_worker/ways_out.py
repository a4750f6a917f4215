"""What to do about a delivery that waits or was denied: one line for each reason that somebody can end."""

from __future__ import annotations

from typing import NamedTuple

from runtime_core.errors import (
    LAND_LOCAL,
    LAND_PERSONAL,
    MISSING_SENSE_ENABLE,
    SINK_DISABLED,
    SINK_MISSING,
    SINK_OUTSIDE_PROJECT,
    SINK_PAUSED,
    SINK_UNOPENED,
)


class Wanted(NamedTuple):
    """What was to go where: names as `sense-worker route add` takes them."""

    publisher: str
    owner: str
    pack_id: str
    ref: str
    sink: str
    project: str | None


def way_out(reason: str | None, wanted: Wanted) -> str | None:
    """Return what ends this reason, or None where nothing here does; no value of an option stands in it."""
    if reason is None:
        return None
    if reason == LAND_PERSONAL.text() and wanted.publisher != wanted.owner:
        return f"a route of {wanted.publisher}'s own: personal data goes to nobody else"
    by_text = {
        LAND_PERSONAL.text(): _another_sink("KIND", f"principal:{wanted.owner}") + ", or to an inbox",
        LAND_LOCAL.text(): _another_sink("jsonl --option workspace:=true", f"principal:{wanted.owner}")
        + ", and `activate --workspace`",
        SINK_OUTSIDE_PROJECT.text(): _another_sink("KIND", f"project:{wanted.project or 'NAME'}"),
        MISSING_SENSE_ENABLE.text(): (
            f"`grant add {wanted.owner} sense.enable --pack {wanted.pack_id} --key {wanted.ref}`, "
            "then `deliveries replay`"
        ),
        SINK_MISSING: f"`sink add {wanted.sink} KIND`",
        SINK_PAUSED: f"`sink resume {wanted.sink}`",
    }
    if reason in by_text:
        return by_text[reason]
    if reason.startswith(SINK_UNOPENED.partition("{}")[0]):
        return "mend it where the worker runs, in its settings and packages, and start that again"
    if reason.startswith(SINK_DISABLED.partition("{}")[0]):
        return f"when the receiver takes events again: `sink resume {wanted.sink}`"
    return None


def _another_sink(kind: str, audience: str) -> str:
    return f"a sink's audience cannot be changed: `sink add NAME {kind} --audience {audience}` and a route to it"
