"""Cut a child's output into lines fit for a log: whole, printable, bounded."""

from __future__ import annotations

from dataclasses import dataclass

from runtime_core.errors import printable

LINE_LIMIT = 8_192
"""Bytes of a line that are kept; a traceback's line is under 1,000, a runaway dump may be megabytes."""


@dataclass(slots=True)
class LineCutter:
    """Feed it bytes as they come; it gives whole lines, without control characters, the tails of long ones counted."""

    _kept: bytes = b""
    _dropped: int = 0

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines that `chunk` completes."""
        *whole, last = chunk.split(b"\n")
        lines = []
        for piece in whole:
            self._take(piece)
            lines.append(self._finish())
        self._take(last)
        return lines

    def rest(self) -> list[str]:
        """Return what came after the last line's end, at the end of the output."""
        return [self._finish()] if self._kept or self._dropped else []

    def _take(self, piece: bytes) -> None:
        room = LINE_LIMIT - len(self._kept)
        self._kept += piece[:room]
        self._dropped += max(0, len(piece) - room)

    def _finish(self) -> str:
        text = printable(self._kept.decode("utf-8", "replace").rstrip("\r"))
        cut = f" [cut: {self._dropped} more bytes]" if self._dropped else ""
        self._kept, self._dropped = b"", 0
        return text + cut
