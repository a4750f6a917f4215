"""The sandbox of a wrapped binary: what it sees, how much it may take, and how it ends (§1.5.sandbox, DESIGN §5)."""

from __future__ import annotations

import marshal
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.adapters.walls import PATH, bubblewrap, walled

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

ENV_ALLOWED = frozenset({"LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "NO_COLOR", "TERM", "TZ"})
"""Names a pack may ask for: nothing among them is anybody's credential."""
STOP_S = 5.0
"""How long the launcher has to end the tree before it is killed itself; it needs milliseconds."""
_RESERVED = 16
"""Address space for each byte of memory: node's fetch reserves 8 GiB that it never uses, Go and Java do alike."""
_CPU_SLACK_S = 2
_CHUNK = 65_536
_REPORT_LIMIT = 4_096
_LOOK_S = 0.05
"""How often a run is looked at that says nothing: whether it is cancelled, or late."""
_LAUNCH = Path(__file__).with_name("launch.py")


class Ceilings(NamedTuple):
    """What any run may take, whatever its pack says; memory and files are each process's, `processes` the tree's."""

    memory_bytes: int = 2 * 1024**3
    file_bytes: int = 1024**3
    open_files: int = 1_024
    processes: int = 256


class Limits(NamedTuple):
    """What one run may take."""

    timeout_s: float
    output_bytes: int
    ceilings: Ceilings = Ceilings()


class Place(NamedTuple):
    """Where a run stands: its own folder, the folder it works in, and the folders no tool may see."""

    home: Path
    cwd: Path
    hidden: tuple[Path, ...] = ()
    named: Path | None = None
    """The folder it works in by the name that people use, where that leads through a link."""


class Ended(NamedTuple):
    """How a run ended; exactly one of the fields after the outputs says so."""

    stdout: bytes = b""
    stderr: bytes = b""
    code: int | None = None
    """As a shell tells it: 128 and the number for a signal."""
    timed_out: bool = False
    over_output: bool = False
    over_processes: bool = False
    cancelled: bool = False
    lost: bool = False
    """The launcher was ended from outside: nobody knows what the tool has done."""
    failed: str | None = None
    """Why the binary could not be started."""


def environment(declared: Sequence[str], minted: Mapping[str, str], place: Place, *, jailed: bool) -> dict[str, str]:
    """Return the whole environment of a tool: three fixed names, what it declared and may have, what was minted.

    HOME is the run's own folder; for native-local that of the worker's account. Nothing takes the fixed names' place.
    """
    passed = {name: os.environ[name] for name in declared if name in ENV_ALLOWED and name in os.environ}
    home = str(place.home) if jailed else os.environ.get("HOME", str(place.home))
    return {**passed, **minted, "PATH": PATH, "HOME": home, "TMPDIR": str(place.home)}


def run(
    binary: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    place: Place,
    limits: Limits,
    *,
    jailed: bool,
    cancelled: threading.Event | None = None,
) -> Ended:
    """Run a binary to its end and return how it ended; afterwards nothing of its tree is alive.

    `jailed`: no new privileges, and inside bubblewrap where that works here; it may then write to its two folders.
    """
    if sys.platform != "linux":
        return Ended(failed="wrapped binaries need Linux")
    report_read, report_write = os.pipe()
    try:
        given = _given(_specification(binary, argv, env, place, limits, jailed=jailed) | {"report": report_write})
        try:
            launcher = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_LAUNCH)],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_launcher_environment(),
                pass_fds=(report_write,),
                start_new_session=True,
            )
        finally:
            os.close(given)
        os.close(report_write)
        report_write = -1
        with launcher:
            return _Collector(launcher, report_read, limits, cancelled).ended()
    except OSError as error:
        return Ended(failed=error.strerror or "cannot be started")
    finally:
        os.close(report_read)
        if report_write >= 0:
            os.close(report_write)


def _specification(
    binary: str, argv: Sequence[str], env: Mapping[str, str], place: Place, limits: Limits, *, jailed: bool
) -> dict[str, Any]:
    wall = bubblewrap().path if jailed else None
    most = limits.ceilings
    return {
        "parent": os.getpid(),
        "binary": wall or binary,
        "inside": binary if wall else None,
        # The whole path: an interpreter finds its library by it, and a program of many names its name.
        "argv": walled(binary, argv, place) if wall else [binary, *argv],
        "env": dict(env),
        "cwd": str(place.cwd),
        "timeout_s": limits.timeout_s,
        "processes": most.processes,
        "limits": {
            # Threads count together: a tool that uses every core to the end of its time stays under it.
            "RLIMIT_CPU": (int(limits.timeout_s) + _CPU_SLACK_S) * (os.cpu_count() or 1),
            "RLIMIT_DATA": most.memory_bytes,
            "RLIMIT_AS": most.memory_bytes * _RESERVED,
            "RLIMIT_FSIZE": most.file_bytes,
            "RLIMIT_NOFILE": most.open_files,
            "RLIMIT_CORE": 0,
        },
        # bubblewrap sets it itself, after it has built its walls.
        "no_new_privileges": jailed and not wall,
    }


def _given(specification: dict[str, Any]) -> int:
    """Return a descriptor that holds the specification: in memory, so that no secret is in an argv or on a disk."""
    descriptor = os.memfd_create("run", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb", closefd=False) as stream:
        stream.write(marshal.dumps(specification))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _launcher_environment() -> dict[str, str]:
    """Return what the launcher's own Python may need to start; the tool gets nothing of it."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


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
        try:
            with selectors.DefaultSelector() as selector:
                for at in self._taken:
                    selector.register(at, selectors.EVENT_READ)
                stopped = self._read(selector)
                # What the dead tree has left in the pipes.
                while selector.get_map() and self._take(selector, 0):
                    continue
        except BaseException:
            # A worker that stops at once must not wait here for the tool.
            self._launcher.terminate()
            raise
        self._launcher.wait()
        if self._over:
            return Ended(over_output=True)
        told = _told(bytes(self._taken[self._report]))
        if told.lost and stopped:
            return Ended(cancelled=True) if self._is_cancelled else Ended(timed_out=True)
        return told._replace(stdout=bytes(self._taken[self._outputs[0]]), stderr=bytes(self._taken[self._outputs[1]]))

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
            elif key.fd == self._report:
                self._taken[key.fd] += chunk[: _REPORT_LIMIT - len(self._taken[key.fd])]
            elif not self._over:
                self._taken[key.fd] += chunk
        return bool(ready)

    @property
    def _over(self) -> bool:
        return sum(len(self._taken[at]) for at in self._outputs) > self._limits.output_bytes

    @property
    def _is_cancelled(self) -> bool:
        return self._cancelled is not None and self._cancelled.is_set()


def _told(report: bytes) -> Ended:
    """Return what the launcher said of the end; one that said nothing was ended itself."""
    word, _, rest = report.decode("utf-8", "replace").partition(" ")
    if word == "failed":
        return Ended(failed=rest)
    if word == "code" and rest.isdecimal():
        return Ended(code=int(rest))
    if word in {"timed_out", "over_processes"}:
        return Ended(timed_out=word == "timed_out", over_processes=word == "over_processes")
    return Ended(lost=True)
