"""What a web app imports: `RuntimeClient` runs pack commands and hands back result envelopes (DESIGN §8).

    with RuntimeClient(HeldSession(tenant, session_id, secret), redis_url) as client:
        envelope = client.exec("git", "git.log", {"limit": 3})

A denial is an envelope with `ok` false (§9.7.envelope); what keeps a request from being judged at all is an exception:
NoWorker, ExecTimeout, ExecRefused, ExecUnreachable. Threads may share a client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from runtime_core.errors import ExecUnreachable, IngressFull
from sense_worker.exec.asking import (
    BLOCK_S,
    EARLY_S,
    STREAM_LIMIT,
    HeldSession,
    ask,
    ask_to_cancel,
    heard,
    nobody_reads,
    reads,
    too_late,
)
from sense_worker.intake.health import EXEC_HEALTH_KEY

if TYPE_CHECKING:
    from typing import Self

    from runtime_core.envelope import ResultEnvelope
    from sense_worker.exec.asking import Request, Status
    from sense_worker.exec.request import Lane

__all__ = ["HeldSession", "RuntimeClient"]

TIMEOUT_S = 5.0
"""How long one answer of the server may take."""


class RuntimeClient:
    """Runs commands under one session."""

    def __init__(self, session: HeldSession, redis_url: str, *, project: str | None = None) -> None:
        self._session = session
        self._project = project
        # A request that is sent twice is one request; but a retry that waits would outlive its deadline.
        self._redis = redis.Redis.from_url(
            redis_url,
            socket_timeout=TIMEOUT_S + BLOCK_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 1),
            protocol=2,
        )

    def exec(self, pack_id: str, verb_key: str, args: dict[str, Any] | None = None, **options: Any) -> ResultEnvelope:
        """Run one command and wait for its result; `options` as of `submit`."""
        return self.submit(pack_id, verb_key, args, **options).result()

    def submit(
        self,
        pack_id: str,
        verb_key: str,
        args: dict[str, Any] | None = None,
        *,
        project: str | None = None,
        timeout_s: float = 30.0,
        idempotency_key: str | None = None,
        lane: Lane = "interactive",
    ) -> Handle:
        """Queue one command. It is not started any more once `timeout_s` seconds are over.

        Two requests of one principal under one idempotency key are one: both get the result of the first. Raises
        UsageError, IngressFull and ExecUnreachable.
        """
        request = ask(
            self._session,
            pack_id,
            verb_key,
            args,
            project=project or self._project,
            timeout_s=timeout_s,
            idempotency_key=idempotency_key,
            lane=lane,
        )
        return Handle(self._redis, self._session, request, _send(self._redis, request))

    def close(self) -> None:
        """Let go of the connections."""
        self._redis.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Handle:
    """One queued command."""

    def __init__(self, client: redis.Redis, session: HeldSession, request: Request, entry_id: bytes) -> None:
        self._redis = client
        self._session = session
        self._request = request
        self._entry_id = entry_id
        self._ends = time.monotonic() + request.timeout_s

    @property
    def message_id(self) -> str:
        """Names the request in the audit and in `explain`."""
        return self._request.message_id

    def result(self) -> ResultEnvelope:
        """Wait for the result envelope, until the request's time is over; may be called again.

        Raises NoWorker where nobody took it (it is taken back then), ExecTimeout, ExecRefused, ExecUnreachable.
        """
        early = True
        while True:
            left = self._ends - time.monotonic()
            sealed = self._wait(min(EARLY_S if early else BLOCK_S, max(left, 0.001)))
            if sealed is not None:
                return heard(self._session, self._request, sealed)
            if (early or left <= 0) and self._take_back():
                raise nobody_reads()
            early = False
            if time.monotonic() >= self._ends:
                raise too_late(self._request)

    def status(self) -> Status:
        """Tell where the request is, without waiting. Raises ExecUnreachable."""
        try:
            if self._redis.exists(self._request.reply_at):
                return "done"
            entry = self._entry_id.decode()
            return "queued" if self._redis.xrange(self._request.stream, entry, entry) else "accepted"
        except RedisError as error:
            raise _unreachable(error) from None

    def cancel(self, *, force: bool = False) -> None:
        """Ask that it is not started, or ended; a write that runs only with `force`: its outcome is then unknown."""
        _send(self._redis, ask_to_cancel(self._session, self._request.message_id, force=force))

    def _wait(self, seconds: float) -> bytes | None:
        try:
            # Moved onto itself, so that it stays for whoever asks again.
            at = self._request.reply_at
            found: Any = self._redis.execute_command(  # type: ignore[no-untyped-call]
                "BLMOVE", at, at, "LEFT", "LEFT", max(seconds, 0.001)
            )
        except RedisError as error:
            raise _unreachable(error) from None
        return None if found is None else bytes(found)

    def _take_back(self) -> bool:
        """Take the request back where no worker reads; False where one does, or has it already."""
        try:
            seconds, micros = self._redis.time()
            fields: Any = self._redis.hvals(EXEC_HEALTH_KEY)
            if reads(fields, int(seconds) * 1_000_000 + int(micros)):
                return False
            return bool(self._redis.xdel(self._request.stream, self._entry_id))
        except RedisError as error:
            raise _unreachable(error) from None


def _send(client: redis.Redis, request: Request) -> bytes:
    """Put a request on the stream, in one round trip; one too many is taken off again."""
    try:
        pipeline = client.pipeline(transaction=False)
        pipeline.xadd(request.stream, request.fields)  # type: ignore[arg-type]
        pipeline.xlen(request.stream)
        entry_id, length = pipeline.execute()
        if length > STREAM_LIMIT:
            client.xdel(request.stream, entry_id)
            raise IngressFull(request.stream, f"holds {STREAM_LIMIT} requests", "wait, or start more workers")
    except RedisError as error:
        raise _unreachable(error) from None
    return bytes(entry_id)


def _unreachable(error: RedisError) -> ExecUnreachable:
    return ExecUnreachable("Redis", f"does not answer: {type(error).__name__}", "is it running, and redis_url right?")
