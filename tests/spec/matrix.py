"""The adversarial matrix: of two refusals that apply at once, the one that stands earlier in the table wins.

A fault is one way to bring one refusal about: the values it gives to slots of a world. Two faults can be had together
unless they want a slot to be two things; two refusals exclude each other where no two of their faults can.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Fault(NamedTuple):
    """One way to bring a refusal about."""

    refusal: str
    name: str
    slots: dict[str, Any]


def merged(*faults: Fault) -> dict[str, Any] | None:
    """Return the slots of a world with all these faults, or None where they want a slot to be two things."""
    slots: dict[str, Any] = {}
    for fault in faults:
        if any(slots.get(slot, value) != value for slot, value in fault.slots.items()):
            return None
        slots |= fault.slots
    return slots


class Matrix:
    """A table of refusals in its order, the faults that bring each about, and the pairs that exclude each other."""

    def __init__(
        self, order: Sequence[str], faults: Iterable[Fault], excluded: dict[str, Iterable[tuple[str, str]]]
    ) -> None:
        self.order = list(order)
        self.faults: dict[str, list[Fault]] = {refusal: [] for refusal in order}
        for fault in faults:
            self.faults[fault.refusal].append(fault)
        self.excluded = {pair for pairs in excluded.values() for pair in pairs}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every pair, the earlier one first, that is not excluded."""
        return [pair for pair in combinations(self.order, 2) if pair not in self.excluded]

    def both(self, earlier: str, later: str) -> list[tuple[Fault, Fault]]:
        """Return the faults of both that can be had together."""
        found = product(self.faults[earlier], self.faults[later])
        return [pair for pair in found if merged(*pair) is not None]

    def wrong(self) -> list[tuple[str, str]]:
        """Return the pairs that are neither tested nor excluded, or both."""
        return [pair for pair in combinations(self.order, 2) if (pair in self.excluded) == bool(self.both(*pair))]

    def all_later(self, first: Fault) -> list[Fault]:
        """Return the fault with one of each later refusal that can join it, in the order of the table."""
        joined = [first]
        for refusal in self.order[self.order.index(first.refusal) + 1 :]:
            fitting = (fault for fault in self.faults[refusal] if merged(*joined, fault) is not None)
            joined += [fault for fault in [next(fitting, None)] if fault is not None]
        return joined

    def left_out(self, joined: list[Fault]) -> list[str]:
        """Return the later refusals that could have joined: neither joined, nor excluded with one that did."""
        there = [fault.refusal for fault in joined]
        later = self.order[self.order.index(there[0]) + 1 :]
        return [
            refusal
            for refusal in later
            if refusal not in there
            and not any(pair in self.excluded for one in there for pair in ((one, refusal), (refusal, one)))
        ]
