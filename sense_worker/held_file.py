"""A credential's file, read again when it changes: who holds a secret goes on after a rotation without a restart."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from runtime_core.errors import HcpError

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_Mark = tuple[int, int, int, int, int]


class Held(Generic[_T]):
    """A credential that its holder has in memory alone."""

    def __init__(self, value: _T) -> None:
        self._value = value

    @property
    def path(self) -> Path | None:
        """Its place; None where it has none."""
        return None

    def renewed(self) -> _T:
        """Return it."""
        return self._value


class HeldFile(Held[_T]):
    """What a file says of one credential. Another credential in its place is passed over: nobody changes unasked.

    `read` raises HcpError for a file that cannot be used; the first time that is the caller's to see. `same` tells
    whether two readings are of one credential. May be shared by threads.
    """

    def __init__(self, path: Path, read: Callable[[Path], _T], same: Callable[[_T, _T], bool]) -> None:
        self._path = Path(os.path.abspath(path))  # noqa: PTH100 - Path.absolute keeps `..`; a later chdir moves nothing
        self._read = read
        self._same = same
        # Looked at before it is read: a change in between shows at the next look.
        mark = _mark(self._path)
        self._state = (mark, read(path))

    @property
    def path(self) -> Path:
        """Its place, absolute."""
        return self._path

    @property
    def value(self) -> _T:
        """What was read last."""
        return self._state[1]

    def changed(self) -> bool:
        """Tell whether the file is another one than was read last; costs one stat. One that is gone is no change."""
        return _mark(self._path) not in (None, self._state[0])

    def renewed(self) -> _T:
        """Return what the file says now; what was read last, where it is gone, cannot be used or is another's."""
        if self.changed():
            mark, value = _mark(self._path), self.value
            try:
                found = self._read(self._path)
            except HcpError:
                return value  # looked at again the next time: it may be readable then without a further change
            self._state = (mark, found if self._same(value, found) else value)
        return self.value


def _mark(path: Path) -> _Mark | None:
    try:
        found = path.stat()
    except OSError:
        return None
    # Also the moment of its status: a file that was closed to others again has the content it had.
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
