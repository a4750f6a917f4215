"""The signature of an announcement and the freshness of its moment (DESIGN §4).

`s` = lower-case hex HMAC-SHA256(secret, netstrings of `sense1`, c, i, t, b): a shell can make it, and no two
messages share the bytes under it. A netstring is the length in decimal, a colon, the bytes, a comma.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runtime_core.identity import Micros

SCHEME = b"sense1"
SECOND: Micros = 1_000_000

_HEAD = b"%d:%s," % (len(SCHEME), SCHEME)
# 11 digits end in the year 5138: milliseconds have 13 and cannot pass for seconds (C12).
_SIGNED_AT = re.compile(rb"([0-9]{1,11})(?:\.([0-9]{1,6}))?")


def sign(secret: bytes, activation_id: str, message_id: str, signed_at: str, body: bytes) -> str:
    """Return the signature as 64 lower-case hex digits. Raises ValueError for an empty secret (C11)."""
    if not secret:
        raise ValueError("a signing secret must not be empty")
    return hmac.digest(secret, _message(activation_id, message_id, signed_at, body), "sha256").hex()


def verify(
    secrets: Iterable[bytes],
    activation_id: str | bytes,
    message_id: str | bytes,
    signed_at: str | bytes,
    body: bytes,
    signature: str | bytes,
) -> bool:
    """Tell whether one of `secrets` made `signature`; compares in constant time and raises for no bytes (C10).

    An empty secret verifies nothing, so a missing one never means "do not check" (C11).
    """
    message = _message(activation_id, message_id, signed_at, body)
    given = _bytes(signature)
    for secret in secrets:
        if secret and hmac.compare_digest(hmac.digest(secret, message, "sha256").hex().encode(), given):
            return True
    return False


def parse_signed_at(raw: bytes) -> Micros | None:
    """Return the moment of decimal seconds, at most six digits of fraction; None for any other form (C12)."""
    match = _SIGNED_AT.fullmatch(raw)
    if match is None:
        return None
    whole, fraction = match.groups()
    return int(whole) * SECOND + (int(fraction.ljust(6, b"0")) if fraction else 0)


def freshness(signed_at: Micros, arrival: Micros, tolerance_s: float) -> Literal["stale", "early"] | None:
    """Return the intake word for a moment further than `tolerance_s` seconds from arrival, None within it (C12)."""
    tolerance = tolerance_s * SECOND
    if arrival - signed_at > tolerance:
        return "stale"
    if signed_at - arrival > tolerance:
        return "early"
    return None


def _message(activation_id: str | bytes, message_id: str | bytes, signed_at: str | bytes, body: bytes) -> bytes:
    c, i, t = _bytes(activation_id), _bytes(message_id), _bytes(signed_at)
    return b"%b%d:%b,%d:%b,%d:%b,%d:%b," % (_HEAD, len(c), c, len(i), i, len(t), t, len(body), body)


def _bytes(text: str | bytes) -> bytes:
    # A lone surrogate has no UTF-8; whatever it becomes here, it must not raise and matches nothing signed.
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
