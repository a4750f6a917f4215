"""The SQLite file of a database: opened only where it is, and known again by its device and inode.

SQLite makes the file that it does not find, so that a mere look at a wrong path would leave an empty database there.
And it writes on into a file whose name is gone: nobody could ever read what was acknowledged then.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runtime_core.errors import SettingsError

_OPENINGS = 3
"""An open for writing may give a file another inode (overlayfs copies it up), so it is looked at before and after."""


class SqliteFile:
    """One path, and which file stood there when this process first opened it."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()
        self._known: tuple[int, int] | None = None

    def create(self) -> None:
        """Make the file, empty, where none is; a link that leads nowhere gets its target. Raises SettingsError."""
        try:
            # Exclusive: to open and close a file that is in use would drop this process's own locks on it.
            os.close(os.open(self.path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        except FileExistsError:
            return
        except OSError as error:
            way_out = "name a place in a folder that exists and can be written"
            raise SettingsError("SENSE_DATABASE_URL", f"{self.path}: {error.strerror}", way_out) from None

    def connect(self, _dialect: object, _record: object, _args: list[Any], parameters: dict[str, Any]) -> Any:
        """Open the file (`do_connect` of the engine). Raises SettingsError where none is there."""
        for _ in range(_OPENINGS):
            before = self._identity()
            if before is None:
                reason = f"there is no database at {self.path}"
                raise SettingsError("SENSE_DATABASE_URL", reason, "run `sense-worker init`, which makes it")
            connection = sqlite3.connect(f"file:{quote(str(self.path))}?mode=rw", uri=True, **parameters)
            if self._identity() == before:
                self._known = self._known or before
                return connection
            connection.close()
        raise SettingsError("SENSE_DATABASE_URL", f"{self.path} is replaced again and again", "look who writes there")

    def stands(self) -> bool:
        """Say whether the path leads to the file that was opened; true before anything was."""
        return self._known is None or self._identity() == self._known

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
