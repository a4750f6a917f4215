"""The guard of `runtime_core.egress` for aiohttp (an extra), which is imported here and where it is used only."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from threading import Thread
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.abc import AbstractResolver

from runtime_core.egress import NotReached

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

    from runtime_core.egress import Door


def guarded_connector(door: Door, **options: Any) -> aiohttp.TCPConnector:
    """Return a connector whose every connection passes the door; `options` are aiohttp's."""
    return aiohttp.TCPConnector(resolver=GuardedResolver(door), socket_factory=door.socket, **options)


class GuardedResolver(AbstractResolver):
    """Refuses a name of which any address may not be reached: the next look-up might take that one."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name; raises NotReached, and OSError where the name has none."""
        try:
            found = await looked_up(host, port, family)
        except UnicodeError:
            raise NotReached("its name is none") from None
        for _, _, _, _, place in found:
            self._door.check(str(place[0]))
        return [
            {
                "hostname": host,
                "host": str(place[0]),
                "port": port,
                "family": of,
                "proto": protocol,
                "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            }
            for of, _, protocol, _, place in found
        ]

    async def close(self) -> None:
        """Nothing is held."""


async def looked_up(host: str, port: int, family: int = socket.AF_UNSPEC) -> list[tuple[Any, ...]]:
    """Return what `socket.getaddrinfo` answers for a stream to a host.

    In a thread of its own that nobody waits for: a name server that does not answer may hold it for half a minute, and
    neither the loop's other look-ups nor the end of the process should wait that long.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[tuple[Any, ...]]] = loop.create_future()

    def settle(found: list[tuple[Any, ...]] | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found or [])

    def ask() -> None:
        found: list[tuple[Any, ...]] | None = None
        raised: Exception | None = None
        try:
            found = list(
                socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            )
        except (OSError, UnicodeError) as error:
            raised = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, found, raised)

    Thread(target=ask, name=f"look up {host}", daemon=True).start()
    return await answer
