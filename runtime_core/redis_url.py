"""A Redis server as a URL names it: read in one way by the settings, the publisher and the sink of a host's stream."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

REDIS_FORMS = "redis://name:password@host:port/db, rediss://… or unix:///absolute/path?db=0"
_PORT = 6379
_NUMBER = re.compile(r"[0-9]{1,5}")


class RedisUrl(NamedTuple):
    """Where a server is and who asks."""

    shown: str
    """The part that may stand in a message: scheme, host and port, or the path of the socket (C53)."""
    host: str
    """Empty for a unix socket."""
    port: int
    path: str
    """Of a unix socket; empty for TCP."""
    tls: bool
    username: str
    password: str
    db: int

    @classmethod
    def parse(cls, url: str, *, more_options: bool = False) -> RedisUrl:
        """Read a URL; over TCP the database is its path or its option `db`.

        With `more_options` a URL for TCP may have others, which mean something to redis-py and nothing here. Raises
        ValueError that names the accepted forms, never the URL: it may hold a password.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or _PORT
            named = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            raise ValueError(REDIS_FORMS) from None
        options = dict(named)
        unix, host = parts.scheme == "unix", parts.hostname or ""
        path = unquote(parts.path) if unix else ""
        number = options.pop("db", None if unix else parts.path.strip("/")) or "0"
        if (
            parts.scheme not in {"unix", "redis", "rediss"}
            or not url.isprintable()
            or " " in url
            or parts.fragment
            or len(dict(named)) < len(named)
            or (options and (unix or not more_options))
            or not _NUMBER.fullmatch(number)
            or bool(host) is unix
            or (unix and not path.strip("/"))
            or (unix and not path.startswith("/"))
        ):
            raise ValueError(REDIS_FORMS)
        place = f"[{host}]" if ":" in host else host
        shown = f"unix://{path}" if unix else f"{parts.scheme}://{place}:{port}"
        names = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(shown, host, port, path, parts.scheme == "rediss", *names, int(number))
