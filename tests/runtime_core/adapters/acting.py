"""A world in memory in which ana runs commands of installed packs through the whole pipeline."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from runtime_core.envelope import Envelope
from runtime_core.execution import ExecFacts, execute
from runtime_core.grants import Grant
from runtime_core.identity import Activation, Credential, Principal, Session
from runtime_core.memory import MemoryAudit, MemoryAuthority
from runtime_core.pack import PackRevision, read_pack
from runtime_core.runtime import Runtime
from tests.runtime_core.adapters.wrapping import NOW, Hub

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime_core.envelope import ResultEnvelope
    from runtime_core.runtime import Adapter

PUBLIC = {"mode": "public", "hub": "none"}


class Acting:
    """The rows, the audit, and a hub that gives everybody the same material."""

    def __init__(self, adapters: Mapping[str, Adapter], fields: Mapping[str, str] | None = None) -> None:
        self.adapters = adapters
        self.hub: Any = Hub(fields or {})
        self.audit = MemoryAudit()
        self.rows = MemoryAuthority()
        self.may_begin = True
        self.rows.put_principal(Principal("acme", "ana", "human", operator=False, disabled=False))
        self.rows.put_session(Session("s1", "acme", "ana", NOW * 2, revoked=False))
        self._names = itertools.count()

    def install(self, files: tuple[bytes, bytes, bytes], bins: Mapping[str, str] | None = None) -> str:
        """Install a pack; return its id."""
        pack = read_pack(*files)
        self.rows.put_revision(PackRevision("acme", 1, pack, bins or {}))
        return pack.pack_id

    def activate(self, pack_id: str, project: str | None = None, workspace: str | None = None) -> None:
        """Make a pack active on ana's session."""
        place = (pack_id, project, workspace, False)
        self.rows.put_activation(Activation(f"a-{pack_id}-{project}", "acme", "s1", *place, Credential(b"x")))

    def grant(self, pack_id: str, *capabilities: str, keys: tuple[str, ...] | None = None) -> None:
        """Grant ana capabilities over a pack."""
        for capability in capabilities:
            name = f"g{next(self._names)}"
            self.rows.put_grant(Grant(name, "acme", "ana", capability, pack_id, keys, None, None))

    def run(
        self,
        pack_id: str,
        verb_key: str,
        args: dict[str, Any] | None = None,
        *,
        project: str | None = None,
        deadline: int | None = None,
        request_id: str = "request-1",
    ) -> ResultEnvelope:
        """Run one command through every step."""
        hubs = {"keyring": self.hub, "local-credential": self.hub}
        ports = (self.rows.snapshot, self.audit, hubs, self.adapters, lambda: NOW, lambda _: self.may_begin)
        asked = Envelope(pack_id, verb_key, args or {})
        return execute(Runtime(*ports), ExecFacts("acme", "s1", project, asked, request_id, deadline)).envelope()

    def told(self) -> list[tuple[str, str, bool, str | None]]:
        """Return the audit's lines: action, key, ok, reason."""
        return [(one.action, one.key, one.ok, one.reason) for one in self.audit.records]


def files(
    pack_id: str,
    adapter: Any,
    verbs: dict[str, Any],
    entries: dict[str, Any],
    **fields: Any,
) -> tuple[bytes, bytes, bytes]:
    """Return the three files of a pack; an entry is its operation, or operation and confirm."""
    policy: dict[str, Any] = {"surface_id": pack_id, "version": 1, "verbs": {}, "stimuli": {}}
    for key, entry in entries.items():
        operation, *confirm = entry if isinstance(entry, tuple) else (entry,)
        more = {"confirm": True} if confirm and confirm[0] else {}
        policy["verbs"][key] = {"operation": operation, "privacy": {"land": "personal"}, **more}
    surface = {"id": pack_id, "adapter": adapter, "binding": PUBLIC, "verbs": verbs, **fields}
    return json.dumps(surface).encode(), json.dumps(policy).encode(), f"# {pack_id}\n".encode()
