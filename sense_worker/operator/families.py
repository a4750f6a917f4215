"""Families: a pack that joins one gets the credentials its principals gave to the others (§1.4.family, DESIGN §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime_core.binding import holder_of, is_free
from runtime_core.errors import FAMILY_CONSENT, Denied, UsageError
from sense_worker.operator.revisions import readable
from sense_worker.storage import credentials, packs

if TYPE_CHECKING:
    from runtime_core.pack import Pack
    from sense_worker.operator.desk import Change


def joined_family(change: Change, pack: Pack, named: str | None) -> str | None:
    """Return the family that a pack joins by being installed, and whose credentials it then gets; None: it joins none.

    Raises Denied where principals have given that family credentials and it is not `named`, UsageError for the name of
    another family.
    """
    if named is not None and named != pack.family:
        family = "of no family" if pack.family is None else f"of family {pack.family!r}"
        raise UsageError("--join-family", f"{pack.pack_id} is not of family {named!r}", f"it is {family}")
    tenant = change.acting.tenant
    if pack.family is None or is_free(pack) or _had(change, pack):
        return None
    consent = holder_of(tenant, change.acting.principal, pack).consent
    if not credentials.is_live(change.connection, tenant, consent):
        return None
    if named is None:
        raise Denied(FAMILY_CONSENT.text(pack.family))
    return pack.family


def _had(change: Change, pack: Pack) -> bool:
    """Tell whether the revision in force gets those credentials already."""
    rows = packs.in_force(change.connection, change.acting.tenant, pack.pack_id)
    before = readable(rows[0]) if rows else None
    # A pack that needs no credential has none of the hubs that keep one.
    return (
        before is not None and before.family == pack.family and before.manifest.binding.hub == pack.manifest.binding.hub
    )
