"""The sandbox of a wrapped binary: what it sees, how much it may take, and how it ends (§1.5.sandbox, DESIGN §5)."""

from __future__ import annotations

import functools
import json
import os
import selectors
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

PATH = "/usr/local/bin:/usr/bin:/bin"
ENV_ALLOWED = frozenset({"LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "NO_COLOR", "TERM", "TZ"})
"""Names a pack may ask for: nothing among them is anybody's credential."""
MEMORY_BYTES = 4 * 1024**3
FILE_BYTES = 1024**3
OPEN_FILES = 256
STOP_S = 5.0
"""How long the launcher has to end the tree before it is killed itself; it needs milliseconds."""
_CHUNK = 65_536
_LOOK_S = 0.05
"""How often a run is looked at that says nothing: whether it is cancelled, or late."""
_LAUNCH = Path(__file__).with_name("launch.py")


class Limits(NamedTuple):
    """What one run may take."""

    timeout_s: float
    output_bytes: int


class Ended(NamedTuple):
    """How a run ended; exactly one of code, timed_out, over_output, cancelled and failed says so."""

    stdout: bytes = b""
    stderr: bytes = b""
    code: int | None = None
    timed_out: bool = False
    over_output: bool = False
    cancelled: bool = False
    failed: str | None = None
    """Why the binary could not be started."""


def environment(declared: Sequence[str], minted: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the whole environment of a tool: three fixed names, what it declared and may have, what was minted."""
    passed = {name: os.environ[name] for name in declared if name in ENV_ALLOWED and name in os.environ}
    return {"PATH": PATH, "HOME": str(home), "TMPDIR": str(home), **passed, **minted}


def run(
    binary: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    limits: Limits,
    *,
    jailed: bool,
    writable: Sequence[Path] = (),
    cancelled: threading.Event | None = None,
) -> Ended:
    """Run a binary to its end and return how it ended; afterwards nothing of its tree is alive.

    `jailed`: no new privileges, and inside bubblewrap where that works here; it may write to the `writable` folders.
    """
    spec_argv = [os.path.basename(binary), *argv]  # noqa: PTH119 - the name as the tool knows itself
    program = binary
    if jailed and bubblewrap() is not None:
        program, spec_argv = _wrapped(binary, spec_argv, cwd, writable)
    report_read, report_write = os.pipe()
    spec = {
        "parent": os.getpid(),
        "binary": program,
        "argv": spec_argv,
        "cwd": str(cwd),
        "timeout_s": limits.timeout_s,
        "limits": {
            "RLIMIT_CPU": int(limits.timeout_s) + 2,
            "RLIMIT_AS": MEMORY_BYTES,
            "RLIMIT_FSIZE": FILE_BYTES,
            "RLIMIT_NOFILE": OPEN_FILES,
            "RLIMIT_CORE": 0,
        },
        "no_new_privileges": jailed,
        "report": report_write,
    }
    try:
        with subprocess.Popen(
            [sys.executable, "-I", "-S", str(_LAUNCH), json.dumps(spec)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            pass_fds=(report_write,),
            start_new_session=True,
        ) as launcher:
            os.close(report_write)
            report_write = -1
            return _Collector(launcher, report_read, limits, cancelled).ended()
    except OSError as error:
        return Ended(failed=error.strerror or "cannot be started")
    finally:
        os.close(report_read)
        if report_write >= 0:
            os.close(report_write)


class _Collector:
    """Reads both outputs of a run up to the limit, and its report; stops the launcher where there is a reason to."""

    def __init__(
        self, launcher: subprocess.Popen[bytes], report: int, limits: Limits, cancelled: threading.Event | None
    ) -> None:
        self._launcher = launcher
        self._report = report
        self._limits = limits
        self._cancelled = cancelled
        outputs = [stream.fileno() for stream in (launcher.stdout, launcher.stderr) if stream is not None]
        self._taken = {at: bytearray() for at in (*outputs, report)}
        self._outputs = outputs

    def ended(self) -> Ended:
        """Return how the run ended."""
        with selectors.DefaultSelector() as selector:
            for at in self._taken:
                selector.register(at, selectors.EVENT_READ)
            stopped = self._read(selector)
            # What the dead tree has left in the pipes.
            while selector.get_map() and self._take(selector, 0):
                continue
        self._launcher.wait()
        if self._over:
            return Ended(over_output=True)
        if stopped and self._is_cancelled:
            return Ended(cancelled=True)
        stdout, stderr = (bytes(self._taken[at]) for at in self._outputs)
        told = json.loads(self._taken[self._report] or b'{"timed_out": true}')
        return Ended(stdout, stderr, **told)

    def _read(self, selector: selectors.BaseSelector) -> bool:
        """Read until the report is there; returns whether the launcher was stopped before."""
        stopped = False
        ends = time.monotonic() + self._limits.timeout_s + STOP_S
        while self._report in selector.get_map():
            self._take(selector, _LOOK_S)
            late = time.monotonic() > ends
            if stopped and late:
                self._launcher.kill()
                break
            if not stopped and (late or self._over or self._is_cancelled):
                stopped = True
                self._launcher.terminate()
                ends = time.monotonic() + STOP_S
        return stopped

    def _take(self, selector: selectors.BaseSelector, wait_s: float) -> bool:
        """Take what is there; beyond the limit it is read, so that the tool can end, and dropped."""
        ready = selector.select(wait_s)
        for key, _ in ready:
            chunk = os.read(key.fd, _CHUNK)
            if not chunk:
                selector.unregister(key.fd)
            elif not self._over:
                self._taken[key.fd] += chunk
        return bool(ready)

    @property
    def _over(self) -> bool:
        return sum(len(self._taken[at]) for at in self._outputs) > self._limits.output_bytes

    @property
    def _is_cancelled(self) -> bool:
        return self._cancelled is not None and self._cancelled.is_set()


@functools.cache
def bubblewrap() -> str | None:
    """Return the path of a bubblewrap that works here, probed once a process; None where there is none."""
    path = shutil.which("bwrap", path=PATH)
    if path is None:
        return None
    probe = [path, *_WALLS, "--ro-bind", "/", "/", "--", "/bin/true"]
    try:
        done = subprocess.run(probe, capture_output=True, timeout=10, check=False, env={"PATH": PATH})
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path if done.returncode == 0 else None


_WALLS = ("--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session")


def _wrapped(binary: str, argv: Sequence[str], cwd: Path, writable: Sequence[Path]) -> tuple[str, list[str]]:
    """Return bubblewrap with the binary inside: the file system read-only but for the folders it may write to."""
    walls = [*_WALLS, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108 - its own
    for folder in writable:
        walls += ["--bind", str(folder), str(folder)]
    return str(bubblewrap()), ["bwrap", *walls, "--chdir", str(cwd), "--", binary, *argv[1:]]
