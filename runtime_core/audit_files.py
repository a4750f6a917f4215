"""The files of an audit chain: the form of a line, the names, the lock, and reading from the end.

A line is one JSON object in ASCII, its fields always all there and in this order: `at`, the fields of AuditRecord,
`seq`, `prev`, `mac`. `mac` is HMAC-SHA256 over the line's bytes before `,"mac"`, so over `prev` too. It stands last
so that the end of a file tells where the chain goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

GENESIS = "0" * 64
"""`prev` of line 1."""
_END = rb',"seq":([1-9][0-9]{0,17}),"prev":"([0-9a-f]{64})","mac":"([0-9a-f]{64})"\}'
LINE = re.compile(rb"\{.*" + _END)
_END_OF_FILE = re.compile(_END + rb"\n\Z")
END_BYTES = 192
"""Enough to hold the end of a line: 18 digits, two MACs and the names between take 182."""
MAC_BYTES = len(b',"mac":"') + 64 + len(b'"}')
_CHUNK = 65_536


class Head(NamedTuple):
    """Where a chain stands: the number and MAC of its last line; (0, GENESIS) before the first."""

    seq: int
    mac: str


class Ending(NamedTuple):
    """How a file ends. `head` is its last whole line's, None where it has none.

    `fragment` is what follows the last newline: None for nothing, empty for a line that lacks only its newline.
    """

    head: Head | None
    fragment: bytes | None


def lock_file(path: Path) -> Path:
    """Return the lock beside the chain; it stays when the chain rotates."""
    return path.with_name(f"{path.name}.lock")


def rotated_files(path: Path) -> list[Path]:
    """Return the finished files of the chain, oldest first: `audit-<first seq>.jsonl` beside `audit.jsonl`."""
    form = re.compile(re.escape(path.stem) + r"-([0-9]{1,18})(?:-([0-9]{1,9}))?" + re.escape(path.suffix))
    matches = filter(None, map(form.fullmatch, os.listdir(path.parent)))  # noqa: PTH208 - names are all that is wanted
    found = sorted((int(match[1]), int(match[2] or 1), match[0]) for match in matches)
    return [path.with_name(name) for _, _, name in found]


def rotated_name(path: Path, first: int) -> Path:
    """Return a free name for a finished file: nothing that stands there is ever replaced."""
    file, count = path.with_name(f"{path.stem}-{first}{path.suffix}"), 1
    while os.path.lexists(file):
        count += 1
        file = path.with_name(f"{path.stem}-{first}-{count}{path.suffix}")
    return file


def first_seq(path: Path) -> int:
    """Return the number of the first whole line; 0 where there is none."""
    with path.open("rb") as lines:
        matches = (LINE.fullmatch(line.rstrip(b"\n")) for line in lines)
        return next((int(match[1]) for match in matches if match), 0)


def read_ending(descriptor: int, size: int) -> Ending:
    """Read how the first `size` bytes of a file end; one small read where the last line is whole."""
    match = _END_OF_FILE.search(os.pread(descriptor, END_BYTES, max(0, size - END_BYTES)))
    if match:
        return Ending(Head(int(match[1]), match[3].decode()), None)
    fragment: bytes | None = None
    for number, line in enumerate(_lines_backwards(descriptor, size)):
        found = LINE.fullmatch(line)
        if number == 0 and line:
            fragment = b"" if found else line
        if found:
            return Ending(Head(int(found[1]), found[3].decode()), fragment)
    return Ending(None, fragment)


def newest_head(path: Path) -> Head:
    """Return the head of the newest finished file that has a whole line, (0, GENESIS) where none has."""
    for file in reversed(rotated_files(path)):
        with file.open("rb") as opened:
            ending = read_ending(opened.fileno(), os.fstat(opened.fileno()).st_size)
        if ending.head:
            return ending.head
    return Head(0, GENESIS)


def tail(path: Path, count: int) -> list[dict[str, Any]]:
    """Return the last `count` whole lines as objects, oldest first. Takes no lock; raises OSError."""
    found: list[dict[str, Any]] = []
    current = [path] if path.exists() else []
    for file in reversed([*rotated_files(path), *current]):
        with file.open("rb") as opened:
            for line in _lines_backwards(opened.fileno(), os.fstat(opened.fileno()).st_size):
                if len(found) >= count:
                    return found[::-1]
                if LINE.fullmatch(line):
                    found.append(json.loads(line))
    return found[::-1]


def _lines_backwards(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield what follows the last newline (empty in a sound file), then each line before it without its newline."""
    rest, start, step = b"", size, _CHUNK
    while start > 0:
        read_from = max(0, start - step)
        pieces = (os.pread(descriptor, start - read_from, read_from) + rest).split(b"\n")
        yield from reversed(pieces[1:])
        rest, start = pieces[0], read_from
        step = _CHUNK if len(pieces) > 1 else step * 2  # a long line is not read over and over
    yield rest


class ChainLock:
    """The exclusive lock of one chain, over processes and threads; a context manager. Raises OSError.

    It follows a folder that was removed and made again: a lock on a file nobody finds any more locks nobody out.
    """

    descriptor = -1

    def __init__(self, path: Path) -> None:
        self._file = lock_file(path)
        self._threads = threading.Lock()
        _LOCKS.add(self)

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        self._threads.acquire()
        try:
            while not self._taken():
                self.close()
        except BaseException:
            self._threads.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def close(self) -> None:
        """Forget the descriptor; the next use opens the lock anew."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def forget(self) -> None:
        """Start anew in a child: the parent's lock is shared over a fork and would lock neither out."""
        self.close()
        self._threads = threading.Lock()

    def _taken(self) -> bool:
        if self.descriptor < 0:
            self.descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        try:
            there = os.stat(self._file)  # noqa: PTH116 - a Path costs more than the call
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self.descriptor))


_LOCKS: weakref.WeakSet[ChainLock] = weakref.WeakSet()


def _forget_locks() -> None:
    # At the fork itself, not at the next use: a child that never appends would hold a dead parent's lock for ever.
    for lock in list(_LOCKS):
        lock.forget()


os.register_at_fork(after_in_child=_forget_locks)
