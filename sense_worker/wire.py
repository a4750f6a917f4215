"""The fields of a stream entry, built and parsed (DESIGN §4; docs/wire.md is the contract for other languages).

    v  1                    c  activation id        i  message id
    t  signed-at            s  signature            b  body            tp  traceparent, optional and unsigned

Parsing refuses only what comes before authentication in the table of refusals (`no_body`, `too_large`). Everything
else is handed on as bytes, so that intake can refuse in the table's order, and no byte raises anything else (C06).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from runtime_core.errors import DoorError
from runtime_core.event import BODY_LIMIT, MESSAGE_ID
from runtime_core.signing import sign

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = b"1"
GROUP = "sense"
"""The consumer group of all readers."""
REQUIRED = frozenset({b"v", b"c", b"i", b"t", b"s", b"b"})
KNOWN = REQUIRED | {b"tp"}


class Entry(NamedTuple):
    """A stream entry as bytes. A field that is absent is empty: neither is ever valid, so both meet one refusal."""

    v: bytes
    c: bytes
    i: bytes
    t: bytes
    s: bytes
    b: bytes
    tp: bytes
    extra: tuple[bytes, ...]
    """Names of fields that the wire does not know, in the order of the entry."""

    @property
    def activation_id(self) -> str:
        """`c` as text; empty where it cannot be an id, so that no odd byte reaches a database (C06, C09)."""
        return _printable(self.c)

    @property
    def message_id(self) -> str:
        """`i` as text; empty where it is not 1 to 128 printable ASCII characters without a space."""
        return _printable(self.i)


def stream_of(tenant: str) -> str:
    """Return the key of a tenant's event stream."""
    return f"sense:{tenant}:events"


def build_entry(
    secret: bytes, activation_id: str, message_id: str, signed_at: str, body: bytes, traceparent: str | None = None
) -> dict[str, str | bytes]:
    """Return the fields of a signed entry in the order of the wire. `signed_at` is decimal seconds since the epoch.

    Raises ValueError for an empty secret (C11).
    """
    signature = sign(secret, activation_id, message_id, signed_at, body)
    fields: dict[str, str | bytes] = {"v": VERSION, "c": activation_id, "i": message_id, "t": signed_at}
    fields |= {"s": signature, "b": body}
    if traceparent is not None:
        fields["tp"] = traceparent
    return fields


def parse_entry(fields: Mapping[bytes, bytes], limit: int = BODY_LIMIT) -> Entry:
    """Take an entry apart; `limit` is how many bytes a body may have.

    Raises DoorError `no_body` or `too_large`; all other words are for later steps.
    """
    get = fields.get
    body = get(b"b")
    if not body:
        raise DoorError("no_body", "b", "the field is missing or empty")
    if len(body) > limit:
        raise DoorError("too_large", "b", f"{len(body)} bytes, limit {limit}")
    extra = () if fields.keys() <= KNOWN else tuple(name for name in fields if name not in KNOWN)
    v, c, i, t, s = get(b"v", b""), get(b"c", b""), get(b"i", b""), get(b"t", b""), get(b"s", b"")
    return Entry(v, c, i, t, s, body, get(b"tp", b""), extra)


def check_entry(entry: Entry) -> None:
    """Refuse what the signature does not speak of; call it after authentication, in the table's order.

    Raises DoorError `malformed` (v, i) or `unknown_field`, naming the field with odd bytes escaped.
    """
    if entry.v != VERSION:
        raise DoorError("malformed", "v", f"must be {VERSION.decode()}")
    if not entry.message_id:
        raise DoorError("malformed", "i", "must be 1 to 128 printable ASCII characters without a space")
    if entry.extra:
        names = ", ".join(name[:64].decode("ascii", "backslashreplace") for name in entry.extra[:8])
        raise DoorError("unknown_field", names, "the wire knows no such field")


def _printable(raw: bytes) -> str:
    text = raw.decode("ascii", "replace")
    return text if MESSAGE_ID.fullmatch(text) else ""
