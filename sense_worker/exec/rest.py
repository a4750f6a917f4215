"""A request at rest: sealed by the vault, with the secret that its reply must be sealed under (DESIGN §8).

The secret stands beside the request because a session's secret may be rotated while the request waits, and its client
has the one it signed with.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from sense_worker.exec.replies import Reply, make_reply
from sense_worker.exec.wire import Place

if TYPE_CHECKING:
    from sense_worker.storage.exec_ledger import ClaimedExec, Waiting
    from sense_worker.vault import Vault

_LENGTH = struct.Struct(">H")


def put_to_rest(vault: Vault, secret: bytes, plain: bytes) -> bytes:
    """Return the token that a row keeps."""
    return vault.seal(_LENGTH.pack(len(secret)) + secret + plain)


def from_rest(vault: Vault, sealed: bytes) -> tuple[bytes, bytes]:
    """Return the secret and the plain request. Raises HcpError where no key opens the token."""
    whole = vault.open(sealed)
    (length,) = _LENGTH.unpack_from(whole)
    return whole[_LENGTH.size : _LENGTH.size + length], whole[_LENGTH.size + length :]


def reply_to(vault: Vault, row: ClaimedExec | Waiting, envelope: bytes) -> Reply:
    """Seal an encoded result envelope for the client of a row. Raises HcpError where no key opens it."""
    secret, _ = from_rest(vault, row.sealed)
    place = Place(row.session_id, row.message_id, row.signed_at)
    return make_reply(row.tenant, secret, place, row.message_id, envelope)
