"""A host's Redis server as a sink's option names it: a client that repeats nothing, faults in words.

Of the URL only scheme, host and port, or the path of a unix socket, are ever shown (C53).
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from runtime_core.redis_url import REDIS_FORMS, RedisUrl

if TYPE_CHECKING:
    import redis

CONNECT_S = 3.0
"""Seconds for each address of the name."""
ANSWER_S = 4.0
"""Seconds for each answer, of five at most: a batch takes milliseconds, so this is a server that hangs."""

_FAULTS = {
    "NOAUTH": "wants a password",
    "WRONGPASS": "refuses the name and password",
    "NOPERM": "does not let this user write there",
    "WRONGTYPE": "holds another type of value there",
    "READONLY": "is a replica that takes no writes",
    "OOM": "is at its memory limit",
    "LOADING": "is still loading its data",
    "MOVED": "is a node of a cluster, which this sink does not speak to",
}
"""What an error reply means, by its first word. The rest of its text may repeat what was sent, a password among it."""

_NOT_IN_SCRIPT = ("ACL failure", "The user executing the script")
"""How Valkey and Redis 7.0 say, under the code ERR, that a user may not run a command of a script."""


class RedisServer:
    """A server of a host, by its URL. Raises ValueError that names the accepted forms, never the URL."""

    def __init__(self, url: str) -> None:
        try:
            self._url = RedisUrl.parse(url)
        except ValueError:
            raise ValueError(f"is not {REDIS_FORMS}") from None
        self.shown = self._url.shown
        """The part that may stand in a message."""

    def client(self, ca_file: str | None) -> redis.Redis:
        """Return a client, not connected yet; `ca_file` names the authorities of a `rediss` server.

        Its own retries are off: a command whose answer was lost would be said again in silence. Protocol 2 keeps
        replies in one shape on Redis 7.0 and later and on Valkey, and so does `legacy_responses`. The CLIENT SETINFO
        that redis-py says on connect stays, though no right to it is needed: without any exchange it takes the session
        tickets of TLS 1.3 for stray data, and the connection for broken.
        """
        # redis-py takes 0.7 s to import, which a command that only looks at the options does not pay.
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        to = self._url
        where = {"unix_socket_path": to.path} if to.path else {"host": to.host, "port": to.port}
        return redis.Redis(
            **where,
            db=to.db,
            username=to.username or None,
            password=to.password or None,
            ssl=to.tls,
            ssl_ca_certs=ca_file,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=CONNECT_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            legacy_responses=True,
        )

    def told(self, error: Exception) -> str:
        """Return what a failure of the client amounts to, in words of ours only."""
        return f"{self.shown} {_fault(error)}"


def _fault(error: Exception) -> str:
    import redis

    code = getattr(error, "status_code", None) or str(error).partition(" ")[0]
    if any(said in str(error) for said in _NOT_IN_SCRIPT):
        code = "NOPERM"
    if code in _FAULTS:
        return _FAULTS[code]
    if isinstance(error, redis.exceptions.AuthenticationError):
        return _FAULTS["WRONGPASS"]
    if isinstance(error, redis.exceptions.ResponseError):
        return f"refused the write: {code}" if code.isalpha() and code.isupper() else "refused the write"
    if isinstance(error, redis.exceptions.TimeoutError):
        return "does not answer in time"
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLError):
        return f"is not reached over TLS: {cause.reason or type(cause).__name__}"
    if isinstance(cause, OSError):
        return f"does not answer: {cause.strerror or type(cause).__name__}"
    return "broke the connection off"
