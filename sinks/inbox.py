"""The `inbox` sink: one row a delivery in the ledger's database, written where the delivery is settled (exactly once).

It keeps principals apart by itself: every row names the principal it is for, and reading asks for one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sinks.inbox_items import COLUMNS, shared_in
from sinks.protocol import SinkBase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sinks.protocol import Delivery, RowWriter

_WRITTEN = COLUMNS[: COLUMNS.index("number") + 1]
"""What a delivery tells, and its number; the rest begins with its default."""
_Key = tuple[str, str, str]
_KEY = ("tenant", "principal", "project")
_ADDED = ("number", "unseen")


class Inbox(SinkBase):
    """A TransactionalSink: `write` runs in the ledger's own transaction, and there is no other way in."""

    kind: ClassVar[str] = "inbox"
    partitioned: ClassVar[bool] = True
    transactional: ClassVar[bool] = True
    local: ClassVar[bool] = True
    batch_size: ClassVar[int] = 500

    def write(self, batch: Sequence[Delivery], rows: RowWriter) -> None:
        """Write one row a delivery and count it; a row that exists stays as it is, and its count too.

        Two statements for a batch without repeats, whatever the number of principals. Raises what the database raises.
        """
        arrived: dict[tuple[str, str, str], int] = {}
        for d in batch:
            key = (d.tenant, d.principal, shared_in(d.land, d.project))
            arrived[key] = arrived.get(key, 0) + 1
        numbers = _take_numbers(arrived, rows)
        from_hex = bytes.fromhex
        written = [
            (
                from_hex(d.event_id),
                d.route_id,
                d.tenant,
                d.principal,
                d.project,
                d.publisher,
                d.pack_id,
                d.ref,
                d.land,
                d.subject,
                d.occurred_at,
                d.accepted_at,
                d.body,
                next(numbers[d.tenant, d.principal]),
            )
            for d in batch
        ]
        if rows.insert("inbox_item", _WRITTEN, written) < len(written):
            _take_back(written, rows)

    def deliver(self, batch: Sequence[Delivery]) -> NoReturn:
        """Raise: a row outside the settling transaction could stand without its delivery, or the other way round."""
        raise RuntimeError(f"the inbox is written in the ledger's transaction; {len(batch)} deliveries were not taken")


def _take_numbers(arrived: Mapping[_Key, int], rows: RowWriter) -> dict[tuple[str, str], Iterator[int]]:
    """Count what arrived, with its principals' rows locked in key order; returns the numbers of each one's items."""
    owned: dict[tuple[str, str], int] = {}
    for (tenant, principal, _), count in arrived.items():
        owned[tenant, principal] = owned.get((tenant, principal), 0) + count
    own = {(*owner, ""): (count, arrived.get((*owner, ""), 0)) for owner, count in owned.items()}
    shared = {key: (0, count) for key, count in arrived.items() if key[2]}
    counted = rows.add("inbox_counter", _KEY, _ADDED, sorted((*key, *added) for key, added in (own | shared).items()))
    return {owner: itertools.count(counted[*owner, ""][0] - count + 1) for owner, count in owned.items()}


def _take_back(written: Sequence[tuple[Any, ...]], rows: RowWriter) -> None:
    """Take from the counters what was there before. Its numbers stay unused: a gap, which no reader minds."""
    events = list({row[0]: None for row in written})
    there = rows.query(
        f"SELECT event_id, route_id, number FROM inbox_item WHERE event_id IN ({', '.join('?' * len(events))})",  # noqa: S608
        events,
    )
    kept = {(bytes(event), route): number for event, route, number in there}
    repeats: dict[_Key, int] = {}
    for event, route, tenant, principal, project, _, _, _, land, *_, number in written:
        if kept[event, route] != number:
            key = (tenant, principal, shared_in(land, project))
            repeats[key] = repeats.get(key, 0) - 1
    rows.add("inbox_counter", _KEY, _ADDED, sorted((*key, 0, count) for key, count in repeats.items()))
