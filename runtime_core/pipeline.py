"""SENSE_STEPS: the order in which one delivery is judged, delivered and recorded (§9.5, DESIGN §6).

    resolve_pack → resolve_activation → resolve_trigger → authenticate → require_land → require_capability
    → deliver → audit

The first six are gates over one frozen `Attempt`: each returns it untouched to let it pass, or refused with the first
text that applies. `deliver` and `audit` work on a batch of attempts, because a hand-over and a fsync cost the same for
one and for five hundred; a refused attempt passes `deliver` untouched. Nothing reaches a sink before every gate ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from runtime_core import errors
from runtime_core.audit import AuditRecord
from runtime_core.event import delivery_id
from runtime_core.grants import Capability, Grant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runtime_core.audit import AuditLog
    from runtime_core.authority import Authority
    from runtime_core.errors import Refusal
    from runtime_core.identity import Activation, Micros, Route


class Facts(NamedTuple):
    """What intake recorded of an accepted event: all that an attempt needs besides the authority now."""

    event_id: bytes
    tenant: str
    pack_id: str
    ref: str
    activation_id: str
    publisher: str
    """The publishing principal; the Principal of a delivery is the route's owner (§9.1.1)."""


class Refused(NamedTuple):
    """Which step refused, with the exact text and the clause that decided."""

    text: str
    step: str
    clause: str


class Attempt(NamedTuple):
    """One event for one route at one moment, judged against one authority snapshot."""

    authority: Authority
    facts: Facts
    route: Route
    now: Micros
    refused: Refused | None = None
    grant: Grant | None = None
    """The grant that allowed it, once `require_capability` has passed."""
    failure: str | None = None
    """Why the sink did not take it, once `deliver` has tried."""


def _refuse(attempt: Attempt, refusal: Refusal, name: str = "") -> Attempt:
    return attempt._replace(refused=Refused(refusal.text(name), refusal.step, refusal.clause))


def resolve_pack(attempt: Attempt) -> Attempt:
    """The pack is installed: its newest revision judges, whatever was in force when the event came (§9.5.1)."""
    pack_id = attempt.facts.pack_id
    if attempt.authority.revision(pack_id) is None:
        return _refuse(attempt, errors.PACK_NOT_INSTALLED, pack_id)
    return attempt


def resolve_activation(attempt: Attempt) -> Attempt:
    """The activation that announced it still stands (§9.5.1)."""
    activation = attempt.authority.activation(attempt.facts.activation_id)
    if activation is None or activation.revoked:
        return _refuse(attempt, errors.ACTIVATION_REVOKED)
    return attempt


def resolve_trigger(attempt: Attempt) -> Attempt:
    """The ref is a trigger of the revision in force, with a read entry (§1.3.trigger, §4.2.6)."""
    revision = attempt.authority.revision(attempt.facts.pack_id)
    if revision is None or attempt.facts.ref not in revision.pack.triggers:
        return _refuse(attempt, errors.TRIGGER_NOT_DECLARED, attempt.facts.ref)
    return attempt


def authenticate(attempt: Attempt) -> Attempt:
    """Session, principals, and for land brain the project with both memberships (§9.1, §9.2, §9.5.2)."""
    authority, facts, owner = attempt.authority, attempt.facts, attempt.route.owner
    activation = authority.activation(facts.activation_id)
    revision = authority.revision(facts.pack_id)
    session = None if activation is None else authority.session(activation.session_id)
    if activation is None or revision is None or session is None or session.revoked:
        return _refuse(attempt, errors.SESSION_REVOKED)
    principal = authority.principal(owner)
    if principal is None or principal.disabled:
        return _refuse(attempt, errors.PRINCIPAL_DISABLED)
    if facts.publisher != owner:
        publisher = authority.principal(facts.publisher)
        if publisher is None or publisher.disabled:
            return _refuse(attempt, errors.PRINCIPAL_DISABLED)
    if revision.pack.triggers[facts.ref].land == "brain":
        refusal = _project_refusal(authority, activation, facts.publisher, owner)
        if refusal is not None:
            return _refuse(attempt, refusal)
    if revision.pack.plane == "control" and not principal.operator:
        return _refuse(attempt, errors.CONTROL_PLANE)
    return attempt


def require_land(attempt: Attempt) -> Attempt:
    """The sink may hold data of this land for this owner (§4.3, DESIGN §6)."""
    authority, facts, route = attempt.authority, attempt.facts, attempt.route
    activation = authority.activation(facts.activation_id)
    revision = authority.revision(facts.pack_id)
    sink = authority.sink(route.sink)
    if activation is None or revision is None or sink is None:
        return _refuse(attempt, errors.LAND_PERSONAL)
    land = revision.pack.triggers[facts.ref].land
    # A workspace sink writes into the publisher's own folder, so its audience is the publisher (DESIGN §6).
    audience, audience_id = ("principal", facts.publisher) if sink.workspace else (sink.audience, sink.audience_id)
    if land == "personal":
        if route.owner != facts.publisher:
            return _refuse(attempt, errors.LAND_PERSONAL)
        if not sink.partitioned and not (audience == "principal" and audience_id == route.owner):
            return _refuse(attempt, errors.LAND_PERSONAL)
    elif land == "local":
        if route.owner != facts.publisher or not sink.workspace or activation.workspace is None:
            return _refuse(attempt, errors.LAND_LOCAL)
    elif not sink.partitioned:
        project = activation.project_id
        inside = audience == "project" and audience_id == project
        if audience == "principal" and audience_id is not None and project is not None:
            inside = audience_id in authority.members(project)
        if not inside:
            return _refuse(attempt, errors.SINK_OUTSIDE_PROJECT)
    return attempt


def require_capability(attempt: Attempt) -> Attempt:
    """The owner holds `sense.enable` for this pack and ref now (§9.4, §9.5.3)."""
    authority, facts = attempt.authority, attempt.facts
    revision = authority.revision(facts.pack_id)
    activation = authority.activation(facts.activation_id)
    project = None
    if revision is not None and activation is not None and revision.pack.triggers[facts.ref].land == "brain":
        project = activation.project_id
    grant = authority.grant(
        attempt.route.owner, Capability.SENSE_ENABLE, facts.pack_id, facts.ref, project, attempt.now
    )
    if grant is None:
        return _refuse(attempt, errors.MISSING_SENSE_ENABLE)
    return attempt._replace(grant=grant)


class HandOver(Protocol):
    """How admitted attempts of one sink reach it: in a ledger transaction, or through the sink's `deliver`."""

    def __call__(self, admitted: Sequence[Attempt]) -> Sequence[str | None]:
        """Hand over; answer for each attempt why the sink did not take it, or None."""
        ...


def deliver(attempts: Sequence[Attempt], hand_over: HandOver) -> list[Attempt]:
    """Hand the admitted attempts of a batch over, in order; the sink is never shown a refused one."""
    admitted = [attempt for attempt in attempts if attempt.refused is None]
    failures = iter(hand_over(admitted) if admitted else ())
    return [
        attempt if attempt.refused is not None else _with_failure(attempt, next(failures)) for attempt in attempts
    ]


def audit(attempts: Sequence[Attempt], log: AuditLog) -> None:
    """Append one line a decision, in one append; raises AuditUnavailable before anything is settled (§9.6)."""
    if attempts:
        log.append([sense_record(attempt) for attempt in attempts])


def sense_record(attempt: Attempt) -> AuditRecord:
    """Return the tuple of §9.6 for one attempt; binding is None for Sense."""
    facts = attempt.facts
    activation = attempt.authority.activation(facts.activation_id)
    reason = attempt.failure if attempt.refused is None else attempt.refused.text
    return AuditRecord(
        action="sense.deliver",
        ok=reason is None,
        tenant=facts.tenant,
        principal=attempt.route.owner,
        publisher=facts.publisher,
        project=None if activation is None else activation.project_id,
        binding=None,
        pack_id=facts.pack_id,
        key=facts.ref,
        operation="read",
        subject=delivery_id(facts.event_id, attempt.route.id),
        reason=reason,
    )


SENSE_GATES: tuple[Callable[[Attempt], Attempt], ...] = (
    resolve_pack,
    resolve_activation,
    resolve_trigger,
    authenticate,
    require_land,
    require_capability,
)

SENSE_STEPS: tuple[Callable[..., object], ...] = (*SENSE_GATES, deliver, audit)


def judge(attempt: Attempt) -> Attempt:
    """Walk the gates in order; the first refusal wins."""
    for gate in SENSE_GATES:
        attempt = gate(attempt)
        if attempt.refused is not None:
            return attempt
    return attempt


def _project_refusal(authority: Authority, activation: Activation, publisher: str, owner: str) -> Refusal | None:
    """A project that exists nowhere, or in another tenant, has no members here: the same text (C18)."""
    if activation.project_id is None:
        return errors.BRAIN_REQUIRES_PROJECT
    members = authority.members(activation.project_id)
    if publisher not in members or owner not in members:
        return errors.NOT_A_MEMBER
    return None


def _with_failure(attempt: Attempt, failure: str | None) -> Attempt:
    return attempt if failure is None else attempt._replace(failure=failure)


def candidate_refusal(authority: Authority, activation: Activation, land: str, publisher: str, owner: str) -> str | None:
    """Tell why a matching route gets no Delivery at all, or None when it is a candidate (DESIGN §6.2).

    The publishing principal's own routes always are: their owner may know of the event, denied or not.
    """
    if owner == publisher:
        return None
    if land == "brain":
        if activation.project_id is None:
            return errors.BRAIN_REQUIRES_PROJECT.text()
        return None if owner in authority.members(activation.project_id) else errors.NOT_A_MEMBER.text()
    return errors.LAND_PERSONAL.text() if land == "personal" else errors.LAND_LOCAL.text()
