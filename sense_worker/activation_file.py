"""The file that `sense-worker activate` writes for a pack adapter: who announces, and where (DESIGN §3)."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from runtime_core.errors import DoorError, UsageError
from runtime_core.event import event_id
from runtime_core.strict_json import parse_object
from sense_worker.held_file import HeldFile

ENV = "SENSE_ACTIVATION_FILE"
_LIMIT = 65_536
"""Bytes of the file at most: it has about 400, and what is no such file must have an end."""
_WAY_OUT = f"run `sense-worker activate PACK` and set {ENV} to the file it names"
_TEXTS = ("tenant", "principal", "activation_id", "pack_id", "secret")


@dataclass(frozen=True, slots=True)
class ActivationFile:
    """An activation as its adapter holds it. The key of the signature is the UTF-8 of `secret`."""

    tenant: str
    principal: str
    activation_id: str
    pack_id: str
    secret: bytes = field(repr=False)
    redis_url: str | None = field(repr=False)
    """It may hold a password."""

    @property
    def origin(self) -> str:
        """Whose events these are: equal origins mean that one may announce what the other kept."""
        return f"{self.tenant}/{self.principal}/{self.pack_id}"

    def event_id(self, message_id: str) -> bytes:
        """Return the id under which the ledger will keep the announcement."""
        return event_id(self.tenant, self.principal, self.pack_id, message_id)


def held_activation(path: Path | None) -> HeldFile[ActivationFile]:
    """Return the file at `path`, else at SENSE_ACTIVATION_FILE, read now and again after a rotation (DESIGN §3).

    Raises UsageError naming the place and the way out.
    """
    named = str(path) if path is not None else os.environ.get(ENV, "")
    if not named:
        raise UsageError(ENV, "is not set", _WAY_OUT)
    return HeldFile(Path(named), _parsed, lambda one, other: one.origin == other.origin)


def _parsed(path: Path) -> ActivationFile:
    named = str(path)
    try:
        document = parse_object(_read(named), limit=_LIMIT, what=named)
    except DoorError as error:
        raise _refusal(error.place, error.reason) from None
    version = document.get("v")
    if version != 1 or type(version) is not int:
        raise _refusal(named, "v: must be 1")
    for name in _TEXTS:
        value = document.get(name)
        if not (isinstance(value, str) and value and value.isascii() and value.isprintable()):
            raise _refusal(named, f"{name}: must be printable ASCII text")
    redis_url = document.get("redis_url")
    if redis_url is not None and not isinstance(redis_url, str):
        raise _refusal(named, "redis_url: must be text or null")
    texts = {name: document[name] for name in _TEXTS if name != "secret"}
    return ActivationFile(**texts, secret=document["secret"].encode(), redis_url=redis_url)


def _read(named: str) -> bytes:
    try:
        # Not blocking: the open of a pipe in the place would wait for a writer that never comes.
        descriptor = os.open(named, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _refusal(named, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise _refusal(named, "is no regular file")
        if stat.S_IMODE(mode) & 0o077:
            raise UsageError(named, "others may read or change it, and it holds a secret", f"chmod 600 {named}")
        return os.read(descriptor, _LIMIT + 1)
    finally:
        os.close(descriptor)


def _refusal(named: str, reason: str) -> UsageError:
    return UsageError(named, reason, _WAY_OUT)
