"""The exec wire: a sealed request in, a sealed reply out (DESIGN §8; docs/wire.md is the contract for other languages).

    v  1      c  session id      i  message id      t  signed-at      s  signature      b  sealed request

Request and reply are AES-256-GCM under keys derived from the session secret, one for each direction; session id,
message id and signed-at are bound in, so that neither can be moved to another place. The signature over the sealed body
lets a reader refuse a stranger before it decrypts anything.
"""

from __future__ import annotations

import functools
import hmac
import secrets
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sense_worker.wire import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

REQUEST_SCHEME = b"exec1"
REPLY_SCHEME = b"reply1"
NONCE_BYTES = 12
"""96 random bits, as GCM wants them; a session would have to seal 2**32 messages before two may meet."""
KEYS_KEPT = 4_096
"""Derived keys kept in a process: a derivation costs as much as sealing a small request."""

_INFO = {REQUEST_SCHEME: b"sense exec request 1", REPLY_SCHEME: b"sense exec reply 1"}


class Place:
    """What a message is bound to: session id, message id, signed-at, as text on the wire."""

    __slots__ = ("bytes",)

    def __init__(self, session_id: str, message_id: str, signed_at: str) -> None:
        self.bytes = tuple(part.encode("utf-8", "surrogatepass") for part in (session_id, message_id, signed_at))

    @classmethod
    def of(cls, session_id: bytes, message_id: bytes, signed_at: bytes) -> Self:
        """Return the place that an entry's fields name, whatever bytes they are."""
        place = cls("", "", "")
        place.bytes = (session_id, message_id, signed_at)
        return place


def stream_of_exec(tenant: str) -> str:
    """Return the key of a tenant's exec stream."""
    return f"sense:{tenant}:exec"


def reply_key(tenant: str, message_id: str) -> str:
    """Return the key of the list on which the reply to one request is pushed."""
    return f"sense:{tenant}:reply:{message_id}"


def build_request(
    secret: bytes, session_id: str, message_id: str, signed_at: str, plain: bytes
) -> dict[str, str | bytes]:
    """Return the fields of an entry that carries a request, in the order of the wire.

    Raises ValueError for an empty secret (C11).
    """
    place = Place(session_id, message_id, signed_at)
    body = _seal(REQUEST_SCHEME, secret, place, plain)
    signature = _signature(secret, place, body)
    return {"v": VERSION, "c": session_id, "i": message_id, "t": signed_at, "s": signature, "b": body}


def verify_request(secret_pair: Iterable[bytes], place: Place, body: bytes, signature: bytes) -> bytes | None:
    """Return the live secret that signed the entry, or None; compares in constant time (C10)."""
    for secret in secret_pair:
        if secret and hmac.compare_digest(_signature(secret, place, body).encode(), signature):
            return secret
    return None


def open_request(secret: bytes, place: Place, body: bytes) -> bytes | None:
    """Return the plain request; None where the body was not sealed for this place under this secret."""
    return _open(REQUEST_SCHEME, secret, place, body)


def seal_reply(secret: bytes, place: Place, plain: bytes) -> bytes:
    """Return the sealed reply to the request of that place."""
    return _seal(REPLY_SCHEME, secret, place, plain)


def open_reply(secret: bytes, place: Place, body: bytes) -> bytes | None:
    """Return the plain reply; None where it was not sealed for this place under this secret."""
    return _open(REPLY_SCHEME, secret, place, body)


def _seal(scheme: bytes, secret: bytes, place: Place, plain: bytes) -> bytes:
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + _cipher(scheme, secret).encrypt(nonce, plain, _netstrings(scheme, *place.bytes))


def _open(scheme: bytes, secret: bytes, place: Place, body: bytes) -> bytes | None:
    try:
        cipher, nonce = _cipher(scheme, secret), body[:NONCE_BYTES]
        return cipher.decrypt(nonce, body[NONCE_BYTES:], _netstrings(scheme, *place.bytes))
    except (InvalidTag, ValueError):
        return None


def _signature(secret: bytes, place: Place, body: bytes) -> str:
    if not secret:
        raise ValueError("a signing secret must not be empty")
    return hmac.digest(secret, _netstrings(REQUEST_SCHEME, *place.bytes, body), "sha256").hex()


@functools.lru_cache(KEYS_KEPT)
def _cipher(scheme: bytes, secret: bytes) -> AESGCM:
    if not secret:
        raise ValueError("a sealing secret must not be empty")
    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=None, info=_INFO[scheme]).derive(secret))


def _netstrings(*parts: bytes) -> bytes:
    return b"".join(b"%d:%b," % (len(part), part) for part in parts)
