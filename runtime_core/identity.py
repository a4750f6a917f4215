"""Who acts, and in which scope: tenant rows as frozen values (§1.1, §9.1, §9.2, DESIGN §3).

Moments are integers, microseconds since the epoch in UTC, so that both databases compare them alike.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Micros = int
"""Microseconds since 1970-01-01T00:00:00Z."""

AudienceKind = Literal["principal", "project", "tenant"]


class Principal(NamedTuple):
    """The acting identity; a row of one tenant. One id may stand in several tenants, each row on its own."""

    tenant: str
    id: str
    kind: str
    operator: bool
    disabled: bool


class Credential(NamedTuple):
    """At most two live secrets: the current one and the one it replaced, valid until `previous_until`."""

    current: bytes
    previous: bytes | None = None
    previous_until: Micros = 0

    def live(self, now: Micros) -> tuple[bytes, ...]:
        """Return the secrets that verify at `now`; never an empty one (C11)."""
        old = (self.previous,) if self.previous and now < self.previous_until else ()
        return tuple(secret for secret in (self.current, *old) if secret)


class Session(NamedTuple):
    """An authenticated session; the tenant of everything done under it is its own (§9.2.1)."""

    id: str
    tenant: str
    principal: str
    expires_at: Micros
    revoked: bool
    credential: Credential = Credential(b"")
    """Signs exec requests; empty where nobody can: it then verifies nothing (C11)."""


class Activation(NamedTuple):
    """A pack on a session (§1.6.activate); may announce the pack's declared refs and nothing else."""

    id: str
    tenant: str
    session_id: str
    pack_id: str
    project_id: str | None
    workspace: str | None
    revoked: bool
    credential: Credential


class Sink(NamedTuple):
    """A sink row with the traits of its kind, as the land rules need them (DESIGN §6).

    `partitioned`: the kind keeps principals apart by itself. `workspace`: it writes under the activation's workspace.
    """

    tenant: str
    name: str
    kind: str
    audience: AudienceKind
    audience_id: str | None
    partitioned: bool
    workspace: bool
    held: str | None
    """Why deliveries wait instead of being attempted (`sink paused`, `sink disabled: …`, `sink cannot be opened: …`).

    None: it is open.
    """
    lands: tuple[str, ...] = ("personal", "brain", "local")
    """The lands that its kind takes; none where its kind or its options cannot be read here."""


class Route(NamedTuple):
    """A principal's wish to have a ref of a pack in a sink. `ref` may be `*`; `project` narrows to its events."""

    id: str
    tenant: str
    owner: str
    pack_id: str
    ref: str
    sink: str
    project: str | None
    expires_at: Micros | None
    filter: str | None = None
    """A condition in CEL on the event; None: every event passes."""
