"""What an item of the inbox is, for who writes or reads one without SQL of its own (docs/inbox.md)."""

from __future__ import annotations

from typing import NamedTuple

OPEN = ("unseen", "seen", "read")
"""States of what lies in the inbox."""
AWAY = ("archived", "snoozed")
"""States of what was put away; a snoozed item comes back by time."""
STATES = (*OPEN, *AWAY)


class InboxItem(NamedTuple):
    """One row of the inbox; the fields are COLUMNS in their order."""

    event_id: bytes
    route_id: str
    tenant: str
    principal: str
    project: str | None
    publisher: str
    pack_id: str
    ref: str
    land: str
    subject: str | None
    occurred_at: str
    accepted_at: int
    """Microseconds since the epoch, UTC."""
    body: bytes
    number: int | None
    """Ascending in the order in which the principal's items were committed or woke; None until it is taken in."""
    state: str
    snooze_ends_at: int | None
    """Microseconds since the epoch, UTC; None unless it is snoozed."""


COLUMNS = InboxItem._fields


def shared_in(land: str, project: str | None) -> str:
    """Return the project on whose membership the access to an item depends, empty where it depends on none.

    Data of land brain belongs to its project; whatever else names a project is its principal's own (§4.3).
    """
    return project or "" if land == "brain" else ""
