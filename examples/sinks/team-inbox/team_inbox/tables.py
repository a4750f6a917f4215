"""The table, and how both sides connect to its file."""

from __future__ import annotations

import sqlite3

TABLE = """
CREATE TABLE IF NOT EXISTS item (
    id TEXT PRIMARY KEY, principal TEXT NOT NULL, project TEXT, title TEXT NOT NULL, data TEXT NOT NULL,
    occurred_at TEXT NOT NULL, seen INTEGER NOT NULL DEFAULT 0
)
"""


def connect(path: str, wait_s: float) -> sqlite3.Connection:
    """Open the file, which must be there or can be made. Raises sqlite3.Error.

    Any thread may use the connection, one at a time; every statement commits by itself unless a transaction is begun.
    """
    connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(TABLE)
    except sqlite3.Error:
        connection.close()
        raise
    return connection
