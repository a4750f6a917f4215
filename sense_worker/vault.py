"""Vault: secrets at rest (DESIGN §3). Fernet keys seal and open; other keys are derived from the first of them.

The keys come from SENSE_SECRET_KEYS or from `$HCP_HOME/secret.keys`, one a line, the current one first. There is no
way to run without: a missing, empty or dangling key stops the start (C11).
"""

from __future__ import annotations

import base64
import os
import secrets
import stat
from typing import TYPE_CHECKING

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from runtime_core.errors import HcpError, SettingsError
from runtime_core.folders import sync_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

    from sense_worker.settings import Settings

KEY_BYTES = 32
KEY_FILE = "secret.keys"
KEY_FILE_LIMIT = 65_536
"""Bytes read of a key file: room for a thousand keys, and an end for what is no key file."""
_ENV = "SENSE_SECRET_KEYS"
_INIT = "run `sense-worker init`, or set SENSE_SECRET_KEYS"


class Vault:
    """Seals and opens small secrets, and derives keys. Holds key material: never printed, never stored."""

    __slots__ = ("_fernet", "_keys")

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError("a vault needs at least one key, each of 32 bytes")
        self._keys = tuple(keys)
        self._fernet = MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys])

    @classmethod
    def load(cls, settings: Settings) -> Self:
        """Read the keys of SENSE_SECRET_KEYS, else of the key file. Raises SettingsError naming what is wrong."""
        if settings.secret_keys is not None:
            return cls(_parsed(settings.secret_keys.get_secret_value().split(","), _ENV, "entry"))
        place = str(settings.key_file)
        lines = _read(settings.key_file).decode("ascii", "replace").splitlines()
        keys = _parsed([line for line in lines if line.strip()], place, "line")
        if not keys:
            raise SettingsError(place, "the key file is empty", f"remove it, then {_INIT}")
        return cls(keys)

    @staticmethod
    def create(home: Path) -> bool:
        """Make `home` (0700) and its key file (0600) with one new key; False where something stands there already.

        Any number of processes may call it at once: one wins, and nobody sees a file without its key.
        """
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = home / f".{KEY_FILE}.{secrets.token_hex(8)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(Fernet.generate_key() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            # A link fails where the name exists, also as a dangling link; a rename would replace another's key.
            os.link(draft, home / KEY_FILE)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        sync_folder(home)
        return True

    def seal(self, plain: bytes) -> bytes:
        """Encrypt under the first key; the token is ASCII."""
        return self._fernet.encrypt(plain)

    def open(self, token: bytes) -> bytes:
        """Decrypt a token sealed under any of the keys. Raises HcpError where none opens it."""
        try:
            return self._fernet.decrypt(token)
        except InvalidToken:
            raise _unopened() from None

    def rotate(self, token: bytes) -> bytes:
        """Seal anew under the first key what any of the keys opens. Raises HcpError where none does."""
        try:
            return self._fernet.rotate(token)
        except InvalidToken:
            raise _unopened() from None

    def derive(self, label: str) -> bytes:
        """Return the 32 bytes for `label` under the first key (HKDF-SHA256)."""
        return _derived(self._keys[0], label)

    def derive_all(self, label: str) -> tuple[bytes, ...]:
        """Return the bytes for `label` under every key, current first: what an older one marked is still read."""
        return tuple(_derived(key, label) for key in self._keys)


def _derived(key: bytes, label: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"sense-worker:" + label.encode()).derive(key)


def _unopened() -> HcpError:
    return HcpError(
        "sealed secret",
        "no key opens it",
        f"its key is missing: add the key it was sealed under to {_ENV} or $HCP_HOME/{KEY_FILE}",
    )


def _parsed(texts: Sequence[str], place: str, unit: str) -> list[bytes]:
    keys = []
    for number, text in enumerate(texts, 1):
        try:
            key = base64.b64decode(text.strip(), altchars=b"-_", validate=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise SettingsError(place, f"{unit} {number} is no Fernet key (32 bytes in URL-safe base64)", _INIT)
        keys.append(key)
    return keys


def _read(file: Path) -> bytes:
    place = str(file)
    try:
        # Not blocking: the open of a pipe in the place would wait for a writer that never comes.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if file.is_symlink():
            raise SettingsError(place, "the key file is a dangling link", f"remove it, then {_INIT}") from None
        raise SettingsError(place, "the key file is missing", _INIT) from None
    except OSError as error:
        raise SettingsError(place, f"the key file cannot be read: {error.strerror}", _INIT) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SettingsError(place, "the key file is no regular file", f"remove it, then {_INIT}")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise SettingsError(place, "others may read the key file", f"chmod 600 {place}")
        return os.read(descriptor, KEY_FILE_LIMIT)
    finally:
        os.close(descriptor)
