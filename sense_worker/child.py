"""A child process that is supervised: what to run, and one running instance of it with its pipe."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sense_worker.log_lines import LineCutter
from sense_worker.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_READ = 65_536
_LAST_READS = 16
"""Of an ended child: 1 MiB, the most a pipe holds on Linux by default. More comes only from one who escaped."""


@dataclass(frozen=True, slots=True)
class Child:
    """A program to keep running."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready: Callable[[], bool] | None = None
    """Asked until it says yes; None: ready as soon as it is started."""
    stop_timeout_s: float = 30.0
    """From SIGTERM to SIGKILL."""
    on_death: signal.Signals = signal.SIGKILL
    """What the kernel sends it when the supervisor is killed."""
    pass_fds: tuple[int, ...] = ()
    first_tries: int = 3
    """Ends before it was ever ready until the start is given up."""


class Running:
    """A started child in a session of its own, with its two outputs in one pipe. Raises OSError where none starts.

    A session of its own: a terminal's Ctrl-C does not reach it, and its whole group can be ended with it.
    """

    def __init__(self, child: Child, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._lines = LineCutter()
        self.pipe, write = os.pipe()
        try:
            self._process = subprocess.Popen(
                tethered(child.argv, child.on_death),
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=subprocess.STDOUT,
                env=dict(child.env),
                pass_fds=child.pass_fds,
                start_new_session=True,
            )
        except OSError:
            os.close(self.pipe)
            raise
        finally:
            os.close(write)
        os.set_blocking(self.pipe, False)

    @property
    def pid(self) -> int:
        """The process id, and the id of the group."""
        return self._process.pid

    def pump(self) -> bool:
        """Emit the lines that the pipe holds now; False at its end."""
        try:
            chunk = os.read(self.pipe, _READ)
        except BlockingIOError:
            return True
        for line in self._lines.feed(chunk):
            self._emit(line)
        return bool(chunk)

    def has_ended(self) -> bool:
        """Say whether it ended, without reaping it where the platform can: its id stays its own until `reap`."""
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self) -> int:
        """End what an ended child left in its group, emit its last lines, and return its code (negative: a signal)."""
        with suppress(ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        for _ in range(_LAST_READS):
            if not self.pump():
                break
        os.close(self.pipe)
        for line in self._lines.rest():
            self._emit(line)
        return code

    def terminate(self) -> None:
        """Ask it to stop: SIGTERM to the child alone, which knows how to end its own."""
        self._process.terminate()

    def kill(self) -> None:
        """End the whole group at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
