"""Connections: a principal gives up the credential that a hub keeps for it (§1.6.connect, DESIGN §3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime_core.binding import Holder, HubUnavailable, holder_of
from runtime_core.errors import HcpError, NotFound
from sense_worker.hubs import build_hubs
from sense_worker.operator.desk import Desk
from sense_worker.operator.names import pack_name
from sense_worker.operator.revisions import newest_pack

if TYPE_CHECKING:
    import sqlalchemy as sa

    from sense_worker.hubs import KeptHub
    from sense_worker.hubs.kept import Removed


@dataclass(frozen=True, slots=True)
class Disconnected:
    """What was given up: `identity` is null where nothing was kept; a family's consent ends for all of its packs."""

    pack_id: str
    consent: str
    identity: str | None


class Connections(Desk):
    """Needs nothing but one's own session, and gives up nothing but its principal's own."""

    def disconnect(self, pack_id: str) -> Disconnected:
        """Forget the acting principal's credential for the pack, or its family, in every hub of this host.

        Nothing is minted from it from the commit on. Raises NotFound for a pack never installed, HcpError where
        a keyring still holds the sealed material, of no use without its row.
        """
        pack_name(pack_id)
        hubs = build_hubs(self.settings, self._database, self._vault)
        left: list[tuple[KeptHub, Removed]] = []
        with self._change("disconnect", operator=False) as change:
            change.pack_id = pack_id
            pack = newest_pack(change.connection, change.acting.tenant, pack_id)
            if pack is None:
                raise NotFound("pack", f"{pack_id!r} was never installed", "see `sense-worker pack list`")
            holder = holder_of(change.acting.tenant, change.acting.principal, pack)
            left = _removed(change.connection, hubs, holder)
            change.nothing = not left
            change.subject = holder.consent
            change.binding = left[0][1].identity if left else None
        try:
            for hub, removed in left:
                hub.clear(removed)
        except HubUnavailable as error:
            reason = f"disconnected, but the sealed material could not be removed: {error}"
            raise HcpError(pack_id, reason, "remove it in the keyring; nothing opens it any more") from None
        return Disconnected(pack_id, holder.consent, change.binding)


def _removed(connection: sa.Connection, hubs: dict[str, KeptHub], holder: Holder) -> list[tuple[KeptHub, Removed]]:
    """Remove the rows of a holder in every hub: an earlier revision of the pack may have named another one."""
    found = [(hub, hub.remove(connection, holder)) for hub in hubs.values()]
    return [(hub, removed) for hub, removed in found if removed is not None]
