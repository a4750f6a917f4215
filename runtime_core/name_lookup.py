"""Looking a name up, every address of it checked."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from threading import Thread
from typing import TYPE_CHECKING, Any

from runtime_core.egress import NotReached

if TYPE_CHECKING:
    from runtime_core.egress import Egress


async def checked_addresses(
    egress: Egress, host: str, port: int, family: int = socket.AF_UNSPEC
) -> list[tuple[int, int, str]]:
    """Return family, protocol and address of each place a name leads to.

    Raises NotReached where any of them may not be reached: the next look-up might take that one. OSError where the
    name has none.
    """
    try:
        found = await _looked_up(host, port, family)
    except UnicodeError:
        raise NotReached("its name is none") from None
    for _, _, _, _, place in found:
        egress.check(str(place[0]))
    return [(of, protocol, str(place[0])) for of, _, protocol, _, place in found]


async def _looked_up(host: str, port: int, family: int) -> list[tuple[Any, ...]]:
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
