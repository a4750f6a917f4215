"""What a webhook sends: a body that is the same at every attempt, and headers signed for this one (C50).

Standard Webhooks 1.0.0 signs `id.timestamp.body`. CloudEvents 1.0 in HTTP's binary mode adds its attributes as headers
and leaves the envelope out of the body; it is signed in the same way.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import jiter

from sinks.line import rfc3339, told
from sinks.webhook_options import LINK_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from standardwebhooks import Webhook as Signer

    from sinks.protocol import Delivery
    from sinks.webhook_options import WebhookOptions

_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_HEADER_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


class NoEvent(Exception):
    """A body that is no event; it could not have been accepted."""


class Message(NamedTuple):
    """One request, and the attempt it belongs to."""

    headers: dict[str, str]
    body: bytes


def message(delivery: Delivery, options: WebhookOptions, signers: Iterable[Signer], now: float) -> Message:
    """Return the request for one attempt at `now`, seconds since the epoch; raises NoEvent."""
    data = _data(delivery, options)
    cloud = options.mode == "cloudevents"
    body = data if cloud else _enveloped(delivery, data)
    at = datetime.fromtimestamp(int(now), UTC)
    text = body.decode("utf-8")
    return Message(
        {
            "Content-Type": "application/json",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(int(now)),
            "webhook-signature": " ".join(signer.sign(delivery.id, at, text) for signer in signers),
            **(_attributes(delivery) if cloud else {}),
        },
        body,
    )


def _enveloped(delivery: Delivery, data: bytes) -> bytes:
    head = _encode({"type": delivery.ref, "timestamp": _moment(delivery)})
    return b'%s,"data":%s}' % (head[:-1].encode("ascii"), data)


def _data(delivery: Delivery, options: WebhookOptions) -> bytes:
    """Return what is told of the delivery: the ids and a link, with `full` the event as it was signed too."""
    link = None if options.link is None else _link(options.link, delivery)
    thin = _encode({**told(delivery, "publisher", "occurred_at"), "link": link}).encode("ascii")
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
