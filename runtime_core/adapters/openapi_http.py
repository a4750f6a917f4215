"""One HTTP exchange: one request, one answer, within a deadline; no redirect, proxy or second try.

A session serves one exchange: no cookie and no connection outlives it.

aiohttp is of the extra `openapi`; whoever imports this module needs it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import yarl

from runtime_core.egress import Egress, NotReached
from runtime_core.egress_http import guarded_connector

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Event

    from runtime_core.adapters.openapi_request import Request
    from runtime_core.addresses import Network

_LOOK_S = 0.05
"""How often a running exchange looks whether it was cancelled."""
_HEADERS = {
    "Accept": "application/json, text/*;q=0.9",
    "Accept-Encoding": "identity",  # what swells when it is unpacked is never unpacked
    "User-Agent": "sense-worker",
}


class Answer(NamedTuple):
    """What the service said."""

    status: int
    media: str
    """The media type in lower case, without its parameters; empty where none was named."""
    charset: str
    body: bytes
    packed: bool
    """The body is as it came, under a content encoding that was not asked for."""


class Limits(NamedTuple):
    """What bounds an exchange."""

    timeout_s: float
    output_bytes: int
    networks: Sequence[Network]
    """Named by the operator: internal addresses in them may be reached."""
    secret: bool
    """The request carries a credential: by plain http it goes into the named networks only."""
    cancelled: Event | None


class NoAnswer(Exception):
    """The request was sent, perhaps in part, and no whole answer came; says why."""


class OverOutput(Exception):
    """The answer is over the limit."""


class Cancelled(Exception):
    """The caller ended it."""


def exchange(request: Request, limits: Limits) -> Answer:
    """Send a request and return the answer. Raises TimeoutError, NotReached and the exceptions of this module.

    In a thread of its own: the caller's may have a running loop.
    """
    with ThreadPoolExecutor(1) as own:
        return own.submit(_looped, request, limits).result()


def _looped(request: Request, limits: Limits) -> Answer:
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_raced(request, limits))
    finally:
        # Not asyncio.run: it would wait for a name server that does not answer, beyond the deadline.
        loop.close()


async def _raced(request: Request, limits: Limits) -> Answer:
    """Run the exchange against the deadline and the caller's patience."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + limits.timeout_s
    task = asyncio.create_task(_exchanged(request, limits))
    try:
        while not task.done():
            left = ends - loop.time()
            if left <= 0:
                raise TimeoutError
            if limits.cancelled is not None and limits.cancelled.is_set():
                raise Cancelled
            await asyncio.wait({task}, timeout=left if limits.cancelled is None else min(left, _LOOK_S))
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _exchanged(request: Request, limits: Limits) -> Answer:
    closed = "plain http carries no credential; the service must be https"
    named_only = limits.secret and request.url.startswith("http:")
    egress = Egress(limits.networks, "SENSE_EXEC_NETWORKS", closed if named_only else None)
    session = aiohttp.ClientSession(
        connector=guarded_connector(egress, force_close=True),
        auto_decompress=False,
        middlewares=(_once,),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        trust_env=False,
    )
    url = yarl.URL(request.url, encoded=True)
    headers = {**_HEADERS, **request.headers}
    try:
        async with (
            session,
            session.request(request.method, url, headers=headers, data=request.body, allow_redirects=False) as response,
        ):
            return await _read(response, limits.output_bytes)
    except aiohttp.ClientConnectorDNSError:
        raise NotReached("its name has no address") from None
    except aiohttp.ClientSSLError:
        raise NotReached("its certificate is not accepted") from None
    except aiohttp.ClientConnectorError as error:
        raise NotReached(error.os_error.strerror or "no connection") from None
    except aiohttp.ClientError as error:
        raise NoAnswer(type(error).__name__) from None


async def _once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send once: aiohttp by itself sends GET, PUT, DELETE and others again when a connection is lost."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        raise NoAnswer("the connection was lost") from None


async def _read(response: aiohttp.ClientResponse, limit: int) -> Answer:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise OverOutput
    media = response.content_type.lower() if "Content-Type" in response.headers else ""
    packed = response.headers.get("Content-Encoding", "identity").lower() != "identity"
    return Answer(response.status, media, response.charset or "utf-8", bytes(body), packed)
