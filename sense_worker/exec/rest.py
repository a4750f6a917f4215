"""A request at rest: sealed by the vault, with the secret that its reply must be sealed under (DESIGN §8).

The secret stands beside the request because a session's secret may be rotated while the request waits, and its client
has the one it signed with.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from runtime_core.envelope import check_envelope
from sense_worker.exec.replies import Reply, make_reply
from sense_worker.exec.request import ExecRequest, parse_request
from sense_worker.exec.wire import Place

if TYPE_CHECKING:
    from runtime_core.envelope import Envelope
    from sense_worker.storage.exec_ledger import ClaimedExec, Waiting
    from sense_worker.vault import Vault

_LENGTH = struct.Struct(">H")


class Opened(NamedTuple):
    """A request to run, out of its seal."""

    secret: bytes
    """Under which it was signed."""
    project: str | None
    envelope: Envelope


def put_to_rest(vault: Vault, secret: bytes, plain: bytes) -> bytes:
    """Return the token that a row keeps."""
    return vault.seal(_LENGTH.pack(len(secret)) + secret + plain)


def open_rest(vault: Vault, row: ClaimedExec) -> Opened:
    """Return the request that a row keeps. Raises HcpError where no key opens it, TypeError where it is none to run."""
    secret, plain = _from_rest(vault, row.sealed)
    request = parse_request(plain)
    if not isinstance(request, ExecRequest):
        raise TypeError("a row holds a request to run")
    return Opened(secret, request.project_id, check_envelope(request.envelope))


def reply_to(vault: Vault, row: ClaimedExec | Waiting, envelope: bytes, secret: bytes | None = None) -> Reply:
    """Seal an encoded result envelope for the client of a row; `secret` is the row's, where it is at hand.

    Raises HcpError where no key opens the row.
    """
    if secret is None:
        secret, _ = _from_rest(vault, row.sealed)
    place = Place(row.session_id, row.message_id, row.signed_at)
    return make_reply(row.tenant, secret, place, row.message_id, envelope)


def _from_rest(vault: Vault, sealed: bytes) -> tuple[bytes, bytes]:
    whole = vault.open(sealed)
    (length,) = _LENGTH.unpack_from(whole)
    return whole[_LENGTH.size : _LENGTH.size + length], whole[_LENGTH.size + length :]
