"""Wrap: an existing command line, run argv by argv in a sandbox (§1.5, DESIGN §5)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_core import errors
from runtime_core.adapters import sandbox
from runtime_core.adapters.argv import ArgvFault, check_paths, render
from runtime_core.errors import DoorError
from runtime_core.runtime import Ran
from runtime_core.signing import SECOND
from runtime_core.strict_json import parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from runtime_core.execution import Call
    from runtime_core.runtime import Runtime

CONNECT_LIMIT = 65_536
"""Bytes of a connect command's answer."""


class WrapAdapter:
    """Runs commands of wrap packs. `jails` is the folder in which each run gets one of its own.

    `cancelled` answers the event that ends the run of a request, or None.
    """

    def __init__(self, jails: Path, cancelled: Callable[[str], Event | None] = lambda _: None) -> None:
        self._jails = jails
        self._cancelled = cancelled

    def run(self, call: Call, runtime: Runtime) -> Ran:
        """Run one command. Answers `{"stdout", "stderr"}`; a connect command its JSON."""
        manifest = call.pack.manifest
        allowed = {} if call.revision is None else call.revision.allowed_bins
        binary = allowed.get(manifest.bin) if manifest.bin in manifest.sandbox.bins else None
        if binary is None:
            return Ran(error=f"binary not allowed: {manifest.bin}")
        args = call.facts.envelope.own_args
        limits = sandbox.Limits(_seconds_left(call, runtime), manifest.sandbox.output_limit)
        if limits.timeout_s <= 0:
            return Ran(error=errors.DEADLINE_PASSED)
        try:
            self._jails.mkdir(mode=0o700, parents=True, exist_ok=True)
            home = Path(tempfile.mkdtemp(prefix="run-", dir=self._jails))
        except OSError as error:
            return Ran(error=f"no jail: {error.strerror}")
        try:
            cwd = _working_folder(call, home)
            argv = render(call.chosen.verb.cli, args, confirmed=call.confirmed)
            check_paths(call.chosen.verb.args, args, cwd)
            return self._answer(call, binary, argv, home, cwd, limits)
        except ArgvFault as fault:
            return Ran(error=errors.INVALID_ARGS.text(str(fault)))
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def _answer(self, call: Call, binary: str, argv: list[str], home: Path, cwd: Path, limits: sandbox.Limits) -> Ran:
        manifest = call.pack.manifest
        fields = {} if call.binding is None else call.binding.fields
        minted = {name: fields[field] for name, field in manifest.binding.env.items() if field in fields}
        ended = sandbox.run(
            binary,
            argv,
            sandbox.environment(manifest.sandbox.env, minted, home),
            cwd,
            limits,
            jailed=manifest.sandbox.posture == "sandbox",
            writable=(home, cwd),
            cancelled=self._cancelled(call.facts.request_id),
        )
        error = _error(ended, limits)
        if call.chosen.verb.connect:
            return Ran(error=error) if error is not None else _connect_answer(ended.stdout)
        if ended.code is None:
            return Ran(error=error)
        return Ran({"stdout": _text(ended.stdout), "stderr": _text(ended.stderr)}, error)


def _working_folder(call: Call, home: Path) -> Path:
    """Return the activation's workspace for land local, else the run's own folder (§4.3.local). Raises ArgvFault."""
    if call.chosen.entry.privacy.land != "local" or call.activation is None or call.activation.workspace is None:
        return home
    workspace = Path(call.activation.workspace)
    if not workspace.is_dir():
        raise ArgvFault("the workspace folder is not there on this worker")
    return workspace.resolve()


def _seconds_left(call: Call, runtime: Runtime) -> float:
    """Return how long the command may run: its own time, and no longer than somebody waits."""
    own = call.pack.manifest.sandbox.timeout_s
    deadline = call.facts.deadline
    return own if deadline is None else min(own, (deadline - runtime.now()) / SECOND)


def _error(ended: sandbox.Ended, limits: sandbox.Limits) -> str | None:
    if ended.failed is not None:
        return f"not started: {ended.failed}"
    if ended.over_output:
        return errors.OVER_OUTPUT.format(limits.output_bytes)
    if ended.cancelled:
        return errors.CANCELLED
    if ended.timed_out:
        return errors.TIMED_OUT.format(limits.timeout_s)
    return None if ended.code == 0 else errors.EXITED.format(ended.code)


def _connect_answer(stdout: bytes) -> Ran:
    try:
        found: Any = parse(stdout, limit=CONNECT_LIMIT, what="answer")
    except DoorError:
        return Ran(error="the connect command answered no JSON")
    return Ran(found)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace("\0", "\ufffd")
