"""The file of a session: who holds it acts as its principal (DESIGN §3). Needs neither database nor server."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from typing import TYPE_CHECKING, NamedTuple

from runtime_core.errors import DoorError, UsageError
from runtime_core.strict_json import parse_object
from sense_worker.held_file import HeldFile

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

FILE_LIMIT = 65_536
WAY_OUT = "run `sense-worker init`, or set SENSE_SESSION_FILE to a session's file"


class SessionFile(NamedTuple):
    """A session as its holder has it."""

    tenant: str
    principal: str
    session_id: str
    secret: str

    @property
    def text(self) -> str:
        """The content of its file."""
        return json.dumps({"v": 1, **self._asdict()}, indent=2) + "\n"

    def write(self, path: Path) -> None:
        """Write the file, 0600, whole or not at all."""
        write_private(path, self.text)


class Draft:
    """A file for its owner's eyes that is on the disk and not in its place yet: what can fail has succeeded by then.

    A file in the place is replaced in one step: no reader sees half of it. Anything else there is refused, a link among
    it: replaced, it would leave whoever reads what it leads to with what was before. As a context manager it leaves
    nothing behind where it was not published. Raises UsageError naming the place.
    """

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
        try:
            file_stands(path)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                self.discard()
                raise
        except OSError as error:
            raise self._unwritable(error) from None

    def publish(self) -> None:
        """Put it in its place."""
        try:
            self._draft.replace(self._path)
        except OSError as error:
            self.discard()
            raise self._unwritable(error) from None

    def discard(self) -> None:
        """Remove it where it is not in its place."""
        self._draft.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.discard()

    def _unwritable(self, error: OSError) -> UsageError:
        way_out = "make room or name another place"
        return UsageError(str(self._path), f"cannot be written: {error.strerror}", way_out)


def file_stands(path: Path) -> bool:
    """Tell whether a regular file stands in a place. Raises UsageError for a link, folder, device or pipe there."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(str(path), f"cannot be written: {reason}", "name another place") from None
    if stat.S_ISLNK(mode):
        raise UsageError(str(path), "is a link", "name the file itself, or remove the link")
    if stat.S_ISDIR(mode):
        raise UsageError(str(path), f"cannot be written: {os.strerror(errno.EISDIR)}", "name a file in it")
    if not stat.S_ISREG(mode):
        raise UsageError(str(path), "is no regular file", "name another place")
    return True


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone may read, as `Draft` does. Raises UsageError naming the place."""
    Draft(path, text).publish()


def read_session(path: Path, *, private: bool = True) -> SessionFile:
    """Read a session file; raises UsageError naming the place and the way out.

    It holds a secret: with `private` one that others may read is refused.
    """
    try:
        # Not blocking: the open of a pipe in the place would wait for a writer that never comes.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(str(path), "is no regular file", WAY_OUT)
            if private and stat.S_IMODE(status.st_mode) & 0o077:
                raise UsageError(str(path), "others may read or change it, and it holds a secret", f"chmod 600 {path}")
            raw = file.read(FILE_LIMIT + 1)
        facts = parse_object(raw, limit=FILE_LIMIT, what=str(path))
    except FileNotFoundError:
        raise UsageError(str(path), "there is no session file", WAY_OUT) from None
    except OSError as error:
        raise UsageError(str(path), f"cannot be read: {error.strerror}", WAY_OUT) from None
    except DoorError as error:
        raise UsageError(error.place, error.reason, WAY_OUT) from None
    values = [facts.get(name) for name in SessionFile._fields]
    known = facts.get("v") == 1 and type(facts["v"]) is int
    if not known or not all(isinstance(value, str) and value for value in values):
        raise UsageError(str(path), "is no session file", WAY_OUT)
    return SessionFile(*(str(value) for value in values))


def held_session(path: Path) -> HeldFile[SessionFile]:
    """Return a session file, read now and again after its session was rotated. Raises UsageError like `read_session`.

    The session of another id that is put in the place is passed over: who acts does not change while one acts.
    """
    return HeldFile(path, read_session, lambda one, other: one[:3] == other[:3])
