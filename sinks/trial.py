"""A trial import of sink plugins in processes of their own: one that exits, crashes or hangs at import is found there.

An exception at import is no matter: whoever imports catches it. What cannot be caught (`os._exit`, a signal, a wait
without end) takes its process along, and that must not be a worker (C52). One process is started, and forks another
for each plugin, so that all of them are tried at once and apart. A file keeps the verdicts for the processes of a host;
it counts as long as the same packages are installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LIMIT_S = 10.0
"""Seconds that the imports may take, all at once."""
START_S = 20.0
"""Seconds that the process which tries them may take to start, on a machine that is busy."""


def tried(found: Sequence[EntryPoint], file: Path | None, *, fresh: bool) -> dict[str, str]:
    """Return why plugins must not be imported, by `name = value` of their entry points; empty where all may be.

    `file` keeps the verdicts, None: nothing is kept. `fresh` tries again whatever it says.
    """
    if not found or not hasattr(os, "fork"):
        return {}
    of = _fingerprint(found)
    kept = None if fresh or file is None else _kept(file, of)
    if kept is not None:
        return kept
    names = [f"{one.name} = {one.value}" for one in found]
    verdicts = _asked(found)
    if verdicts is None:
        # Not kept: what kept the trial from running says nothing of the plugins.
        return dict.fromkeys(names, "could not be tried: the process that imports plugins first did not run")
    faults = {name: verdict for name, verdict in zip(names, verdicts, strict=True) if verdict}
    if file is not None:
        _keep(file, of, faults)
    return faults


def _fingerprint(found: Sequence[EntryPoint]) -> str:
    """Return what changes when a package is installed, upgraded or removed."""
    parts: list[object] = [sys.version, sys.prefix]
    for one in found:
        place = getattr(one.dist, "_path", None)
        try:
            changed = 0 if place is None else os.stat(place).st_mtime_ns  # noqa: PTH116 - of whatever it is
        except (OSError, TypeError):
            changed = 0
        parts.append((one.name, one.value, str(place), changed))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _kept(file: Path, of: str) -> dict[str, str] | None:
    try:
        kept = json.loads(file.read_text("utf-8"))
        faults = kept["faults"]
        return {str(name): str(reason) for name, reason in faults.items()} if kept["of"] == of else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _keep(file: Path, of: str, faults: dict[str, str]) -> None:
    """Put the file in place whole; a host that cannot write it tries again each time."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        try:
            draft.write_text(json.dumps({"of": of, "faults": faults}), "utf-8")
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)


def _asked(found: Sequence[EntryPoint]) -> list[str] | None:
    """Start the process that tries them; return a verdict for each, empty for a good one, or None."""
    task = json.dumps({"seconds": LIMIT_S, "found": [[one.name, one.value, one.group] for one in found]})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if isinstance(part, str))}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "sinks.trial"],
            input=task.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=START_S + LIMIT_S,
            check=True,
        )
        verdicts = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return verdicts if isinstance(verdicts, list) and len(verdicts) == len(found) else None


def main() -> None:
    """Try the entry points on standard input, all at once; write the verdicts to standard output."""
    task: dict[str, Any] = json.load(sys.stdin)
    running = [_started(EntryPoint(*one)) for one in task["found"]]
    ends = time.monotonic() + task["seconds"]
    verdicts = [_verdict(pid, pipe, ends) for pid, pipe in running]
    for pid, _ in running:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # and what it started
    json.dump(verdicts, sys.stdout)


def _started(entry_point: EntryPoint) -> tuple[int, int]:
    """Fork a process that imports one plugin, says so on the pipe, and ends."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    with contextlib.suppress(BaseException):  # told by whoever imports it in earnest
        entry_point.load()
    os.write(write, b"1")
    os._exit(0)


def _verdict(pid: int, pipe: int, ends: float) -> str:
    ready, _, _ = select.select([pipe], [], [], max(0.0, ends - time.monotonic()))
    said = os.read(pipe, 1) if ready else b""
    if not ready:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if said:
        return ""
    if not ready:
        return "its import does not end"
    code = os.waitstatus_to_exitcode(status)
    how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    return f"its import ends the process, {how}"


if __name__ == "__main__":
    main()
