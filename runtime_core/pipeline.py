"""SENSE_STEPS: the order in which one delivery is judged, delivered and recorded (§9.5, DESIGN §6).

    resolve_pack → resolve_activation → resolve_trigger → authenticate → require_land → require_capability
    → deliver → audit

The first six are gates over one `Attempt`, which they only read: each answers None to let it pass, or Refused with the
first text that applies; the last answers the grant that allows it. `deliver` and `audit` work on a batch of attempts,
because a hand-over and a fsync cost the same for one and for five hundred; a refused attempt passes `deliver`
untouched. Nothing reaches a sink before every gate ran.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    from runtime_core.grants import GrantTable
    from runtime_core.identity import Activation, Micros, Principal, Route, Session, Sink
    from runtime_core.pack import PackRevision, Trigger


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


@dataclass(slots=True, eq=False)
class Attempt:
    """One event for one route at one moment, with the rows of one authority snapshot that its gates look at.

    Made by `attempt`, which looks each row up once. Gates only read; how it ended is noted once, by `judge` and
    `deliver`. Not frozen, because that alone takes a fifth of a decision's time.
    """

    facts: Facts
    route: Route
    now: Micros
    authority: Authority
    revision: PackRevision | None
    trigger: Trigger | None
    """Of the revision in force: its land is the one that counts now."""
    activation: Activation | None
    session: Session | None
    owner: Principal | None
    grants: GrantTable
    """What the owner holds."""
    publisher: Principal | None
    sink: Sink | None
    refused: Refused | None = None
    grant: Grant | None = None
    """The grant that allowed it, once `require_capability` has passed."""
    failure: str | None = None
    """Why the sink did not take it, once `deliver` has tried."""


_SENSE_ENABLE = Capability.SENSE_ENABLE.value
DECISIONS_KEPT = 50_000
"""Decisions kept per snapshot, some 250 bytes each; above that they are forgotten at once and made again."""


def attempt(authority: Authority, facts: Facts, route: Route, now: Micros) -> Attempt:
    """Return the attempt with its rows; one that is missing is None, and the gate it concerns refuses."""
    revision = authority.revision(facts.pack_id)
    trigger = None if revision is None else revision.pack.triggers.get(facts.ref)
    activation, session = authority.announcer(facts.activation_id)
    owner, grants = authority.holder(route.owner)
    publisher = owner if facts.publisher == route.owner else authority.principal(facts.publisher)
    sink = authority.sink(route.sink)
    return Attempt(facts, route, now, authority, revision, trigger, activation, session, owner, grants, publisher, sink)


def _refused(refusal: Refusal, name: str = "") -> Refused:
    return Refused(refusal.text(name), refusal.step, refusal.clause)


def resolve_pack(one: Attempt) -> Refused | None:
    """The pack is installed: its newest revision judges, whatever was in force when the event came (§9.5.1)."""
    return _refused(errors.PACK_NOT_INSTALLED, one.facts.pack_id) if one.revision is None else None


def resolve_activation(one: Attempt) -> Refused | None:
    """The activation that announced it still stands (§9.5.1)."""
    return _refused(errors.ACTIVATION_REVOKED) if one.activation is None or one.activation.revoked else None


def resolve_trigger(one: Attempt) -> Refused | None:
    """The ref is a trigger of the revision in force, with a read entry (§1.3.trigger, §4.2.6)."""
    return _refused(errors.TRIGGER_NOT_DECLARED, one.facts.ref) if one.trigger is None else None


def authenticate(one: Attempt) -> Refused | None:
    """Session, principals, and for land brain the project with both memberships (§9.1, §9.2, §9.5.2)."""
    if one.session is None or one.session.revoked:
        return _refused(errors.SESSION_REVOKED)
    if one.owner is None or one.owner.disabled or one.publisher is None or one.publisher.disabled:
        return _refused(errors.PRINCIPAL_DISABLED)
    if one.trigger is not None and one.trigger.land == "brain":
        refusal = _project_refusal(one)
        if refusal is not None:
            return _refused(refusal)
    if not one.owner.operator and one.revision is not None and one.revision.pack.plane == "control":
        return _refused(errors.CONTROL_PLANE)
    return None


def require_land(one: Attempt) -> Refused | None:
    """The sink may hold data of this land for this owner (§4.3, DESIGN §6)."""
    land = "personal" if one.trigger is None else one.trigger.land
    rule, otherwise = _LAND_RULES[land]
    refusal = otherwise if one.sink is None or land not in one.sink.lands else rule(one)
    return None if refusal is None else _refused(refusal)


def require_capability(one: Attempt) -> Refused | Grant:
    """The owner holds `sense.enable` for this pack and ref now (§9.4, §9.5.3); answers the grant that allows it."""
    facts, trigger = one.facts, one.trigger
    project = None
    if trigger is not None and trigger.land == "brain" and one.activation is not None:
        project = one.activation.project_id
    grant = one.grants.find(_SENSE_ENABLE, facts.pack_id, facts.ref, project, one.now)
    return _refused(errors.MISSING_SENSE_ENABLE) if grant is None else grant


def _project_refusal(one: Attempt) -> Refusal | None:
    """A project that exists nowhere, or in another tenant, has no members here: the same text (C18)."""
    project = None if one.activation is None else one.activation.project_id
    if project is None:
        return errors.BRAIN_REQUIRES_PROJECT
    members = one.authority.members(project)
    if one.facts.publisher not in members or one.route.owner not in members:
        return errors.NOT_A_MEMBER
    return None


def _audience(one: Attempt) -> tuple[str, str | None]:
    """A workspace sink writes into the publisher's own folder, so its audience is the publisher (DESIGN §6)."""
    if one.sink is None:
        return "none", None
    return ("principal", one.facts.publisher) if one.sink.workspace else (one.sink.audience, one.sink.audience_id)


def _personal(one: Attempt) -> Refusal | None:
    if one.route.owner != one.facts.publisher:
        return errors.LAND_PERSONAL
    if one.sink is not None and one.sink.partitioned:
        return None
    return None if _audience(one) == ("principal", one.route.owner) else errors.LAND_PERSONAL


def _local(one: Attempt) -> Refusal | None:
    mine = one.route.owner == one.facts.publisher and one.sink is not None and one.sink.workspace
    served = one.activation is not None and one.activation.workspace is not None
    return None if mine and served else errors.LAND_LOCAL


def _brain(one: Attempt) -> Refusal | None:
    if one.sink is not None and one.sink.partitioned:
        return None
    project = None if one.activation is None else one.activation.project_id
    shape, who = _audience(one)
    inside = shape == "project" and who == project
    if shape == "principal" and who is not None and project is not None:
        inside = who in one.authority.members(project)
    return None if inside else errors.SINK_OUTSIDE_PROJECT


# The rule of each land, and the refusal of a sink that is gone or whose kind does not take the land.
_LAND_RULES: dict[str, tuple[Callable[[Attempt], Refusal | None], Refusal]] = {
    "personal": (_personal, errors.LAND_PERSONAL),
    "local": (_local, errors.LAND_LOCAL),
    "brain": (_brain, errors.SINK_OUTSIDE_PROJECT),
}


class HandOver(Protocol):
    """How admitted attempts of one sink reach it: in a ledger transaction, or through the sink's `deliver`."""

    def __call__(self, admitted: Sequence[Attempt], /) -> Sequence[str | None]:
        """Hand over; answer for each attempt why the sink did not take it, or None."""
        ...


def deliver(attempts: Sequence[Attempt], hand_over: HandOver) -> list[Attempt]:
    """Hand the admitted attempts of a batch over, in order; the sink is never shown a refused one."""
    admitted = [one for one in attempts if one.refused is None]
    failures = iter(hand_over(admitted) if admitted else ())
    return [one if one.refused is not None else _with_failure(one, next(failures)) for one in attempts]


def audit(attempts: Sequence[Attempt], log: AuditLog) -> None:
    """Append one line a decision, in one append; raises AuditUnavailable before anything is settled (§9.6)."""
    if attempts:
        log.append([sense_record(one) for one in attempts])


def sense_record(one: Attempt) -> AuditRecord:
    """Return the tuple of §9.6 for one attempt; binding is None for Sense."""
    facts = one.facts
    reason = one.failure if one.refused is None else one.refused.text
    return AuditRecord(
        action="sense.deliver",
        ok=reason is None,
        tenant=facts.tenant,
        principal=one.route.owner,
        publisher=facts.publisher,
        project=None if one.activation is None else one.activation.project_id,
        binding=None,
        pack_id=facts.pack_id,
        key=facts.ref,
        operation="read",
        subject=delivery_id(facts.event_id, one.route.id),
        reason=reason,
    )


SENSE_GATES: tuple[Callable[[Attempt], Refused | Grant | None], ...] = (
    resolve_pack,
    resolve_activation,
    resolve_trigger,
    authenticate,
    require_land,
    require_capability,
)

SENSE_STEPS: tuple[Callable[..., object], ...] = (*SENSE_GATES, deliver, audit)


def judge(one: Attempt) -> Attempt:
    """Walk the gates in order, and note on the attempt how it ended: the first refusal wins."""
    for gate in SENSE_GATES:
        found = gate(one)
        if found is None:
            continue
        if isinstance(found, Refused):
            one.refused = found
            break
        one.grant = found
    return one


def decide(authority: Authority, facts: Facts, route: Route, now: Micros) -> Attempt:
    """Return the judged attempt; walks the gates once per snapshot for what is decided alike.

    A decision hangs on the snapshot's rows, which stand as long as the snapshot does, and on the moment only where the
    grant that allows has an end. So it is kept with the snapshot, by what selects its rows, and dropped with it: after
    any change to who may do what, everything is walked again.
    """
    key = (facts.activation_id, facts.pack_id, facts.ref, facts.publisher, route.id)
    kept = authority.decisions.get(key)
    if kept is not None and (kept.grant is None or kept.grant.expires_at is None or now < kept.grant.expires_at):
        return Attempt(
            facts,
            route,
            now,
            authority,
            kept.revision,
            kept.trigger,
            kept.activation,
            kept.session,
            kept.owner,
            kept.grants,
            kept.publisher,
            kept.sink,
            kept.refused,
            kept.grant,
        )
    decided = judge(attempt(authority, facts, route, now))
    if len(authority.decisions) >= DECISIONS_KEPT:
        authority.decisions.clear()
    authority.decisions[key] = decided
    return decided


def _with_failure(one: Attempt, failure: str | None) -> Attempt:
    one.failure = failure
    return one


def candidate_refusal(
    authority: Authority, activation: Activation, land: str, publisher: str, owner: str
) -> str | None:
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
