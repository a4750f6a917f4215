"""What a web app imports: `RuntimeClient` runs pack commands and hands back result envelopes (DESIGN §8).

    with RuntimeClient(HeldSession(tenant, session_id, secret), redis_url) as client:
        envelope = client.exec("git", "git.log", {"limit": 3})

A denial is an envelope with `ok` false (§9.7.envelope); what keeps a request from being judged at all is an exception:
NoWorker, ExecTimeout, ExecRefused, ExecUnreachable. `AsyncRuntimeClient` is the same with `await`; a web app that runs
Celery already may send `seal_for_celery` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sense_worker.async_client import AsyncHandle, AsyncRuntimeClient
from sense_worker.exec.asking import ExecOptions, HeldSession, ask_to_cancel, find, send, wait_for
from sense_worker.exec.caller import AnyClient, connection_options
from sense_worker.exec.celery_call import CeleryCall, celery_call, seal_for_celery
from sense_worker.exec.driving import drive

if TYPE_CHECKING:
    from typing import Self, Unpack

    from runtime_core.envelope import ResultEnvelope
    from sense_worker.exec.asking import Sent, Status

__all__ = [
    "AsyncHandle",
    "AsyncRuntimeClient",
    "CeleryCall",
    "ExecOptions",
    "Handle",
    "HeldSession",
    "RuntimeClient",
    "celery_call",
    "seal_for_celery",
]


class RuntimeClient(AnyClient):
    """Runs commands under one session; threads may share it."""

    def _connect(self, redis_url: str, connections: int) -> None:
        # A request that is sent twice is one request; but a retry that waits would outlive its deadline.
        self._redis = redis.Redis.from_url(redis_url, retry=Retry(NoBackoff(), 1), **connection_options(connections))

    def exec(
        self, pack_id: str, verb_key: str, args: dict[str, Any] | None = None, **options: Unpack[ExecOptions]
    ) -> ResultEnvelope:
        """Run one command and wait for its result: `submit` and `result` in one. Raises as both do."""
        return self.submit(pack_id, verb_key, args, **options).result()

    def submit(
        self, pack_id: str, verb_key: str, args: dict[str, Any] | None = None, **options: Unpack[ExecOptions]
    ) -> Handle:
        """Queue one command. Raises UsageError, IngressFull and ExecUnreachable: then it does not run.

        But where Redis ended in the middle of the call nobody knows: repeat it under one idempotency key.
        """
        request = self._ask(pack_id, verb_key, args, options)
        return Handle(self._redis, drive(self._redis, send(request)))

    def close(self) -> None:
        """Let go of the connections."""
        self._redis.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Handle:
    """One queued command."""

    def __init__(self, client: redis.Redis, sent: Sent) -> None:
        self._redis = client
        self._sent = sent

    def __repr__(self) -> str:
        """Return it with the request's message id."""
        return f"Handle({self.message_id!r})"

    @property
    def message_id(self) -> str:
        """Names the request in the audit."""
        return self._sent.request.message_id

    def result(self, wait_s: float | None = None) -> ResultEnvelope:
        """Wait for the result, `wait_s` seconds or until the request's time is over; may be called again.

        Raises NoWorker where nobody took it (it is taken back then, and does not run), ExecTimeout, ExecRefused for a
        request that failed its door, ExecUnreachable where Redis stayed away.
        """
        return drive(self._redis, wait_for(self._sent, wait_s))

    def status(self) -> Status:
        """Tell where the request is, without waiting. Raises ExecUnreachable."""
        return drive(self._redis, find(self._sent))

    def cancel(self, *, force: bool = False) -> None:
        """Ask that it is not started, or ended; a write that runs only with `force`: its outcome is then unknown."""
        drive(self._redis, send(ask_to_cancel(self._sent.request, force=force)))
