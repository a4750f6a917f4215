"""The async client: the plans of `sense_worker.exec.asking` on an event loop. Import it from `sense_worker.client`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from runtime_core.errors import HcpError
from sense_worker.exec.asking import ask_to_cancel, find, send, unreachable, wait_for
from sense_worker.exec.caller import CONNECTIONS, AnyClient, connection_options
from sense_worker.publishing import Exchange, Pause

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Self, Unpack

    from runtime_core.envelope import ResultEnvelope
    from sense_worker.exec.asking import ExecOptions, HeldSession, Plan, Request, Sent, Status, Step
    from sense_worker.held_file import HeldFile
    from sense_worker.resp import Command
    from sense_worker.session_file import SessionFile

CANCEL_S = 1.0
"""How long a call that was abandoned waits until its cancel is sent; it is sent in the background from then on."""

_T = TypeVar("_T")


class AsyncRuntimeClient(AnyClient):
    """Runs commands under one session on one event loop; tasks may share it. Behaves and raises as `RuntimeClient`.

    A call whose task is cancelled (a client that went away, a timeout) leaves the request where it is; with
    `cancel_abandoned` it is cancelled too, without force.
    """

    def __init__(
        self,
        session: HeldSession | HeldFile[SessionFile],
        redis_url: str,
        *,
        project: str | None = None,
        connections: int = CONNECTIONS,
        cancel_abandoned: bool = False,
    ) -> None:
        super().__init__(session, redis_url, project=project, connections=connections)
        self._cancel_abandoned = cancel_abandoned
        self._cancelling: set[asyncio.Task[None]] = set()

    def _connect(self, redis_url: str, connections: int) -> None:
        options = connection_options(connections)
        self._redis = redis.asyncio.Redis.from_url(redis_url, retry=Retry(NoBackoff(), 1), **options)

    async def exec(
        self, pack_id: str, verb_key: str, args: dict[str, Any] | None = None, **options: Unpack[ExecOptions]
    ) -> ResultEnvelope:
        """Run one command and wait for its result, as `RuntimeClient.exec` does."""
        return await (await self.submit(pack_id, verb_key, args, **options)).result()

    async def submit(
        self, pack_id: str, verb_key: str, args: dict[str, Any] | None = None, **options: Unpack[ExecOptions]
    ) -> AsyncHandle:
        """Queue one command, as `RuntimeClient.submit` does."""
        request = self._ask(pack_id, verb_key, args, options)
        async with self._unless_abandoned(request):
            return AsyncHandle(self, await self._drive(send(request)))

    async def close(self) -> None:
        """Let go of the connections; cancels that are still under way are sent first."""
        if self._cancelling:
            await asyncio.wait(self._cancelling, timeout=CANCEL_S)
        await self._redis.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    @asynccontextmanager
    async def _unless_abandoned(self, request: Request) -> AsyncIterator[None]:
        """Cancel the request where the caller is cancelled inside the block, and it was asked for."""
        try:
            yield
        except asyncio.CancelledError:
            if self._cancel_abandoned:
                sending = asyncio.ensure_future(self._cancel_quietly(request))
                self._cancelling.add(sending)
                sending.add_done_callback(self._cancelling.discard)
                await asyncio.wait([sending], timeout=CANCEL_S)
            raise

    async def _cancel_quietly(self, request: Request) -> None:
        with suppress(HcpError):
            await self._drive(send(ask_to_cancel(request, force=False)))

    async def _drive(self, plan: Plan[_T]) -> _T:
        with closing(plan):
            try:
                step = next(plan)
                while True:
                    try:
                        answer = await self._perform(step)
                    except RedisError as error:
                        step = plan.throw(error)
                    else:
                        step = plan.send(answer)
            except StopIteration as end:
                outcome: _T = end.value
                return outcome
            except RedisError as error:
                raise unreachable(error) from None

    async def _perform(self, step: Step) -> list[Any] | None:
        match step:
            case Exchange(commands):
                return await self._say(commands)
            case Pause(seconds):
                await asyncio.sleep(seconds)
                return None
            case _:
                assert_never(step)

    async def _say(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) == 1:
            return [await self._redis.execute_command(*commands[0])]  # type: ignore[no-untyped-call]
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return await pipeline.execute()


class AsyncHandle:
    """One queued command."""

    def __init__(self, client: AsyncRuntimeClient, sent: Sent) -> None:
        self._client = client
        self._sent = sent

    def __repr__(self) -> str:
        """Return it with the request's message id."""
        return f"AsyncHandle({self.message_id!r})"

    @property
    def message_id(self) -> str:
        """Names the request in the audit."""
        return self._sent.request.message_id

    async def result(self, wait_s: float | None = None) -> ResultEnvelope:
        """Wait for the result, as `Handle.result` does."""
        async with self._client._unless_abandoned(self._sent.request):  # noqa: SLF001 - two halves of one thing
            return await self._client._drive(wait_for(self._sent, wait_s))  # noqa: SLF001

    async def status(self) -> Status:
        """Tell where the request is, as `Handle.status` does."""
        return await self._client._drive(find(self._sent))  # noqa: SLF001

    async def cancel(self, *, force: bool = False) -> None:
        """Ask that it is not started, or ended, as `Handle.cancel` does."""
        await self._client._drive(send(ask_to_cancel(self._sent.request, force=force)))  # noqa: SLF001
