"""What a webhook sends: a body that is the same at every attempt, and headers signed for this one (C50).

Standard Webhooks 1.0.0 signs `id.timestamp.body`. CloudEvents 1.0 in HTTP's binary mode adds its attributes as headers
and leaves the envelope out of the body; it is signed in the same way.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from datetime import datetime
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import jiter

from sinks.line import rfc3339, told
from sinks.webhook_options import LINK_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sinks.protocol import Delivery
    from sinks.webhook_options import WebhookOptions

_HEADER_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


class NoEvent(Exception):
    """A body that is no event; it could not have been accepted."""


class Message(NamedTuple):
    """One request, and the attempt it belongs to."""

    headers: dict[str, str]
    body: bytes


def message(delivery: Delivery, options: WebhookOptions, keys: Iterable[bytes], second: int) -> Message:
    """Return the request for one attempt at `second` of the epoch, signed with each of `keys`; raises NoEvent."""
    data = _data(delivery, options)
    cloud = options.mode == "cloudevents"
    body = data if cloud else _enveloped(delivery, data)
    signed = b"%s.%d.%s" % (delivery.id.encode("utf-8"), second, body)
    return Message(
        {
            "Content-Type": "application/json",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(second),
            "webhook-signature": " ".join([_signature(key, signed) for key in keys]),
            **(_attributes(delivery) if cloud else {}),
        },
        body,
    )


def _signature(key: bytes, signed: bytes) -> str:
    return f"v1,{b64encode(hmac.digest(key, signed, 'sha256')).decode('ascii')}"


def _enveloped(delivery: Delivery, data: bytes) -> bytes:
    return b'%s,"data":%s}' % (_object({"type": delivery.ref, "timestamp": _moment(delivery)})[:-1], data)


def _data(delivery: Delivery, options: WebhookOptions) -> bytes:
    """Return what is told of the delivery: the ids and a link, with `full` the event as it was signed too."""
    link = None if options.link is None else _link(options.link, delivery)
    thin = _object({**told(delivery, "publisher", "occurred_at"), "link": link})
    if options.payload == "thin":
        return thin
    try:
        whole = isinstance(jiter.from_json(delivery.body), dict)
        delivery.body.decode("utf-8")
    except ValueError:
        whole = False
    if not whole:
        raise NoEvent
    # Put in as it stands: the same floats, spacing and order of keys that the adapter signed.
    return b'%s,"event":%s}' % (thin[:-1], delivery.body)


def _object(fields: Mapping[str, str | None]) -> bytes:
    """Return texts as a JSON object, as json.dumps would; an encoder made for each costs as much as all the rest."""
    members = [
        f'"{name}":null' if value is None else f'"{name}":{encode_basestring_ascii(value)}'
        for name, value in fields.items()
    ]
    return f"{{{','.join(members)}}}".encode("ascii")


def _link(template: str, delivery: Delivery) -> str:
    fields = delivery._asdict()
    return template.format_map({name: quote(fields[name] or "", safe="") for name in LINK_FIELDS})


def _attributes(delivery: Delivery) -> dict[str, str]:
    subject = {} if not delivery.subject else {"ce-subject": quote(delivery.subject, safe=_HEADER_SAFE)}
    return {
        "ce-specversion": "1.0",
        "ce-id": delivery.id,
        "ce-source": f"/{quote(delivery.tenant, safe='')}/{quote(delivery.pack_id, safe='')}",
        "ce-type": delivery.ref,
        "ce-time": _moment(delivery),
        **subject,
    }


def _moment(delivery: Delivery) -> str:
    """Return when it occurred, in a form that every reader takes; what few take (a leap second) is when it arrived."""
    try:
        return datetime.fromisoformat(delivery.occurred_at).isoformat()
    except ValueError:
        return rfc3339(delivery.accepted_at)
