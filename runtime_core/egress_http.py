"""The guard of `runtime_core.egress` for aiohttp (an extra), which is imported here and where it is used only."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.abc import AbstractResolver

from runtime_core.name_lookup import checked_addresses

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

    from runtime_core.egress import Egress


def guarded_connector(egress: Egress, **options: Any) -> aiohttp.TCPConnector:
    """Return a connector whose every connection `egress` lets out; `options` are aiohttp's."""
    return aiohttp.TCPConnector(resolver=GuardedResolver(egress), socket_factory=egress.socket, **options)


class GuardedResolver(AbstractResolver):
    """Refuses a name of which any address may not be reached: the next look-up might take that one."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name; raises NotReached, and OSError where the name has none."""
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": of,
                "proto": protocol,
                "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            }
            for of, protocol, address in await checked_addresses(self._egress, host, port, family)
        ]

    async def close(self) -> None:
        """Nothing is held."""
