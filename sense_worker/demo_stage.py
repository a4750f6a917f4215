"""Where the demo plays: a temporary folder with a home and a git repository, and `sense-worker up` running on it.

Nothing outside is read: the caller's SENSE_ settings, git configuration and hooks stay out. At the end, also after a
failure or Ctrl-C, its processes and files are gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from runtime_core.errors import HcpError, UsageError
from sense_worker.settings import PREFIX, Settings
from sense_worker.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_T = TypeVar("_T")

STOP_S = 15.0
"""From SIGTERM to SIGKILL for `up`; an orderly stop takes about 2 s."""
LOOK_S = 0.1
TAIL_LINES = 30
_STRANGERS = (PREFIX, "GIT_", "HCP_", "PYTHON")
"""What the caller's environment may not bring in: settings, another repository, other modules."""


class DemoFailed(HcpError):
    """Something that the demo says did not happen."""


def expect(what: str, actual: object, expected: object) -> None:
    """Raise DemoFailed where something is not as the demo says."""
    if actual != expected:
        raise DemoFailed("demo", f"{what}: {actual!r} instead of {expected!r}")


class Stage:
    """The folder and the processes of one demo."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = folder / "repository"
        self.log = folder / "up.log"
        self.env = _environment(folder)
        self.settings = Settings.load(self.env)
        self._up: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start `up`; its log goes to a file of the folder."""
        with self.log.open("ab") as log:
            self._up = subprocess.Popen(
                tethered([sys.executable, "-m", "sense_worker.cli.main", "up"], signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.folder,
                start_new_session=True,  # a terminal's Ctrl-C is for the demo, which then stops it in order
            )

    def stop(self) -> int | None:
        """Stop `up` in order and return its exit code; None where it was not running."""
        up, self._up = self._up, None
        if up is None:
            return None
        up.terminate()
        try:
            return up.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(up.pid, signal.SIGKILL)
            return up.wait()

    def until(self, look: Callable[[], _T | None], within_s: float, what: str) -> _T:
        """Return what `look` finds, looking again and again. Raises DemoFailed after `within_s`, or once `up` ended."""
        give_up = time.monotonic() + within_s
        while True:
            found = look()
            if found is not None:
                return found
            if self._up is not None and self._up.poll() is not None:
                raise DemoFailed("sense-worker up", f"ended with {self._up.returncode} while {what} was awaited")
            if time.monotonic() >= give_up:
                raise DemoFailed("demo", f"{what}: not within {within_s:g} s")
            time.sleep(LOOK_S)

    def run(self, *argv: str, cwd: Path | None = None) -> str:
        """Run a program in the repository and return what it prints. Raises DemoFailed with its own last line."""
        done = subprocess.run(
            argv, cwd=cwd or self.repository, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise DemoFailed(argv[0], f"exit code {done.returncode}: {said[-1] if said else 'no message'}")
        return done.stdout.decode(errors="replace").strip()

    def log_tail(self) -> list[str]:
        """Return the last lines of the log of `up`."""
        try:
            return self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        except OSError:
            return []


@contextmanager
def staged(*, keep: bool, on_failure: Callable[[list[str]], None]) -> Iterator[Stage]:
    """Make a stage and clear it away, whatever happens; `on_failure` gets the end of the log before that.

    `keep` leaves the folder. SIGTERM ends it like Ctrl-C. Raises UsageError where there is no git.
    """
    if shutil.which("git") is None:
        raise UsageError("demo", "there is no git on PATH", "install git")
    with _handled(_interrupt, signal.SIGTERM):
        folder = Path(tempfile.mkdtemp(prefix="sense-demo-"))
        stage: Stage | None = None
        whole = False
        try:
            stage = Stage(folder)
            yield stage
            whole = True
        finally:
            with _handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM):  # a second Ctrl-C would leave a part behind
                if stage is not None:
                    stage.stop()
                    if not whole:
                        on_failure([*stage.log_tail(), *([f"kept: {folder}"] if keep else [])])
                if not keep:
                    shutil.rmtree(folder, ignore_errors=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None] | signal.Handlers, *numbers: int) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


def _environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith(_STRANGERS)}
    return {
        **inherited,
        "HCP_HOME": str(folder / "home"),
        "SENSE_INTAKE": "1",  # three events: the fewest processes start soonest
        "SENSE_CONCURRENCY": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ana",
        "GIT_AUTHOR_EMAIL": "ana@example.com",
        "GIT_COMMITTER_NAME": "Ana",
        "GIT_COMMITTER_EMAIL": "ana@example.com",
        "PYTHON": sys.executable,  # for the installer of the hooks
    }
