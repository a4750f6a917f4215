"""What is kept of a sink's words, and of its exceptions: their kind and place, never their text (C53)."""

from __future__ import annotations

from runtime_core.errors import printable

REASON_LIMIT = 500
"""Characters of a sink's reason that are kept: enough for a status and a cause, too short for a page."""


def kept(reason: str) -> str:
    """Return what is kept of a sink's own words, a reason or a receipt: printable, and cut."""
    return printable(reason)[:REASON_LIMIT]


def origin(error: BaseException) -> str:
    """Return the file and line that raised it."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return "at an unknown place"
    return f"at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"


def raised(error: BaseException) -> str:
    """Return the reason of a Retry for what `deliver` raised: its text may hold an address or a secret."""
    return kept(f"sink raised {type(error).__name__}, {origin(error)}")
