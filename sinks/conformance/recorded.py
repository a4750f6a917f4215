"""Everything a piece of code says: log records of every level with their exceptions, standard output and error."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Record(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.NOTSET)
        self._said = said
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._said.append(self.format(record) + "\n")
        except (TypeError, ValueError, KeyError):
            self._said.append(f"{record.msg} {record.args!r}\n")


@contextmanager
def recorded(capfd: Any) -> Iterator[list[str]]:
    """Collect what is said in the block; `capfd` is pytest's fixture. The list is whole when the block ends."""
    said: list[str] = []
    handler, root = _Record(said), logging.getLogger()
    level = root.level
    capfd.readouterr()
    root.addHandler(handler)
    root.setLevel(logging.NOTSET)
    try:
        yield said
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        said += capfd.readouterr()
