"""Capabilities and grants, compiled to set look-ups (§9.4)."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runtime_core.identity import Micros


class Capability(StrEnum):
    """The five axes of §9.4 and the elevation of §9.8; never collapsed into one (§9.4.2)."""

    PACK_INSTALL = "pack.install"
    PACK_CONNECT = "pack.connect"
    VERB_EXEC_READ = "verb.exec.read"
    VERB_EXEC_WRITE = "verb.exec.write"
    SENSE_ENABLE = "sense.enable"
    MOTHERSHIP_ELEVATE = "mothership.elevate"


ANY_PACK = "*"


class Grant(NamedTuple):
    """One row: who may cause which effect. `keys` None means all; empty matches nothing (DESIGN §3)."""

    id: str
    tenant: str
    principal: str
    capability: str
    pack_id: str
    keys: tuple[str, ...] | None
    project: str | None
    expires_at: Micros | None

    def allows(self, project: str | None, now: Micros) -> bool:
        """Tell whether it holds at `now` for `project`: the project of a brain event or command, else None."""
        if self.expires_at is not None and now >= self.expires_at:
            return False
        return self.project is None or self.project == project


class GrantTable:
    """The grants of one principal in one tenant, by capability, pack and key. Immutable after it is built."""

    __slots__ = ("_always", "_limited")

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._always: dict[tuple[str, str, str | None], Grant] = {}
        """Those for no project and with no end: found, they allow."""
        self._limited: dict[tuple[str, str, str | None], list[Grant]] = {}
        for grant in grants:
            for key in (None,) if grant.keys is None else grant.keys:
                at = (grant.capability, grant.pack_id, key)
                if grant.project is None and grant.expires_at is None:
                    self._always.setdefault(at, grant)
                else:
                    self._limited.setdefault(at, []).append(grant)

    def find(self, capability: str, pack_id: str, key: str | None, project: str | None, now: Micros) -> Grant | None:
        """Return the grant that matches in the most specific place, an unlimited one first; None denies (§9.4.4).

        `key` is a verb_key or ref; None asks for a pack-wide effect, which only a grant for all keys allows.
        """
        at = (capability, pack_id, key)
        grant = self._always.get(at)  # decides nearly always: the grant that names pack and key
        if grant is not None:
            return grant
        for place in (at, (capability, pack_id, None), (capability, ANY_PACK, key), (capability, ANY_PACK, None)):
            grant = self._always.get(place)
            if grant is not None:
                return grant
            for limited in self._limited.get(place, ()):
                if limited.allows(project, now):
                    return limited
        return None
