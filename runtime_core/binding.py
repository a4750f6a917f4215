"""Binding: the credential of a pack, and the hub that mints it (§1.4, DESIGN §5). Never a secret of the pack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime_core.pack import Pack

FREE_MODES = frozenset({"public", "mock"})
"""Modes that need no connection: nothing is kept, nothing is minted."""


IDENTITY_LIMIT = 256
"""Characters of an identity: a name for people, which stands in every line of the audit."""


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


def connect_answer(answer: Any) -> tuple[str, dict[str, str]] | None:
    """Return identity and material of what a connect command answered, `{"identity", "secret"}`; None: it is neither.

    The secret is a text, or texts by name. An identity is shown and recorded: one that holds the secret is none.
    """
    if not isinstance(answer, dict):
        return None
    identity, secret = answer.get("identity"), answer.get("secret")
    fields = {"secret": secret} if isinstance(secret, str) else secret
    if not isinstance(fields, dict) or not all(isinstance(value, str) and value for value in fields.values()):
        return None
    if not isinstance(identity, str) or not 0 < len(identity) <= IDENTITY_LIMIT or not fields:
        return None
    return None if isinstance(secret, str) and secret in identity else (identity, fields)
