"""ChainedAudit: the audit as one chain of JSON lines that many processes append to (§9.6, DESIGN §9).

Whole batches, one write and one fsync each, under one lock. What a crash left half written is closed with a newline
and vouched for by the next line, so that `verify` tells it from a line that was changed. What disappeared stays
visible: the chain goes on from memory, and the gap shows.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.audit import AuditRecord
from runtime_core.audit_files import (
    GENESIS,
    ChainLock,
    Head,
    first_seq,
    newest_head,
    read_ending,
    rotated_name,
    tail,
)
from runtime_core.errors import AuditUnavailable
from runtime_core.folders import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from runtime_core.identity import Micros

TORN = "audit.torn"
"""The action of the line that vouches for a fragment a crash left; its subject is `<length>:<SHA-256 in hex>`."""
ROTATE_BYTES = 67_108_864
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PROBE_BYTES = 4_096
_REMEMBERED = 4_096
_REMEMBERED_LENGTH = 128


class _Known(NamedTuple):
    """What is known of the file. One value, set in one step: a fork or a time limit never sees half of it."""

    size: int
    head: Head
    fragment: bytes | None


class ChainedAudit:
    """An AuditLog over one chained file. Safe for threads, processes and forks; reads `clock` once a batch.

    `key` is the audit key. `rotate_bytes` is the size a file does not grow past by a further batch. `on_rotate` is
    called after an append that rotated, with the head of the finished file, outside the lock.
    """

    _file = -1

    def __init__(
        self,
        path: Path,
        key: bytes,
        *,
        clock: Callable[[], Micros],
        fsync: bool = True,
        rotate_bytes: int = ROTATE_BYTES,
        on_rotate: Callable[[Head], None] | None = None,
    ) -> None:
        if not key:
            raise ValueError("the audit key must not be empty")
        self._path = path
        self._mac = hmac.new(key, digestmod="sha256")
        self._clock = clock
        self._fsync = fsync
        self._rotate_bytes = rotate_bytes
        self._on_rotate = on_rotate
        self._text = _Texts()
        self._lock = ChainLock(path)
        self._known = _Known(-1, Head(0, GENESIS), None)
        self._wanted = 0

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Append all or none; on return they are durable (§9.6.1). Raises AuditUnavailable; may be called again."""
        if not records:
            return
        at = _rfc3339(self._clock())
        bodies = [self._body(at, record) for record in records]
        try:
            with self._lock:
                finished = self._append(at, bodies)
        except OSError as error:
            raise self._unavailable(error) from error
        if finished and self._on_rotate:
            self._on_rotate(finished)

    def head(self) -> Head:
        """Return the chain's head, other processes' lines included. Raises AuditUnavailable."""
        try:
            with self._lock:
                return self._refresh().head
        except OSError as error:
            raise self._unavailable(error) from error

    def probe(self) -> None:
        """Raise AuditUnavailable where an append could not succeed now; appends nothing.

        The room is tried on the lock file, in the size of the batch that last failed.
        """
        try:
            with self._lock as lock:
                self._probe(lock.descriptor)
        except OSError as error:
            raise self._unavailable(error) from error

    def tail(self, count: int) -> list[dict[str, Any]]:
        """Return the last `count` lines as objects, oldest first. Raises AuditUnavailable."""
        try:
            return tail(self._path, count)
        except OSError as error:
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Close the files; a later append opens them again."""
        self._lock.close()
        self._close()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, at: str, bodies: list[bytes]) -> Head | None:
        size, head, fragment = self._refresh()
        if fragment:
            subject = f"{len(fragment)}:{hashlib.sha256(fragment).hexdigest()}"
            bodies = [self._body(at, AuditRecord(TORN, False, None, None, subject=subject)), *bodies]
        lines, after = self._chained(head, bodies)
        finished = None
        if fragment is not None:
            lines = b"\n" + lines
        elif size and size + len(lines) > self._rotate_bytes:
            size, finished = self._rotate(), head
        self._write(lines, size)
        self._known = _Known(size + len(lines), after, None)
        return finished

    def _refresh(self) -> _Known:
        """Learn what other processes did to the file since this one used it; two system calls where nothing."""
        try:
            status = os.stat(self._path)  # noqa: PTH116 - a Path costs more than the call
        except FileNotFoundError:
            status = self._open(created=True)
        else:
            if self._file < 0 or not os.path.samestat(status, os.fstat(self._file)):
                status = self._open(created=False)
        if status.st_size != self._known.size:
            head, fragment = read_ending(self._file, status.st_size)
            head = head or newest_head(self._path)
            if head.seq < self._known.head.seq:  # lines are gone: go on from memory, and `verify` shows the gap
                head = self._known.head
            self._known = _Known(status.st_size, head, fragment)
        return self._known

    def _open(self, *, created: bool) -> os.stat_result:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "Not a regular file")
        self._close()
        self._file, self._known = descriptor, self._known._replace(size=-1)
        if created and self._fsync:
            sync_folder(self._path.parent)
        return status

    def _rotate(self) -> int:
        self._path.rename(rotated_name(self._path, first_seq(self._path)))
        return self._open(created=True).st_size

    def _chained(self, head: Head, bodies: list[bytes]) -> tuple[bytes, Head]:
        seq, mac = head.seq, head.mac.encode()
        copy, lines = self._mac.copy, []
        for body in bodies:
            seq += 1
            text = b'%b,"seq":%d,"prev":"%b"' % (body, seq, mac)
            keyed = copy()
            keyed.update(text)
            mac = keyed.hexdigest().encode()
            lines.append(b'%b,"mac":"%b"}\n' % (text, mac))
        return b"".join(lines), Head(seq, mac.decode())

    def _write(self, lines: bytes, size: int) -> None:
        rest = memoryview(lines)
        try:
            while rest:  # a full disk takes a part first and fails at the rest
                rest = rest[os.write(self._file, rest) :]
            if self._fsync:
                os.fsync(self._file)
        except BaseException:  # also a time limit raised in between: no half line stays for the next to join
            self._wanted = len(lines)
            with suppress(OSError):
                os.ftruncate(self._file, size)
            raise
        self._wanted = 0

    def _probe(self, spare: int) -> None:
        if self._path.exists():
            opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
            regular = stat.S_ISREG(os.fstat(opened).st_mode)
            os.close(opened)
            if not regular:
                raise OSError(errno.EINVAL, "Not a regular file")
        elif not os.access(self._path.parent, os.W_OK):
            raise OSError(errno.EACCES, "the folder cannot be written")
        room = max(_PROBE_BYTES, self._wanted)
        try:
            if os.pwrite(spare, bytes(room), 0) < room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.ftruncate(spare, 0)

    def _body(self, at: str, record: AuditRecord) -> bytes:
        text = self._text
        action, ok, tenant, principal, project, binding, pack_id, key, operation, publisher, subject, reason = record
        line = (
            f'{{"at":"{at}","action":{text[action]},"ok":{"true" if ok else "false"},"tenant":{text[tenant]},'
            f'"principal":{text[principal]},"project":{text[project]},"binding":{text[binding]},'
            f'"pack_id":{text[pack_id]},"key":{text[key]},"operation":{text[operation]},'
            f'"publisher":{text[publisher]},"subject":{_quoted(subject)},"reason":{text[reason]}'
        )
        return line.encode()

    def _unavailable(self, error: OSError) -> AuditUnavailable:
        reason = error.strerror or type(error).__name__
        return AuditUnavailable(str(self._path), reason, "repair the place or make room; work resumes by itself")


class _Texts(dict[str | None, str]):
    """JSON texts of values that come again and again: tenants, packs, keys, reasons. Bounded."""

    def __missing__(self, value: str | None) -> str:
        quoted = _quoted(value)
        if len(quoted) <= _REMEMBERED_LENGTH:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[value] = quoted
        return quoted


def _quoted(value: str | None) -> str:
    return "null" if value is None else encode_basestring_ascii(value)  # escapes all but visible ASCII


def _rfc3339(moment: Micros) -> str:
    return (_EPOCH + timedelta(microseconds=moment)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
