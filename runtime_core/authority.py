"""Authority: what one tenant's rows say at one version, as the pipeline reads it (DESIGN §6).

A snapshot belongs to one authority version of one tenant and fills itself on demand from a source, a port that each
store implements. A new version means a new snapshot; nothing in it ever ages, so there is no TTL (C15).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from runtime_core.grants import Grant, GrantTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runtime_core.identity import Activation, Micros, Principal, Route, Session, Sink
    from runtime_core.pack import PackRevision
    from runtime_core.pipeline import Attempt


class AuthoritySource(Protocol):
    """Loads rows of one tenant. Every method reads committed rows; a missing row is None or empty."""

    def activation(self, tenant: str, activation_id: str) -> Activation | None: ...

    def activations_on(self, tenant: str, session_id: str) -> Iterable[Activation]: ...

    def session(self, tenant: str, session_id: str) -> Session | None: ...

    def principal(self, tenant: str, principal_id: str) -> Principal | None: ...

    def members(self, tenant: str, project_id: str) -> Iterable[str]: ...

    def grants(self, tenant: str, principal_id: str) -> Iterable[Grant]: ...

    def revision(self, tenant: str, pack_id: str) -> PackRevision | None: ...

    def sink(self, tenant: str, name: str) -> Sink | None: ...

    def routes(self, tenant: str, pack_id: str, ref: str) -> Iterable[Route]:
        """Return the standing routes of the pack whose ref is `ref` or `*`, by route id."""
        ...


Announcer = tuple["Activation | None", "Session | None"]
"""An activation and the session it is on."""
Holder = tuple["Principal | None", GrantTable]
"""A principal and the grants it holds."""
UNKNOWN: Announcer = (None, None)


_Key = TypeVar("_Key")
_Row = TypeVar("_Row")


class _Kept(dict[_Key, _Row]):
    """Rows by id, loaded when they are first asked for. One that is there costs a look-up and no call of Python.

    The answer `unkept` is not kept: strangers choose the ids of activations and sessions, and memory must stay flat.
    """

    def __init__(self, load: Callable[[_Key], _Row], unkept: object = ...) -> None:
        super().__init__()
        self._load = load
        self._unkept = unkept

    def __missing__(self, key: _Key) -> _Row:
        found = self._load(key)
        if found is not self._unkept:
            self[key] = found
        return found


class Authority:
    """A lazily filled snapshot of one tenant at one version.

    Threads may share it. Nothing in it is changed once it is there: two threads that miss the same row load it twice,
    and keep what is equal, because a snapshot decides only while its version still is the tenant's.
    """

    def __init__(self, tenant: str, version: int, source: AuthoritySource) -> None:
        self.tenant = tenant
        self.version = version
        self._source = source
        self.decisions: dict[tuple[str, ...], Attempt] = {}
        """What the pipeline decided against this snapshot (see `pipeline.decide`)."""
        # The rows that a decision looks at together are kept together: with thousands of principals it waits for
        # memory at every object it touches, and that was half of its time.
        self.announcer: Callable[[str], Announcer] = _Kept(self._announcer, UNKNOWN).__getitem__
        """An activation with its session, by the activation's id; UNKNOWN where there is none."""
        self.holder: Callable[[str], Holder] = _Kept(self._holder).__getitem__
        """A principal with its grants."""
        self.session: Callable[[str], Session | None] = _Kept(partial(source.session, tenant), None).__getitem__
        self.principal: Callable[[str], Principal | None] = _Kept(partial(source.principal, tenant)).__getitem__
        self.revision: Callable[[str], PackRevision | None] = _Kept(partial(source.revision, tenant)).__getitem__
        """The newest revision in force, by pack id."""
        self.sink: Callable[[str], Sink | None] = _Kept(partial(source.sink, tenant)).__getitem__
        self.members: Callable[[str], frozenset[str]] = _Kept(self._members).__getitem__
        """The members of a project now; empty for one that exists nowhere or in another tenant (C18)."""
        self._routes: _Kept[tuple[str, str], dict[str, Route]] = _Kept(self._matching)
        self._activations_on: dict[str, list[Activation]] = {}

    def activation(self, activation_id: str) -> Activation | None:
        return self.announcer(activation_id)[0]

    def activations_of(self, session_id: str, pack_id: str) -> list[Activation]:
        """Return the session's standing activations of a pack."""
        return [row for row in self._standing_on(session_id) if row.pack_id == pack_id]

    def activation_of(self, session_id: str, pack_id: str, project_id: str | None) -> Activation | None:
        """Return the session's own standing activation of the pack for exactly this project (DESIGN §8)."""
        found = self._standing_on(session_id)
        return next((row for row in found if row.pack_id == pack_id and row.project_id == project_id), None)

    def _standing_on(self, session_id: str) -> list[Activation]:
        found = self._activations_on.get(session_id)
        if found is None:
            found = [row for row in self._source.activations_on(self.tenant, session_id) if not row.revoked]
            if found:  # strangers choose these ids too
                self._activations_on[session_id] = found
        return found

    def grant(
        self, principal_id: str, capability: str, pack_id: str, key: str | None, project: str | None, now: Micros
    ) -> Grant | None:
        """Return the grant that allows it, or None (§9.4.4)."""
        return self.holder(principal_id)[1].find(capability, pack_id, key, project, now)

    def routes(self, pack_id: str, ref: str) -> dict[str, Route]:
        """Return the standing routes that match the pack and ref, by route id in id order; not to be changed."""
        return self._routes[pack_id, ref]

    def _announcer(self, activation_id: str) -> Announcer:
        activation = self._source.activation(self.tenant, activation_id)
        return UNKNOWN if activation is None else (activation, self.session(activation.session_id))

    def _holder(self, principal_id: str) -> Holder:
        return self.principal(principal_id), GrantTable(self._source.grants(self.tenant, principal_id))

    def _members(self, project_id: str) -> frozenset[str]:
        return frozenset(self._source.members(self.tenant, project_id))

    def _matching(self, at: tuple[str, str]) -> dict[str, Route]:
        return {route.id: route for route in self._source.routes(self.tenant, *at)}
