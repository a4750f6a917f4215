"""One receiver's client: many exchanges in flight over kept connections, each bounded in time and size.

No redirect is followed, no proxy of the environment used, no cookie kept, nothing unpacked and nothing sent again:
aiohttp repeats no POST. aiohttp is of the extra `webhook`; whoever imports this module needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import aiohttp
import yarl
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

from runtime_core.egress import NotReached
from runtime_core.egress_http import guarded_connector
from sinks.http_status import passes, redirects, succeeded
from sinks.protocol import Delivered, Rejected, Retry
from sinks.raised import raised
from sinks.retry_after import retry_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_core.egress import Egress
    from sinks.protocol import Outcome
    from sinks.webhook_message import Message

HEAD_LIMIT = 65_536
"""Bytes of an answer's status line and headers."""
HEADERS_LIMIT = 1_000
BODY_LIMIT = 16_384
"""Bytes of an answer's body that are read, so that its connection can be used again."""
KEEP_S = 4.0
"""Many servers close an idle connection after 5 s; a request on its way then would be lost."""
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([2-9][0-9]{2})(?: [^\r\n]*)?\r?\n")
_LONGEST_STATUS_LINE = 1_024
_GONE = 410
_HEADERS = {"User-Agent": "sense-worker", "Accept": "*/*", "Accept-Encoding": "identity"}


class Limits(NamedTuple):
    """Requests at once, and the seconds of one attempt."""

    in_flight: int
    total_s: float
    connect_s: float


class _StatusOnly(Exception):
    """The status arrived whole; what follows it cannot be read or is over the limit."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(status)


class _Answer(NamedTuple):
    status: int
    after: Sequence[str] = ()
    control: str = ""


class _Batch:
    """The messages of one call, and what became of each."""

    __slots__ = ("_left", "_outcomes", "over")

    def __init__(self, size: int, over: asyncio.Future[list[Outcome]]) -> None:
        self._outcomes: list[Any] = [None] * size
        self._left = size
        self.over = over
        """Its result is the outcomes, once there is one for each message."""

    def add(self, at: int, outcome: Outcome) -> None:
        self._outcomes[at] = outcome
        self._left -= 1
        if not self._left and not self.over.done():
            self.over.set_result(self._outcomes)


class Client:
    """Lives on one event loop: made, used and closed there.

    aiohttp makes, guards and keeps the connections and parses what arrives. Its session is left out: all of a
    receiver's requests are alike but for the signed headers and the body, and to build each anew as an object takes
    170 of the 240 µs of an exchange.
    """

    def __init__(self, address: str, host: str, egress: Egress, limits: Limits) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._host = host
        self._limits = limits
        self._request = aiohttp.ClientRequest("POST", yarl.URL(address, encoded=True), headers=_HEADERS, loop=loop)
        self._head = _first_lines(self._request)
        self._timeout = aiohttp.ClientTimeout(total=None, connect=limits.connect_s, ceil_threshold=3600)
        self._connector = guarded_connector(egress, limit=0, keepalive_timeout=KEEP_S)
        self._connector._factory = functools.partial(_reader, loop)  # noqa: SLF001 - see _Handler
        self._waiting: deque[tuple[_Batch, int, Message]] = deque()
        self._slots: set[asyncio.Task[None]] = set()

    async def send(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send all, each as soon as a slot is free; returns an outcome for each."""
        batch = _Batch(len(messages), self._loop.create_future())
        self._waiting.extend((batch, at, message) for at, message in enumerate(messages))
        for _ in range(min(len(messages), self._limits.in_flight - len(self._slots))):
            slot = self._loop.create_task(self._slot())
            self._slots.add(slot)
        return await batch.over

    async def close(self) -> None:
        """Close every connection."""
        await self._connector.close()

    async def _slot(self) -> None:
        """Send what waits, one after the other."""
        try:
            while self._waiting:
                batch, at, message = self._waiting.popleft()
                if not batch.over.done():  # cancelled: nobody waits for it any more
                    batch.add(at, await self._outcome(message))
        finally:  # in the turn that saw nothing waiting: what comes next finds the slot free
            self._slots.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _outcome(self, message: Message) -> Outcome:
        try:
            async with asyncio.timeout(self._limits.total_s):
                return self._judged(await self._exchange(message))
        except _StatusOnly as known:
            return self._judged(_Answer(known.status))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong here concerns this delivery only
            return Retry(self._why(error))

    async def _exchange(self, message: Message) -> _Answer:
        try:
            connection = await self._connector.connect(self._request, [], self._timeout)
        except TimeoutError:
            raise aiohttp.ConnectionTimeoutError from None
        try:
            protocol = connection.protocol
            if protocol is None or protocol.transport is None or protocol.should_close:  # or spoke unasked
                raise aiohttp.ServerDisconnectedError
            protocol.set_response_params(read_until_eof=True, auto_decompress=False, max_headers=HEADERS_LIMIT)
            protocol.transport.write(_request(self._head, message))
            answer, body = await protocol.read()
            while 100 <= answer.code < 200 and answer.code != 101:  # noqa: PLR2004 - interim: another follows
                answer, body = await protocol.read()
            with contextlib.suppress(aiohttp.ClientError):  # the status is what counts, and it arrived whole (C49)
                await _read_off(body)
        except BaseException:
            connection.close()
            raise
        connection.release()  # kept where its answer was read to the end
        control = answer.headers.get("webhook-delivery", "")
        return _Answer(answer.code, answer.headers.getall("Retry-After", ()), control.strip().lower())

    def _judged(self, answer: _Answer) -> Outcome:
        """Return what a status means (C42), and what the receiver asks for besides."""
        status = answer.status
        said = f"{self._host} answered {status}"
        if succeeded(status):
            return Delivered(str(status))
        if answer.control == "disable":
            return Rejected(f"{said} and asked for no more (webhook-delivery: disable)", stop=True)
        if status == _GONE:
            return Rejected(f"{said}: it is gone", stop=True)
        if answer.control == "abort-message":
            return Rejected(f"{said} and asked not to be sent this again (webhook-delivery: abort-message)")
        if passes(status):
            return Retry(said, retry_after(answer.after, time.time()))
        if redirects(status):
            return Retry(f"{said}, which is not followed")
        return Rejected(said)

    def _why(self, error: Exception) -> str:
        """Say what went wrong, without a word of the address but its host, nor of the answer (C53)."""
        match error:
            case NotReached():
                why = f"not reached: {error}"
            case aiohttp.ClientConnectorDNSError():
                why = "not reached: its name has no address"
            case aiohttp.ClientSSLError():
                why = "not reached: its certificate is not accepted"
            case aiohttp.ClientConnectorError():
                number = error.os_error.errno
                why = f"not reached: {os.strerror(number) if number else 'no connection'}"
            case aiohttp.ConnectionTimeoutError():
                why = f"not reached within {self._limits.connect_s:g} s"
            case TimeoutError():
                why = f"gave no whole answer within {self._limits.total_s:g} s"
            case aiohttp.ClientOSError() | aiohttp.ServerDisconnectedError():
                why = "closed the connection without an answer"
            case HttpProcessingError():
                why = "answered what is no HTTP"
            case _:
                return raised(error)
        return f"{self._host} {why}"


def _reader(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _Handler(loop)


def _first_lines(request: aiohttp.ClientRequest) -> bytes:
    """Return how every request to a receiver begins: its target, and the headers that are always the same."""
    names = ("Host", "Authorization", *_HEADERS)
    lines = [f"{name}: {request.headers[name]}\r\n" for name in names if name in request.headers]
    return f"POST {request.url.raw_path_qs} HTTP/1.1\r\n{''.join(lines)}".encode("ascii")


def _request(head: bytes, message: Message) -> bytes:
    """Return a whole request; raises ValueError for a header that might be read as two."""
    if not "".join(message.headers.values()).isprintable():
        raise ValueError("a header holds a line break or another control character")
    lines = "".join([f"{name}: {value}\r\n" for name, value in message.headers.items()])
    return b"%s%sContent-Length: %d\r\n\r\n%s" % (head, lines.encode("utf-8"), len(message.body), message.body)


async def _read_off(body: aiohttp.StreamReader) -> None:
    """Read the body up to the limit; beyond it the connection is closed when it is let go."""
    if body.is_eof():
        return
    size = 0
    async for chunk in body.iter_any():
        size += len(chunk)
        if size > BODY_LIMIT:
            return


class _Handler(ResponseHandler):
    """aiohttp's reader of one connection, with a bound to the head of an answer as a whole.

    aiohttp bounds the length of a header and their number; where either is over, or a header is malformed, the status
    is lost though it arrived. A receiver that has taken a delivery would be sent it again (C49).
    """

    _begun = b""
    """How the answer begins, as far as a status line may reach."""
    _size = 0
    _in_head = False

    def set_response_params(self, **params: Any) -> None:
        """Begin an answer."""
        self._begun, self._size, self._in_head = b"", 0, True
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Pass a head on that is complete; after an interim one (1xx) another follows."""
        self._begun, self._in_head = b"", data[0].code < 200  # noqa: PLR2004 - the first final status
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Take what arrived; ends the connection where the head is over the limit."""
        if self._in_head:
            self._begun += data[: _LONGEST_STATUS_LINE - len(self._begun)]
            self._size += len(data)
        super().data_received(data)
        if self._in_head and self._size > HEAD_LIMIT and self.transport is not None:
            self.set_exception(HttpProcessingError())
            self.transport.abort()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Tell the status instead where it is known."""
        found = _STATUS_LINE.match(self._begun) if isinstance(exc, HttpProcessingError) else None
        if found is None:
            super().set_exception(exc, *cause)
        else:
            super().set_exception(_StatusOnly(int(found[1])))
