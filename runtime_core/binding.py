"""Binding: the credential of a pack, and the hub that mints it (§1.4, DESIGN §5). Never a secret of the pack."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime_core.pack import Pack

FREE_MODES = frozenset({"public", "mock"})
"""Modes that need no connection: nothing is kept, nothing is minted."""


class NotConnected(Exception):
    """The principal has no credential for the pack or its family yet."""


class HubUnavailable(Exception):
    """The hub cannot be asked now: locked, away, or not there on this host."""


class Holder(NamedTuple):
    """Whose credential it is: one consent of one principal."""

    tenant: str
    principal: str
    consent: str
    """`family:NAME` or `pack:ID`: packs of one family share it (§1.4.family)."""


class Binding(NamedTuple):
    """A minted credential; `identity` names it and is no Principal (§9.6.4)."""

    mode: str
    hub: str
    identity: str | None
    fields: Mapping[str, str]
    """Secret material by name, for the pack's `binding.env` and `binding.headers`."""

    def __repr__(self) -> str:
        """Return it without its material."""
        return f"Binding(mode={self.mode!r}, hub={self.hub!r}, identity={self.identity!r}, fields=<{len(self.fields)}>)"


class Hub(Protocol):
    """Keeps and mints the credentials of principals."""

    def connected(self, holder: Holder) -> bool:
        """Tell whether a credential is kept. Raises HubUnavailable."""
        ...

    def mint(self, holder: Holder) -> tuple[str, Mapping[str, str]]:
        """Return the identity and the material. Raises NotConnected and HubUnavailable."""
        ...

    def keep(self, holder: Holder, identity: str, fields: Mapping[str, str]) -> None:
        """Keep a credential in place of the one before. Raises HubUnavailable."""
        ...


def holder_of(tenant: str, principal: str, pack: Pack) -> Holder:
    """Return whose credential a command of the pack uses."""
    consent = f"pack:{pack.pack_id}" if pack.family is None else f"family:{pack.family}"
    return Holder(tenant, principal, consent)


def is_free(pack: Pack) -> bool:
    """Tell whether the pack needs no connection."""
    return pack.manifest.binding.mode in FREE_MODES
