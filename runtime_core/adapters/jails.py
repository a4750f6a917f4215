"""Jails: the folder of its own that each run of a wrapped binary gets, and that is gone after it (§1.5.sandbox)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "run-"
_YOUNG_S = 60
"""A folder younger than this may not be locked yet by the run that has just made it."""
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def jail(root: Path) -> Iterator[Path]:
    """Make a folder under `root`, which is made too, and remove it at the end. Raises OSError.

    It is locked while the run lives: what a killed worker left is told from what is in use by that.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=os.path.realpath(root)))
    descriptor = os.open(folder, _FLAGS)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        _remove(folder, descriptor)
        os.close(descriptor)


def sweep(root: Path) -> int:
    """Remove the folders of runs whose worker was killed; returns how many. Those in use, and young ones, stay."""
    swept = 0
    for folder in Path(os.path.realpath(root)).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, _FLAGS)
            try:
                if time.time() - os.fstat(descriptor).st_ctime > _YOUNG_S:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(folder, descriptor)
                    swept += 1
            finally:
                os.close(descriptor)
    return swept


def _remove(folder: Path, descriptor: int) -> None:
    """Remove a folder whatever a tool made in it: any depth, any mode, no link followed.

    What stands in a folder of it moves up, so that there is never more than one folder between: no path grows long and
    nothing recurses.
    """
    mark, number = secrets.token_hex(8), 0
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, 0o700)
    names = os.listdir(descriptor)
    while names:
        name = names.pop()
        if _unlinked(name, descriptor):
            continue
        with contextlib.suppress(OSError):
            inner = os.open(name, _FLAGS, dir_fd=descriptor)
            try:
                for below in os.listdir(inner):  # noqa: PTH208 - by descriptor
                    if not _unlinked(below, inner):
                        number += 1
                        os.rename(below, f"{mark}-{number}", src_dir_fd=inner, dst_dir_fd=descriptor)
                        names.append(f"{mark}-{number}")
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=descriptor)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _unlinked(name: str, within: int) -> bool:
    """Remove what is no folder; open a folder to its owner, so that it can be emptied and moved."""
    try:
        os.unlink(name, dir_fd=within)
    except OSError:
        with contextlib.suppress(OSError):
            place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
            try:
                Path(f"/proc/self/fd/{place}").chmod(0o700)
            finally:
                os.close(place)
        return False
    return True
