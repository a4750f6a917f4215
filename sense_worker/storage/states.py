"""The states of a delivery, and the one table that says which may follow which (DESIGN §6)."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a delivery stands; no command moves a settled one, and two of them the table lets go back to pending."""

    PENDING = "pending"
    DELIVERING = "delivering"
    RETRYING = "retrying"
    HELD = "held"
    DELIVERED = "delivered"
    DENIED = "denied"
    DEAD = "dead"
    CANCELLED = "cancelled"


MAY_FOLLOW: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.DELIVERING, State.HELD, State.CANCELLED}),
    State.RETRYING: frozenset({State.DELIVERING, State.HELD, State.CANCELLED}),
    State.HELD: frozenset({State.PENDING, State.DELIVERING, State.CANCELLED}),
    # delivering follows itself where the lease of a dead process ran out and another took it.
    State.DELIVERING: frozenset(State) - {State.PENDING},
    State.DENIED: frozenset({State.PENDING}),
    State.DEAD: frozenset({State.PENDING}),
    State.DELIVERED: frozenset(),
    State.CANCELLED: frozenset(),
}

SETTLED = frozenset({State.DELIVERED, State.DENIED, State.DEAD, State.CANCELLED})


def predecessors(state: State) -> tuple[str, ...]:
    """Return the states that `state` may follow, in a fixed order, for the WHERE of an UPDATE."""
    return tuple(before.value for before, after in MAY_FOLLOW.items() if state in after)


REPLAYABLE = tuple(state for state in predecessors(State.PENDING) if State(state) in SETTLED)
"""`denied` and `dead`."""


def in_list(*states: State | str) -> str:
    """Return the states as an SQL list of literals: planners match it against the partial index."""
    return ", ".join(f"'{State(state).value}'" for state in states)
