"""Availability: what of a pack a session may use now, and for each "no" the reason (§1.6.availability)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from runtime_core import errors
from runtime_core.binding import HubUnavailable, holder_of, is_free
from runtime_core.envelope import Envelope
from runtime_core.execution import GATES, ExecFacts, call, judge, refused_step, require_confirm, stop
from runtime_core.pipeline import Refused

if TYPE_CHECKING:
    from runtime_core.errors import Refusal
    from runtime_core.execution import Call
    from runtime_core.pack import Pack
    from runtime_core.runtime import Runtime

_GATES = tuple(gate for gate in GATES if gate is not require_confirm)
"""Nothing but confirm or args may refuse a command that is executable."""


class CommandAvailability(NamedTuple):
    """One command; `reason` is the text that would refuse it, None where it is executable."""

    verb_key: str
    reason: str | None


class Availability(NamedTuple):
    """The report of §1.6 for one pack and one session."""

    installed: bool
    activated: bool
    connected: bool
    commands: tuple[CommandAvailability, ...] = ()
    reason: str | None = None
    """The first "no" of the pack itself."""


def availability(runtime: Runtime, tenant: str, session_id: str, pack_id: str) -> Availability:
    """Return what the session may do with the pack, through whichever of its activations allows most."""
    authority = runtime.authority(tenant)
    revision, session = authority.revision(pack_id), authority.session(session_id)
    if revision is None or session is None:
        return Availability(False, False, False, (), errors.PACK_NOT_INSTALLED.text(pack_id))
    projects = [one.project_id for one in authority.activations_of(session_id, pack_id)]
    unconnected = _unconnected(runtime, tenant, session.principal, revision.pack)
    asked = ExecFacts(tenant, session_id, None, Envelope(pack_id, "", {}), "availability")
    commands = tuple(_command(runtime, asked, key, projects) for key in revision.pack.manifest.verbs)
    no = errors.PACK_NOT_ACTIVATED.text(pack_id) if not projects else None
    if no is None and unconnected is not None:
        no = unconnected[0].text(unconnected[1])
    return Availability(True, bool(projects), unconnected is None, commands, no)


def _command(runtime: Runtime, asked: ExecFacts, key: str, projects: list[str | None]) -> CommandAvailability:
    """Judge one command through each activation: it is executable where one of them allows it."""
    authority, now = runtime.authority(asked.tenant), runtime.now()
    envelope = asked.envelope._replace(verb_key=key)
    reasons = []
    for project in projects or [None]:
        one = _judged(runtime, call(authority, asked._replace(project_id=project, envelope=envelope), now))
        refused = one.refused or refused_step(one, lambda step: _judged(runtime, step))
        reasons.append(None if refused is None else refused.text)
    return CommandAvailability(key, None if None in reasons else reasons[0])


def _judged(runtime: Runtime, one: Call) -> Call:
    """Walk the gates but confirm, then ask whether the credential is there, and whether anything of the pack runs."""
    one = judge(one, _GATES)
    if one.refused is not None or one.session is None or one.revision is None:
        return one
    if not one.chosen.verb.connect:
        unconnected = _unconnected(runtime, one.facts.tenant, one.session.principal, one.pack)
        if unconnected is not None:
            return stop(one, *unconnected)
    barred = runtime.barred(one.revision)
    return one if barred is None else one._replace(refused=Refused(barred, "run_adapter", "1.5.sandbox"))


def _unconnected(runtime: Runtime, tenant: str, principal: str, pack: Pack) -> tuple[Refusal, str] | None:
    """Return why the pack's credential cannot be had, or None."""
    if is_free(pack):
        return None
    name = pack.manifest.binding.hub
    try:
        connected = runtime.hubs[name].connected(holder_of(tenant, principal, pack))
    except (HubUnavailable, KeyError):
        return errors.BINDING_UNAVAILABLE, name
    return None if connected else (errors.NOT_CONNECTED, pack.pack_id)
