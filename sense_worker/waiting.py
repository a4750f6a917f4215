"""What waits on the streams: the oldest entry that no reader has finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sense_worker.server import connect
from sense_worker.wire import GROUP, stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis


class Waiting(NamedTuple):
    """An entry that was not finished, read or not."""

    stream: str
    id: str

    @property
    def micros(self) -> int:
        """The moment in its id."""
        return int(self.id.partition("-")[0]) * 1000


def oldest_entry(client: redis.Redis, tenants: Sequence[str], of: Callable[[str], str] = stream_of) -> Waiting | None:
    """Return the oldest unread or pending entry of these tenants' streams; None where nothing waits.

    `of` names a tenant's stream. Two round trips for all of them. `client` decodes its answers. Raises
    redis.RedisError.
    """
    streams = [of(tenant) for tenant in tenants]
    asked = client.pipeline(transaction=False)
    for stream in streams:
        asked.xinfo_groups(stream)
        asked.xpending(stream, GROUP)
    answers = asked.execute(raise_on_error=False)
    groups = [_last_read(answer) for answer in answers[::2]]
    unread = client.pipeline(transaction=False)
    for stream, last in zip(streams, groups, strict=True):
        unread.xrange(stream, f"({last}", "+", count=1)
    found = [Waiting(name, ids[0][0]) for name, ids in zip(streams, unread.execute(), strict=True) if ids]
    for stream, pending in zip(streams, answers[1::2], strict=True):
        if not _absent(pending) and pending["pending"]:
            found.append(Waiting(stream, str(pending["min"])))
    return min(found, key=lambda waiting: waiting.micros, default=None)


def streams_ahead(client: redis.Redis, tenants: Sequence[str], limit_micros: int) -> list[str]:
    """Return these tenants' streams whose last id lies after `limit_micros`; one round trip. Raises redis.RedisError.

    `client` decodes its answers. Whoever may write to a stream can write an id of their own, and all later ones are
    greater: after the greatest possible one the stream takes nothing more.
    """
    streams = [stream_of(tenant) for tenant in tenants]
    asked = client.pipeline(transaction=False)
    for stream in streams:
        asked.xinfo_stream(stream)
    answers = zip(streams, asked.execute(raise_on_error=False), strict=True)
    return [
        stream
        for stream, answer in answers
        if not _absent(answer) and Waiting(stream, str(answer["last-generated-id"])).micros > limit_micros
    ]


def _last_read(answer: Any) -> str:
    """Return the last id the group was given; without stream or group nothing was read."""
    if _absent(answer):
        return "0-0"
    return next((str(group["last-delivered-id"]) for group in answer if group["name"] == GROUP), "0-0")


def _absent(answer: Any) -> bool:
    """Say whether a stream or its group does not exist; any other error is raised."""
    if not isinstance(answer, Exception):
        return False
    if str(answer).lower().startswith(("no such key", "nogroup")):
        return True
    raise answer


def stream_counts(url: str | None, tenant: str) -> tuple[int | None, int | None]:
    """Return how many entries stand on a tenant's stream, and how many of them are pending; None where it is away."""
    if url is None:
        return None, None
    from redis.exceptions import RedisError  # late, as in `server`

    try:
        with connect(url, timeout_s=2) as client:
            asked = client.pipeline(transaction=False)
            asked.xlen(stream_of(tenant))
            asked.xpending(stream_of(tenant), GROUP)
            length, pending = asked.execute(raise_on_error=False)
    except RedisError:
        return None, None
    return int(length), int(pending["pending"]) if isinstance(pending, dict) else 0
