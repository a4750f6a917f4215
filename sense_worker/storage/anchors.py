"""Anchors: heads of a host's audit chain, kept where its file is not (DESIGN §9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime_core.audit_files import Head
    from sense_worker.storage.rows import Rows

HOUR_MICROS = 3_600_000_000


def keep_anchor(rows: Rows, chain: str, head: Head, now: int) -> None:
    """Keep a head. Of each hour only the newest stays: a chain cut or rewritten shows against any one of them."""
    rows.execute("DELETE FROM sense_audit_anchor WHERE chain = ? AND at >= ?", (chain, now - now % HOUR_MICROS))
    rows.insert("sense_audit_anchor", ("chain", "seq", "mac", "at"), [(chain, head.seq, head.mac, now)])


def anchors_of(rows: Rows, chain: str) -> list[tuple[int, str]]:
    """Return the kept heads of a chain as (seq, mac), oldest first."""
    found = rows.query("SELECT seq, mac FROM sense_audit_anchor WHERE chain = ? ORDER BY seq", (chain,))
    return [(int(seq), str(mac)) for seq, mac in found]
