"""Appending whole lines to a file that many processes append to, and reaching a file without following links.

Writers take turns under `flock`, each appends all of its lines or takes the file back to where it was. The file belongs
to these writers: a stranger who appends without the lock may lose what he wrote when a full disk undoes a batch.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LOCK_PAUSES_S = (0.001, 0.02)
"""First and longest pause between two tries for the lock."""
_REOPENS = 3

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: a pipe or device in the place of the file must not hang the open. O_RDWR: the last byte is read.
_FILE = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class NotPlain(Exception):
    """A link, or something that is no regular file, stands where a plain folder or file has to be."""


@contextmanager
def folder(path: str) -> Iterator[int]:
    """Open a folder by its path; links on the way are followed. Raises OSError."""
    handle = os.open(path, _FOLDER)
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def folder_beneath(root: str, names: Sequence[str]) -> Iterator[int]:
    """Open the folder `names` beneath `root`, making what is missing (0700) and following no link beneath `root`.

    Raises NotPlain for a link, OSError for `root` missing and the rest.
    """
    with folder(root) as above:
        here = os.dup(above)
        try:
            for name in names:
                below = _enter(here, name)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)


def append(within: int, name: str, lines: bytes, *, give_up: float, follow: bool, fsync: bool) -> None:
    """Append `lines` whole to the file `name` in the open folder `within`, or leave the file as it was.

    A new file is made with mode 0600. A last line without its newline is closed first. With `fsync` the lines are on
    the disk when this returns. With `follow` the file may be a link; without, neither a symbolic nor a hard one.
    `give_up`: the moment of `time.monotonic` after which the lock is not waited for; one try is always made.
    Raises NotPlain, and OSError for a full disk, a lock not had in time and the rest.
    """
    for _ in range(_REOPENS):
        handle = _open_file(within, name, follow=follow)
        try:
            _lock(handle, give_up)
            try:
                # Removed between the open and the lock: lines written there would be lost with it.
                if os.fstat(handle).st_nlink:
                    _append_locked(handle, within, lines, fsync=fsync)
                    return
            finally:
                # By name, not by closing: a child forked meanwhile holds the same lock.
                fcntl.flock(handle, fcntl.LOCK_UN)
        finally:
            os.close(handle)
    raise OSError(errno.ESTALE, "the file is removed again and again")


def _enter(above: int, name: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above)
        _sync_folder(above)
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    except OSError as error:
        # Linux answers ENOTDIR for a link to a folder, others ELOOP.
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise NotPlain(f"a link or a file stands in the place of the folder {name}") from None
        raise


def _open_file(within: int, name: str, *, follow: bool) -> int:
    try:
        handle = os.open(name, _FILE if follow else _FILE | os.O_NOFOLLOW, 0o600, dir_fd=within)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise NotPlain(f"a link stands in the place of the file {name}") from None
        raise
    found = os.fstat(handle)
    refusal = None
    if not stat.S_ISREG(found.st_mode):
        refusal = f"{name} is no regular file"
    elif found.st_nlink > 1 and not follow:
        refusal = f"{name} has {found.st_nlink} hard links"
    if refusal is not None:
        os.close(handle)
        raise NotPlain(refusal)
    return handle


def _lock(handle: int, give_up: float) -> None:
    """Take the lock; a blocking `flock` has no time limit, so it is asked for again and again."""
    pause, longest = _LOCK_PAUSES_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock of the file") from None
        else:
            return
        time.sleep(pause)
        pause = min(2 * pause, longest)


def _append_locked(handle: int, within: int, lines: bytes, *, fsync: bool) -> None:
    size = os.fstat(handle).st_size
    torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
    try:
        _write(handle, b"\n" + lines if torn else lines)
        if fsync:
            os.fsync(handle)
    except BaseException:
        # Best effort: where even this fails, the next writer closes the torn line.
        with suppress(OSError):
            os.ftruncate(handle, size)
        raise
    if fsync and not size:
        _sync_folder(within)


def _write(handle: int, data: bytes) -> None:
    """Write all: one call, unless it is cut short; the call after a cut tells why (ENOSPC, EFBIG)."""
    done = os.write(handle, data)
    while done < len(data):
        done += os.write(handle, memoryview(data)[done:])


def _sync_folder(handle: int) -> None:
    # Some file systems refuse it for folders; the file's own fsync tells of a bad disk.
    with suppress(OSError):
        os.fsync(handle)
