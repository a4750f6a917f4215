"""A file that one living process holds: the kernel lets go of it however the process ends."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def claim(path: Path, *, wait_s: float = 0.0) -> int | None:
    """Hold `path` and return its descriptor; None where another process holds it for all of `wait_s` seconds.

    The file keeps the holder's process id for `holder`. A child that inherits the descriptor holds it too.
    """
    # Never with O_TRUNC: the holder's id must stay readable for the one who does not get it.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.05)  # flock with a timeout does not exist; 20 looks a second cost nothing
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return descriptor


def holder(path: Path) -> int | None:
    """Return the process id written in `path`, None where it holds no number or does not exist."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None
