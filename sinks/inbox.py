"""The `inbox` sink: one row a delivery in the ledger's database, written where the delivery is settled (exactly once).

It keeps principals apart by itself: every row names the principal it is for, and reading asks for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

import sqlalchemy as sa

from sinks.inbox_tables import COLUMNS, InboxItem, counter, item, metadata
from sinks.protocol import SinkBase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.protocol import Delivery, RowWriter

__all__ = ["COLUMNS", "Inbox", "InboxItem", "counter", "item", "metadata", "read_items"]

_WRITTEN = COLUMNS[: COLUMNS.index("number")]
"""What a delivery tells; the rest begins with its default."""


class Inbox(SinkBase):
    """A TransactionalSink: `write` runs in the ledger's own transaction, and there is no other way in."""

    kind: ClassVar[str] = "inbox"
    partitioned: ClassVar[bool] = True
    transactional: ClassVar[bool] = True
    local: ClassVar[bool] = True
    batch_size: ClassVar[int] = 500

    def write(self, batch: Sequence[Delivery], rows: RowWriter) -> None:
        """Write one row a delivery; a row that exists stays as it is. Raises what the database raises."""
        from_hex = bytes.fromhex
        rows.insert(
            "inbox_item",
            _WRITTEN,
            [
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
                )
                for d in batch
            ],
        )

    def deliver(self, batch: Sequence[Delivery]) -> NoReturn:
        """Raise: a row outside the settling transaction could stand without its delivery, or the other way round."""
        raise RuntimeError(f"the inbox is written in the ledger's transaction; {len(batch)} deliveries were not taken")


def read_items(connection: sa.Connection, tenant: str, principal: str | None, limit: int) -> list[InboxItem]:
    """Return the newest items of a principal, or with None of the whole tenant, newest first, `limit` at most."""
    newest = (item.c.accepted_at.desc(), item.c.event_id, item.c.route_id)
    query = sa.select(item).where(item.c.tenant == tenant).order_by(*newest).limit(limit)
    if principal is not None:
        query = query.where(item.c.principal == principal)
    return [InboxItem(*row) for row in connection.execute(query)]
