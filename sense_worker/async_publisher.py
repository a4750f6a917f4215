"""The async publisher: the plans of `Publishing` driven on an event loop. Import it from `sense_worker.publisher`."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from sense_worker.announcement import Announcement, Published
from sense_worker.publisher import AnyPublisher
from sense_worker.publishing import Confirm, Do, Exchange, Pause, Plan, Step
from sense_worker.resp import READ_BYTES, Answers, Reply, accept_greeting, greeting, has_ended, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from typing import Self

    from runtime_core.redis_url import RedisUrl
    from sense_worker.resp import Command

_T = TypeVar("_T")


class AsyncPublisher(AnyPublisher):
    """Announces for one activation on one event loop; tasks may share it. Behaves and raises as `Publisher` does."""

    def _connect(self, address: RedisUrl, timeout_s: float) -> None:
        self._connection = AsyncConnection(address, timeout_s)

    async def publish(
        self,
        ref: str,
        data: dict[str, Any],
        *,
        subject: str | None = None,
        occurred_at: datetime | str | None = None,
        id: str | None = None,
        confirm: Confirm = "accepted",
        traceparent: str | None = None,
    ) -> Published:
        """Announce one change, as `Publisher.publish` does."""
        announcement = Announcement(ref, data, subject, occurred_at, id, traceparent)
        return await self._drive(self._rules.publish(announcement, confirm))

    async def publish_many(self, events: Iterable[Announcement]) -> list[Published]:
        """Announce many in order, as `Publisher.publish_many` does."""
        return await self._drive(self._rules.publish_many(events))

    async def flush(self) -> int:
        """Send what the spool keeps, as `Publisher.flush` does."""
        return await self._drive(self._rules.flush())

    async def close(self) -> None:
        """Let go of the connection; what the spool keeps stays there."""
        await self._connection.close()
        if self._look is not None:
            self._look.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def _drive(self, plan: Plan[_T]) -> _T:
        with closing(plan):
            try:
                step = next(plan)
                while True:
                    try:
                        answer = await self._perform(step)
                    except Exception as error:  # noqa: BLE001 - the plan judges it
                        step = plan.throw(error)
                    else:
                        step = plan.send(answer)
            except StopIteration as end:
                outcome: _T = end.value
                return outcome

    async def _perform(self, step: Step) -> object:
        match step:
            case Exchange(commands):
                return await self._connection.exchange(commands)
            case Pause(seconds):
                await asyncio.sleep(seconds)
                return None
            case Do(act):
                return await _in_thread(act)


class AsyncConnection:
    """`Connection` on an event loop; `timeout_s` bounds a whole exchange, a connect in it included."""

    def __init__(self, address: RedisUrl, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._answers = Answers()
        self._turn = asyncio.Lock()

    async def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """Say the commands in one go and return a reply for each. Raises OSError where the server does not answer."""
        async with self._turn:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._exchange(*await self._ready(), commands)
            except BaseException as error:
                # Replies that come late would be taken for those of the next commands.
                self._drop()
                if isinstance(error, TimeoutError):
                    raise TimeoutError("timed out") from None
                raise

    async def close(self) -> None:
        """Let go of the socket; a later exchange makes a new one."""
        async with self._turn:
            if self._streams is not None:
                _, writer = self._streams
                self._drop()
                with suppress(OSError):
                    await writer.wait_closed()

    async def _ready(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None:
            reader, writer = self._streams
            # The loop may not have run since the server went: the socket itself knows.
            if reader.at_eof() or writer.is_closing() or has_ended(writer.get_extra_info("socket")):
                self._drop()
        if self._streams is None:
            to = self._address
            if to.path:
                self._streams = await asyncio.open_unix_connection(to.path)
            else:
                context = ssl.create_default_context() if to.tls else None
                self._streams = await asyncio.open_connection(to.host, to.port, ssl=context)
            self._answers = Answers()
            accept_greeting(await self._exchange(*self._streams, greeting(to)))
        return self._streams

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, commands: Sequence[Command]
    ) -> list[Reply]:
        writer.write(packed(commands))
        await writer.drain()
        replies: list[Reply] = []
        while not self._answers.collect(replies, len(commands)):
            self._answers.feed(await reader.read(READ_BYTES))
        return replies

    def _drop(self) -> None:
        if self._streams is not None:
            # Not orderly: an exchange that failed has nothing to wait for, and a peer that is gone would not answer.
            self._streams[1].transport.abort()
            self._streams = None


async def _in_thread(act: Callable[[], object]) -> object:
    """Call `act` in a thread; where the caller is cancelled, wait for it first: it may hold the plan's files."""
    running = asyncio.ensure_future(asyncio.to_thread(act))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
