"""Replies: a result envelope, sealed for its request, on the list its client reads (DESIGN §8)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from sense_worker.exec.wire import Place, reply_key, seal_reply

if TYPE_CHECKING:
    from collections.abc import Iterable

    import redis

    from runtime_core.envelope import ResultEnvelope

REFUSED = "refused: {}"


class Reply(NamedTuple):
    """A sealed reply and its address."""

    key: str
    body: bytes


def encoded(envelope: ResultEnvelope) -> bytes:
    """Return a result envelope as JSON text."""
    return json.dumps(envelope.plain(), ensure_ascii=False, separators=(",", ":")).encode()


def make_reply(tenant: str, secret: bytes, place: Place, message_id: str, envelope: bytes) -> Reply:
    """Seal an encoded result envelope for one request."""
    return Reply(reply_key(tenant, message_id), seal_reply(secret, place, envelope))


def push(client: redis.Redis, replies: Iterable[Reply], keep_s: float) -> None:
    """Put replies where their clients wait; one round trip. Each is kept `keep_s`, read or not.

    One that is there already (the worker died after it, and the request ran again) stays the first in the list.
    """
    pipeline = client.pipeline(transaction=False)
    for reply in replies:
        pipeline.rpush(reply.key, reply.body)
        pipeline.pexpire(reply.key, int(keep_s * 1000))
    if len(pipeline):
        pipeline.execute()
