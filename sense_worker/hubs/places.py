"""Where sealed material stands apart from its row: a file of this host, or the desktop's keyring (DESIGN §5)."""

from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE_LIMIT = 262_144
"""Bytes of a sealed file: a connect command answers 64 KiB at most, and sealing adds a third."""
ANSWER_S = 10.0
"""How long a keyring may take: a call needs milliseconds, but a locked one asks a person who may not be there."""
ENCRYPTED = frozenset(
    f"keyring.backends.{name}" for name in ("SecretService", "libsecret", "kwallet", "macOS", "Windows")
)
"""The library's own backends that encrypt. Others are not taken: some of them write plain files."""
MISSING = "the library is not installed (pip install 'sense-worker[keyring]')"


class FilePlace:
    """One file a credential, 0600, in a folder that its owner alone may read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def usable(self) -> bool:
        """Tell that every host has files."""
        return True

    def get(self, key: str) -> bytes | None:
        """Return the token, or None where there is no file. Raises OSError, also for a file that others may read."""
        try:
            # No link is followed, and the open of a pipe in the place would wait for a writer that never comes.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(self._file(key), flags)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077:
                raise PermissionError("no regular file of its owner alone")
            return file.read(FILE_LIMIT)

    def put(self, key: str, token: bytes) -> None:
        """Write the token, whole or not at all. Raises UsageError."""
        from sense_worker.operator.acting import write_private  # late: the operator's module has hubs itself

        write_private(self._file(key), token.decode("ascii"))

    def drop(self, key: str) -> None:
        """Remove the file."""
        self._file(key).unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.sealed"


class Desktop(NamedTuple):
    """The keyring of this host's desktop, or why there is none."""

    backend: Any
    reason: str = ""


def desktop_keyring() -> Desktop:
    """Return the backend that encrypts, as the library is configured on this host; never one that does not."""
    try:
        import keyring
    except ImportError:
        return Desktop(None, MISSING)
    try:
        chosen: Any = keyring.get_keyring()
    except Exception as error:  # noqa: BLE001 - backends are loaded by their entry points
        return Desktop(None, f"the library has no backend: {type(error).__name__}")
    for backend in getattr(chosen, "backends", None) or [chosen]:
        if type(backend).__module__ in ENCRYPTED:
            return Desktop(backend)
    return Desktop(None, f"{type(chosen).__module__} is no keyring that encrypts")


class DesktopPlace:
    """The keyring of this host's desktop, looked for at the first need; one call at a time."""

    def __init__(self, service: str, look: Callable[[], Desktop] | None = None) -> None:
        self._service = service
        self._look = look or desktop_keyring
        self._found: Desktop | None = None
        self._looking = threading.Lock()
        self._turn = threading.Lock()

    def usable(self) -> bool:
        """Tell whether there is one that encrypts."""
        return self._desktop().backend is not None

    def get(self, key: str) -> bytes | None:
        """Return the token. Raises whatever the backend raises, TimeoutError where it does not answer."""
        token = self._asked(lambda backend: backend.get_password(self._service, key))
        return None if token is None else str(token).encode("ascii")

    def put(self, key: str, token: bytes) -> None:
        """Keep the token."""
        self._asked(lambda backend: backend.set_password(self._service, key, token.decode("ascii")))

    def drop(self, key: str) -> None:
        """Remove the token where it is there."""

        def dropped(backend: Any) -> None:
            if backend.get_password(self._service, key) is not None:
                backend.delete_password(self._service, key)

        self._asked(dropped)

    def _desktop(self) -> Desktop:
        with self._looking:
            if self._found is None:
                self._found = self._look()
            return self._found

    def _asked(self, question: Callable[[Any], Any]) -> Any:
        """Ask in a thread of its own, which can be left behind: a prompt that nobody answers ends nothing else."""
        if not self._turn.acquire(timeout=ANSWER_S):
            raise TimeoutError
        answer: list[tuple[Any, Exception | None]] = []

        def ask() -> None:
            try:
                answer.append((question(self._desktop().backend), None))
            except Exception as error:  # noqa: BLE001 - told to who asked
                answer.append((None, error))
            finally:
                self._turn.release()

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(ANSWER_S)
        if not answer:
            raise TimeoutError
        value, error = answer[0]
        if error is not None:
            raise error
        return value
