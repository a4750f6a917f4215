"""What the operator answers: rows as plain frozen values. Moments are microseconds since the epoch, UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PrincipalView:
    """A principal of the tenant."""

    id: str
    kind: str
    operator: bool
    created_at: int
    disabled_at: int | None


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session, without its secret."""

    id: str
    principal: str
    created_at: int
    expires_at: int
    revoked_at: int | None


@dataclass(frozen=True, slots=True)
class IssuedSession:
    """A session just made. The secret is told this once, and stands in `file` where one was asked for."""

    id: str
    tenant: str
    principal: str
    expires_at: int
    file: str | None
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RotatedSession:
    """A session with a new secret, which is told this once and stands in `file` where there is one."""

    id: str
    tenant: str
    principal: str
    expires_at: int
    overlap_ends_at: int | None
    """Until when the secret before is good too; None: it is dead already."""
    file: str | None
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProjectView:
    """A project and who is in it."""

    id: str
    members: tuple[str, ...]
    created_at: int


@dataclass(frozen=True, slots=True)
class GrantView:
    """A grant; `keys` None means all."""

    id: str
    principal: str
    capability: str
    pack_id: str
    keys: tuple[str, ...] | None
    project: str | None
    created_by: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None = None
    """When `revoke_grant` took it away; None in any other answer."""
    warnings: tuple[str, ...] = ()
    """Of the answer to `add_grant`: what it names that is not there as yet. Empty in any other."""


@dataclass(frozen=True, slots=True)
class SinkView:
    """A sink, without its options' values: they may be secret."""

    name: str
    kind: str
    audience: str
    option_names: tuple[str, ...]
    created_at: int
    paused_at: int | None
    disabled_at: int | None
    disabled_reason: str | None
    fault: str | None = None
    """Why its kind or its options cannot be used where this was asked; workers may have other plugins."""
    note: str | None = None
    """That only the settings of where this was asked allow it; workers may have others."""
    secret: str | None = field(default=None, repr=False)
    """What it signs with, where this call made it: it is told this once."""


@dataclass(frozen=True, slots=True)
class SinkDetail:
    """A sink with its options, every secret in them masked."""

    name: str
    kind: str
    audience: str
    options: dict[str, Any]
    created_at: int
    paused_at: int | None
    disabled_at: int | None
    disabled_reason: str | None
    fault: str | None


@dataclass(frozen=True, slots=True)
class RotatedSink:
    """A sink with a new secret, which is told this once."""

    name: str
    kind: str
    overlap_ends_at: int | None
    """Until when the secret before signs too; None: it no longer does."""
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SinkTrial:
    """What a sink answered to a delivery that was made up."""

    name: str
    kind: str
    outcome: str
    """`delivered`, `retry` or `rejected`; `held` where it could not be opened."""
    reason: str | None
    """Why not, or its receipt."""
    seconds: float
    note: str | None = None
    """That only the settings of where this was asked allow it; workers may have others."""


@dataclass(frozen=True, slots=True)
class RouteView:
    """A route that stands."""

    id: str
    owner: str
    pack_id: str
    ref: str
    sink: str
    project: str | None
    created_by: str
    created_at: int
    expires_at: int | None
    filter: str | None = None
    """CEL; None: every event of its ref passes."""
    warnings: tuple[str, ...] = ()
    """Of the answer to `add_route`: what of it would be denied whatever comes. Empty in any other."""


@dataclass(frozen=True, slots=True)
class TriggerView:
    """A declared trigger with its policy."""

    ref: str
    land: str
    summary: str


@dataclass(frozen=True, slots=True)
class CommandView:
    """A declared command with its policy."""

    verb_key: str
    operation: str
    land: str
    confirm: bool


@dataclass(frozen=True, slots=True)
class PackView:
    """The revision of a pack that is in force."""

    pack_id: str
    version: str
    title: str
    plane: str
    generation: int
    digest: str
    installed_by: str
    installed_at: int
    allowed_bins: dict[str, str]
    kept: tuple[str, ...] = ()
    """Binaries that this install leaves allowed as the revision before had them; empty in any other answer."""
    warnings: tuple[str, ...] = ()
    commands: tuple[CommandView, ...] = ()
    triggers: tuple[TriggerView, ...] = ()


@dataclass(frozen=True, slots=True)
class IssuedActivation:
    """An activation that stands, and the file its adapter reads."""

    id: str
    session_id: str
    pack_id: str
    project: str | None
    workspace: str | None
    file: str
    skill: str
    created_at: int
    revoked_at: int | None = None


@dataclass(frozen=True, slots=True)
class ActivationView:
    """An activation that was not deactivated, as a list shows it."""

    id: str
    principal: str
    session_id: str
    pack_id: str
    project: str | None
    workspace: str | None
    created_at: int
    session: str
    """What its session is: `stands`, `revoked` or `expired`."""
    file: str | None
    """What its adapter reads; None where it is not on this host."""


@dataclass(frozen=True, slots=True)
class RotatedActivation:
    """An activation with a new secret, which stands in the file that its adapter reads."""

    id: str
    session_id: str
    pack_id: str
    project: str | None
    file: str
    overlap_ends_at: int | None
    """Until when the secret before is good too; None: it is dead already."""


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """One event for one route."""

    id: str
    event_id: str
    route_id: str
    owner: str
    sink: str
    pack_id: str
    ref: str
    subject: str | None
    state: str
    step: str | None
    reason: str | None
    attempt: int
    created_at: int
    due_at: int | None
    settled_at: int | None


@dataclass(frozen=True, slots=True)
class DeadView:
    """A stream entry refused at intake."""

    stream_id: str
    stream: str
    word: str
    detail: str
    at: int
    raw_length: int
    raw_digest: str
    activation_id: str | None
    event_id: str | None
    raw: str = ""
    """Base64 of the netstrings of its fields; in `show_dead` only."""
    text: tuple[str, ...] = ()
    """The same as `name: value`, each bounded, control characters escaped; in `show_dead` only."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """The deliveries of one sink by state; `held_for`: of those that are held, how many by reason."""

    sink: str
    states: dict[str, int]
    held_for: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Status:
    """Counts of the tenant. `waiting` is what the stream holds; None where no Redis is named or it does not answer."""

    tenant: str
    events: int
    deliveries: dict[str, int]
    lanes: tuple[LaneView, ...]
    dead_entries: dict[str, int]
    waiting: int | None
    pending: int | None


@dataclass(frozen=True, slots=True)
class InitResult:
    """What `initialize` found or made."""

    tenant: str
    principal: str
    home: str
    session_file: str
    created: tuple[str, ...]
    """What this call made; empty where all was there."""
