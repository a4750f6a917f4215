"""One append for what several threads have to record at the same time: an fsync costs the same for one and for ten."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_core.audit import AuditLog, AuditRecord


class GroupAudit:
    """An AuditLog over another. Whoever comes while an append is under way is in the next one, together."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._turn = threading.Lock()
        self._list = threading.Lock()
        self._waiting: list[_Entry] = []

    def probe(self) -> None:
        """Raise AuditUnavailable where nothing could be appended now."""
        self._log.probe()

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Append all or none; on return they are durable. Raises AuditUnavailable, as everybody of the group does."""
        mine = _Entry(records)
        with self._list:
            self._waiting.append(mine)
        with self._turn:
            if not mine.done:
                self._append_group()
        if mine.error is not None:
            raise mine.error

    def _append_group(self) -> None:
        with self._list:
            group, self._waiting = self._waiting, []
        error: Exception | None = None
        try:
            self._log.append([record for entry in group for record in entry.records])
        except Exception as caught:  # noqa: BLE001 - told to each of the group, in its own thread
            error = caught
        for entry in group:
            entry.done, entry.error = True, error


class _Entry:
    __slots__ = ("done", "error", "records")

    def __init__(self, records: Sequence[AuditRecord]) -> None:
        self.records = records
        self.done = False
        self.error: Exception | None = None
