"""Wrap: an existing command line, run argv by argv in a sandbox (§1.5, DESIGN §5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core import errors
from runtime_core.adapters import sandbox
from runtime_core.adapters.argv import ArgvFault, render
from runtime_core.adapters.bounds import masked, seconds_left
from runtime_core.adapters.jails import jail, sweep
from runtime_core.adapters.paths import check_paths
from runtime_core.binaries import allowed_binary, not_allowed
from runtime_core.errors import DoorError
from runtime_core.runtime import Ran
from runtime_core.strict_json import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from threading import Event

    from runtime_core.execution import Call
    from runtime_core.runtime import Runtime

CONNECT_LIMIT = 65_536
"""Bytes of a connect command's answer."""
_ESCAPED = 2
"""Times the output limit that a result may take as JSON: line breaks and quotes fit, a binary file does not."""


class WrapAdapter:
    """Runs commands of wrap packs. `jails` is the folder in which each run gets one of its own.

    `cancelled` answers the event that ends the run of a request, or None. `hidden` are the folders that no tool may
    see, where bubblewrap works: those of the runtime itself.
    """

    def __init__(
        self,
        jails: Path,
        cancelled: Callable[[str], Event | None] = lambda _: None,
        *,
        ceilings: sandbox.Ceilings | None = None,
        hidden: tuple[Path, ...] = (),
    ) -> None:
        self._jails = jails
        self._cancelled = cancelled
        self._ceilings = ceilings or sandbox.Ceilings()
        self._hidden = hidden
        self._swept = False

    def run(self, call: Call, runtime: Runtime) -> Ran:
        """Run one command. Answers `{"stdout", "stderr"}`; a connect command its JSON."""
        manifest = call.pack.manifest
        binary = allowed_binary(manifest, {} if call.revision is None else call.revision.allowed_bins)
        if binary is None:
            return Ran(error=not_allowed(manifest.bin))
        limits = sandbox.Limits(seconds_left(call, runtime), manifest.sandbox.output_limit, self._ceilings)
        if limits.timeout_s <= 0:
            return Ran(error=errors.DEADLINE_PASSED)
        cancelled = self._cancelled(call.facts.request_id)
        if cancelled is not None and cancelled.is_set():
            return Ran(error=errors.CANCELLED)
        try:
            self._sweep()
            with jail(self._jails) as home:
                return self._run(_Run(call, binary, home, limits, cancelled))
        except ArgvFault as fault:
            return Ran(error=errors.INVALID_ARGS.text(str(fault)))
        except OSError as error:
            return Ran(error=f"not started: {error.strerror}")

    def _sweep(self) -> None:
        """Remove what workers that were killed have left, once a process."""
        if not self._swept:
            self._swept = True
            sweep(self._jails)

    def _run(self, one: _Run) -> Ran:
        call, manifest = one.call, one.call.pack.manifest
        args = call.facts.envelope.own_args
        cwd = _working_folder(call, one.home)
        argv = render(call.chosen.verb.cli, args, confirmed=call.confirmed)
        check_paths(call.chosen.verb.args, args, cwd)
        fields = {} if call.binding is None else call.binding.fields
        minted = {name: fields[field] for name, field in manifest.binding.env.items() if field in fields}
        jailed = manifest.sandbox.posture == "sandbox"
        place = sandbox.Place(one.home, cwd, self._hidden, _workspace(call) or one.home)
        env = sandbox.environment(manifest.sandbox.env, minted, place, jailed=jailed)
        ended = sandbox.run(one.binary, argv, env, place, one.limits, jailed=jailed, cancelled=one.cancelled)
        error = _error(ended, one.limits)
        if call.chosen.verb.connect:
            return Ran(error=error) if error is not None else _connect_answer(ended.stdout)
        return Ran(error=error) if ended.code is None else _answer(ended, fields, one.limits, error)


class _Run(NamedTuple):
    call: Call
    binary: str
    home: Path
    limits: sandbox.Limits
    cancelled: Event | None


def _working_folder(call: Call, home: Path) -> Path:
    """Return the activation's workspace for land local, else the run's own folder (§4.3.local). Raises ArgvFault."""
    workspace = _workspace(call)
    if workspace is None:
        return home
    if not workspace.is_absolute() or not workspace.is_dir():
        raise ArgvFault("the workspace folder is not there on this worker")
    return workspace.resolve()


def _workspace(call: Call) -> Path | None:
    """Return the activation's workspace, as it is named there; None where the command's land is another."""
    if call.chosen.entry.privacy.land != "local" or call.activation is None or call.activation.workspace is None:
        return None
    return Path(call.activation.workspace)


def _error(ended: sandbox.Ended, limits: sandbox.Limits) -> str | None:
    if ended.failed is not None:
        return f"not started: {ended.failed}"
    if ended.over_output:
        return errors.OVER_OUTPUT.format(limits.output_bytes)
    if ended.over_processes:
        return errors.OVER_PROCESSES.format(limits.ceilings.processes)
    if ended.cancelled:
        return errors.CANCELLED
    if ended.timed_out:
        return errors.TIMED_OUT.format(limits.timeout_s)
    if ended.lost:
        return errors.INTERRUPTED.text()
    return None if ended.code == 0 else errors.EXITED.format(ended.code)


def _connect_answer(stdout: bytes) -> Ran:
    try:
        found: Any = parse(stdout, limit=CONNECT_LIMIT, what="answer")
    except DoorError:
        return Ran(error="the connect command answered no JSON")
    return Ran(found)


def _answer(ended: sandbox.Ended, fields: Mapping[str, str], limits: sandbox.Limits, error: str | None) -> Ran:
    """Return what the tool said, without the material that was minted for it, within twice the limit as JSON."""
    result = {
        name: masked(raw.decode("utf-8", "replace"), fields.values())
        for name, raw in (("stdout", ended.stdout), ("stderr", ended.stderr))
    }
    size = sum(len(json.dumps(text, ensure_ascii=False).encode()) - len('""') for text in result.values())
    if size > _ESCAPED * limits.output_bytes:
        return Ran(error=errors.OVER_OUTPUT.format(limits.output_bytes))
    return Ran(result, error)
