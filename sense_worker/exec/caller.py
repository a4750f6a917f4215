"""What the blocking and the async client of Execute have in common: everything but the I/O (DESIGN §8)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

from runtime_core.errors import UsageError
from runtime_core.redis_url import REDIS_FORMS, RedisUrl
from sense_worker.exec.asking import BLOCK_S, HeldSession, ask
from sense_worker.session_file import SessionFile, held_session

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from sense_worker.exec.asking import ExecOptions, Request
    from sense_worker.held_file import HeldFile

TIMEOUT_S = 5.0
"""How long one answer of the server may take."""
CONNECTIONS = 1_000
"""Of one client at most: each request that waits for its answer holds one."""


class AnyClient:
    """Acts under one session. `project` selects the activation where a call names none; it grants nothing.

    `redis_url`: `redis://…`, `rediss://…` or `unix:///path`. At most `connections` requests wait at a time. Raises
    UsageError for a URL that is none.
    """

    def __init__(
        self,
        session: HeldSession | HeldFile[SessionFile],
        redis_url: str,
        *,
        project: str | None = None,
        connections: int = CONNECTIONS,
    ) -> None:
        self._session = session
        self._project = project
        try:
            RedisUrl.parse(redis_url, more_options=True)
            self._connect(redis_url, connections)
        except ValueError:  # redis-py's text may hold the URL, and that a password
            raise UsageError("redis_url", f"must be {REDIS_FORMS}") from None

    @classmethod
    def from_session_file(cls, path: Path, redis_url: str | None = None, **options: Any) -> Self:
        """Act under the session of a file, as `session create` writes it; a rotated one is taken up by itself.

        `redis_url` None: SENSE_REDIS_URL, else the server of the `up` that runs on HCP_HOME. `options` as of the class.
        Raises UsageError for a file that is none, and where no server is named.
        """
        return cls(held_session(path), redis_url or _named_url(), **options)

    def under(self, session: HeldSession) -> Self:
        """Return a client for another session over the same connections; close only the one that made them."""
        other = copy.copy(self)
        other._session = session  # noqa: SLF001 - of its own kind
        return other

    def _connect(self, redis_url: str, connections: int) -> None:
        raise NotImplementedError

    def _ask(self, pack_id: str, verb_key: str, args: dict[str, Any] | None, options: ExecOptions) -> Request:
        held = self._session
        if not isinstance(held, HeldSession):
            held = HeldSession.of(held.renewed())
        options = cast("ExecOptions", {**options, "project": options.get("project") or self._project})
        return ask(held, pack_id, verb_key, args, **options)


def connection_options(connections: int) -> dict[str, Any]:
    """Return how either client connects; the replies have one shape on Redis 7.0 and later and on Valkey."""
    return {
        "socket_timeout": TIMEOUT_S + BLOCK_S,
        "socket_connect_timeout": TIMEOUT_S,
        "max_connections": connections,
        "protocol": 2,
    }


def _named_url() -> str:
    from sense_worker.settings import Settings
    from sense_worker.up_file import discover_redis_url

    url = discover_redis_url(Settings.load())
    if url is None:
        raise UsageError("redis_url", "is not given", "give it, set SENSE_REDIS_URL, or start `sense-worker up`")
    return url
