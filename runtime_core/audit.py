"""The audit: one line a decision, chained and tamper-evident (§9.6, DESIGN §9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class AuditRecord(NamedTuple):
    """The tuple of §9.6 and what decided. Never args, data or secrets.

    `principal` and `binding` are distinct fields (§9.6.4); binding is None for Sense and before a mint.
    """

    action: str
    """`sense.accept`, `sense.refuse`, `sense.deliver`, `sense.lost`, `exec`, `exec.begin`, `exec.end`, or an operator's
    action such as `grant.add`."""
    ok: bool
    tenant: str | None
    principal: str | None
    project: str | None = None
    binding: str | None = None
    pack_id: str | None = None
    key: str | None = None
    """verb_key or ref."""
    operation: str | None = None
    """`read` or `write` (§4.2)."""
    publisher: str | None = None
    subject: str | None = None
    """What it is about: a delivery id, event id, stream id, or a row an operator changed."""
    reason: str | None = None
    """The exact refusal text; None when ok."""


class AuditLog(Protocol):
    """Appends records durably and in order."""

    def probe(self) -> None:
        """Raise AuditUnavailable where nothing could be appended now; cheap."""
        ...

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Append all or none; on return they are durable. Raises AuditUnavailable."""
        ...
