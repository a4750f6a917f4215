"""The spool: announcements kept on this machine while the stream cannot take them (DESIGN §4).

One JSONL file (0600), only ever appended to until everything in it is sent, then cut to nothing. Two kinds of line:

    {"v":1,"origin":"TENANT/PRINCIPAL/PACK","id":"…","body":"…","tp":null}    kept; body holds ref, data, occurred_at
    {"v":1,"sent":N}                                                        everything before byte N has been sent

An announcement counts as kept once its line and the fsync after it succeeded; a line without its end was never kept
and is cut. A lost mark only means that some are sent again, under the same ids, which intake knows as repeats.

Two locks (flock), so that a process with an announcement never waits for another's timeouts: the file itself, held for
one append or one read; and FILE.sending, held by the one process that is sending what is kept.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from runtime_core.errors import PublishError
from runtime_core.folders import sync_folder
from sense_worker.announcement import Prepared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MARK = b'{"v":1,"sent":'
_OPEN = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Spool:
    """The kept announcements of one origin in one file, shared by any number of processes."""

    def __init__(self, path: Path, origin: str) -> None:
        self.path = path
        self.origin = origin

    def holds(self) -> bool:
        """Tell whether anything is kept; costs one stat."""
        try:
            return self.path.stat().st_size > 0
        except FileNotFoundError:
            return False
        except OSError as error:
            raise unusable(self.path, error) from error

    def keep(self, items: Sequence[Prepared]) -> None:
        """Append the announcements in order, all or none. Raises PublishError where the disk does not take them."""
        head = {"v": 1, "origin": self.origin}
        lines = [
            _line({**head, "id": item.message_id, "body": item.body.decode(), "tp": item.traceparent}) for item in items
        ]
        try:
            with self.locked() as descriptor:
                _append(descriptor, b"".join(lines), sync=True)
        except OSError as error:
            raise unusable(self.path, error) from error

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Open the file, made where it is missing, and hold its lock."""
        while True:
            descriptor = self._opened(self.path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _is_at(descriptor, self.path):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)

    def sending_lock(self) -> int | None:
        """Return a descriptor that holds the right to send, or None while another process holds it."""
        descriptor = self._opened(self.path.with_name(f"{self.path.name}.sending"))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return descriptor

    def parse(self, line: bytes, at: int) -> Prepared:
        """Read a line that keeps an announcement. Raises PublishError for another's or for what is no such line."""
        try:
            found: dict[str, Any] = json.loads(line)
            origin, kept = found["origin"], Prepared(str(found["id"]), found["body"].encode(), found["tp"])
        except (ValueError, TypeError, KeyError, AttributeError):
            raise PublishError(
                f"{self.path} at byte {at}", "no line of a spool", "move the file away, then send what it holds by hand"
            ) from None
        if origin != self.origin:
            reason = f"kept for {origin}, not for {self.origin}"
            raise PublishError(f"{self.path} at byte {at}", reason, "name one spool for each activation")
        return kept

    def _opened(self, path: Path) -> int:
        descriptor = os.open(path, _OPEN, 0o600)
        try:
            if _size(descriptor) == 0:
                sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


class Sender:
    """The one process that sends what is kept: `claim`, then `take` and `sent` in turns, then `release`."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._lock: int | None = None
        self._file: int | None = None
        self._at = 0
        self._ends: list[int] = []

    def claim(self) -> bool:
        """Take the right to send; False while another process has it. Raises PublishError where files are broken."""
        try:
            self._lock = self._spool.sending_lock()
            if self._lock is None:
                return False
            with self._spool.locked() as descriptor:
                self._begin(descriptor)
        except OSError as error:
            self.release()
            raise unusable(self._spool.path, error) from error
        return True

    def take(self, count: int, size: int) -> list[Prepared]:
        """Return the next ones in order, at most `count` and about `size` bytes.

        An empty list: nothing is kept any more, the file has been emptied, and the right to send given back.
        """
        try:
            with self._spool.locked() as descriptor:
                taken = self._read(descriptor, count, size)
                if not taken:
                    os.ftruncate(descriptor, 0)
                    # Under the file's lock: who appends next finds nobody sending, and sends it.
                    self.release()
                return taken
        except OSError as error:
            raise unusable(self._spool.path, error) from error

    def sent(self, count: int) -> None:
        """Note that the first `count` of those taken are on the stream."""
        if count == 0:
            return
        self._at = self._ends[count - 1]
        # A mark that a full disk does not take costs repeats, not events.
        with suppress(OSError), self._spool.locked() as descriptor:
            if self._is_held(descriptor):
                _append(descriptor, b"%b%d}\n" % (_MARK, self._at), sync=False)

    def release(self) -> None:
        """Give the right to send back; twice is once."""
        for descriptor in (self._lock, self._file):
            if descriptor is not None:
                os.close(descriptor)
        self._lock = self._file = None

    def _begin(self, descriptor: int) -> None:
        """Go to the last mark, and hold the file open: its number is then given to no other file."""
        if self._file is not None:
            os.close(self._file)
        self._file = os.open(self._spool.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._at = _last_mark(descriptor)

    def _is_held(self, descriptor: int) -> bool:
        same = self._file is not None and os.path.sameopenfile(descriptor, self._file)
        return same and _size(descriptor) >= self._at

    def _read(self, descriptor: int, count: int, size: int) -> list[Prepared]:
        if not self._is_held(descriptor):
            # Somebody put another file in the place, or cut it: the position means nothing in it.
            self._begin(descriptor)
        taken: list[Prepared] = []
        self._ends = []
        at = self._at
        for line in _lines(descriptor, at):
            if not line.startswith(_MARK):
                if taken and (len(taken) == count or size < len(line)):
                    break
                taken.append(self._spool.parse(line, at))
                self._ends.append(at + len(line))
                size -= len(line)
            at += len(line)
        return taken


def unusable(path: Path, error: OSError) -> PublishError:
    """Return what to raise where the files of a spool cannot be read or written."""
    way_out = "make room there or name another place"
    return PublishError(str(path), f"the spool cannot be used: {error.strerror}", way_out)


def _line(document: dict[str, object]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _append(descriptor: int, data: bytes, *, sync: bool) -> None:
    """Append whole lines or nothing; a line that a power cut left without its end is cut first."""
    size = _whole_size(descriptor)
    os.ftruncate(descriptor, size)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if sync:
            os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _whole_size(descriptor: int) -> int:
    """Return where the last whole line ends."""
    size = _size(descriptor)
    while size:
        start = max(0, size - 65_536)
        block = os.pread(descriptor, size - start, start)
        if (newline := block.rfind(b"\n")) >= 0:
            return start + newline + 1
        size = start
    return 0


def _lines(descriptor: int, at: int) -> Iterator[bytes]:
    with open(descriptor, "rb", closefd=False) as reader:
        reader.seek(at)
        yield from (line for line in reader if line.endswith(b"\n"))


def _last_mark(descriptor: int) -> int:
    mark = 0
    for line in _lines(descriptor, 0):
        if line.startswith(_MARK):
            with suppress(ValueError):
                mark = int(line[len(_MARK) : -2])
    return mark


def _size(descriptor: int) -> int:
    return os.fstat(descriptor).st_size


def _is_at(descriptor: int, path: Path) -> bool:
    """Tell whether the open file still is the one of that name: somebody may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
