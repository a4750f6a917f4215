"""What a pack adapter imports: `Publisher` announces that the world changed (DESIGN §4).

    with Publisher() as publisher:                                   # reads SENSE_ACTIVATION_FILE
        publisher.publish("commit.created", {"commit": "1f33bd0"}, subject="main")

An announcement is *accepted* once the stream has it; whether it is delivered is for the workers to say. The publisher
makes a few attempts of its own under one message id, which intake knows as repeats, so a lost reply makes no second
event. With a spool, what cannot be sent now is kept on this machine and sent first by a later call.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from runtime_core.errors import PublishError, UsageError
from runtime_core.redis_url import REDIS_FORMS, RedisUrl
from sense_worker.activation_file import ENV, held_activation
from sense_worker.announcement import Announcement, Published
from sense_worker.publishing import Confirm, Do, Exchange, Pause, Plan, Publishing, Step
from sense_worker.resp import Connection
from sense_worker.spool import Spool
from sense_worker.wire import stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from pathlib import Path
    from typing import Self

    from sense_worker.async_publisher import AsyncPublisher
    from sense_worker.storage.engine import Database

__all__ = ["Announcement", "AsyncPublisher", "Published", "Publisher"]

_T = TypeVar("_T")


class AnyPublisher(ABC):
    """What the blocking and the async publisher have in common: everything but the I/O.

    `activation_file` defaults to SENSE_ACTIVATION_FILE, `redis_url` to the server that file names. `timeout_s`
    (seconds) bounds each wait for the server, `attempts` how often it is asked; no more than `stream_limit` entries
    are put on the stream. `spool` names a file for what cannot be sent. confirm="ledger" looks into `ledger`, a
    function that tells whether what was `Published` is there, or into the ledger at `database_url`. A secret that was
    rotated is taken up from the file before the next round trip; the server stays the one of the start.
    Raises UsageError where one of these is wrong, naming the place and the way out.
    """

    def __init__(  # noqa: PLR0913 - the knobs of one publisher, by keyword
        self,
        activation_file: Path | None = None,
        *,
        redis_url: str | None = None,
        spool: Path | None = None,
        stream_limit: int = 100_000,
        timeout_s: float = 5.0,
        attempts: int = 3,
        confirm_timeout_s: float = 10.0,
        ledger: Callable[[Published], bool] | None = None,
        database_url: str | None = None,
    ) -> None:
        file = held_activation(activation_file)
        activation = file.value
        url = redis_url or activation.redis_url
        if not url:
            raise UsageError(str(activation_file or ENV), "names no Redis server", "give redis_url=")
        bounds = {"stream_limit": stream_limit, "timeout_s": timeout_s, "attempts": attempts}
        for name, value in (bounds | {"confirm_timeout_s": confirm_timeout_s}).items():
            if not value > 0:
                raise UsageError(name, "must be above 0")
        try:
            address = RedisUrl.parse(url)
        except ValueError:
            raise UsageError("redis_url", "is no address of a Redis server", f"give {REDIS_FORMS}") from None
        self._look = LedgerLook(database_url, activation.tenant) if ledger is None and database_url else None
        self._rules = Publishing(
            activation=activation,
            file=file,
            server=address.shown,
            stream_limit=stream_limit,
            attempts=attempts,
            spool=None if spool is None else Spool(spool, activation.origin),
            ledger=ledger or self._look,
            confirm_timeout_s=confirm_timeout_s,
        )
        self._connect(address, timeout_s)

    @abstractmethod
    def _connect(self, address: RedisUrl, timeout_s: float) -> None:
        """Keep a connection, not made yet."""


class Publisher(AnyPublisher):
    """Announces for one activation, blocking. May be shared by threads, and used again after a fork."""

    def _connect(self, address: RedisUrl, timeout_s: float) -> None:
        self._connection = Connection(address, timeout_s)

    def publish(
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
        """Announce one change; returns once it is accepted, kept in the spool, or (confirm="ledger") in the ledger.

        Raises DoorError or UsageError for a mistake, with its place; IngressFull at the bound of the stream;
        IngressUnreachable after the last attempt; PublishError where the server or the spool refuses it, or the
        ledger does not show it in time. With a spool the first two of these keep it instead of raising.
        """
        announcement = Announcement(ref, data, subject, occurred_at, id, traceparent)
        return self._drive(self._rules.publish(announcement, confirm))

    def publish_many(self, events: Iterable[Announcement]) -> list[Published]:
        """Announce many in order, up to 500 a round trip; none is sent where one is wrong. Raises like `publish`.

        An error says how many were accepted before it. Announcements with ids of their own can all be given again.
        """
        return self._drive(self._rules.publish_many(events))

    def flush(self) -> int:
        """Send what the spool keeps; returns how many this call sent. Raises IngressUnreachable or IngressFull."""
        return self._drive(self._rules.flush())

    def close(self) -> None:
        """Let go of the connection; what the spool keeps stays there."""
        self._connection.close()
        if self._look is not None:
            self._look.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _drive(self, plan: Plan[_T]) -> _T:
        with closing(plan):
            try:
                step = next(plan)
                while True:
                    try:
                        answer = self._perform(step)
                    except Exception as error:  # noqa: BLE001 - the plan judges it
                        step = plan.throw(error)
                    else:
                        step = plan.send(answer)
            except StopIteration as end:
                outcome: _T = end.value
                return outcome

    def _perform(self, step: Step) -> object:
        match step:
            case Exchange(commands):
                return self._connection.exchange(commands)
            case Pause(seconds):
                time.sleep(seconds)
                return None
            case Do(act):
                return act()


class LedgerLook:
    """Tells whether the ledger at a database URL holds a tenant's event. Connects at the first look."""

    def __init__(self, database_url: str, tenant: str) -> None:
        self._url = database_url
        self._stream = stream_of(tenant)
        self._database: Database | None = None

    def __call__(self, published: Published) -> bool:
        """Look for the event.

        Raises PublishError where its entry was refused, LedgerBusy where the database does not answer now, and
        SettingsError for a bad URL.
        """
        # SQLAlchemy takes 0.5 s to import: only who waits for the ledger pays it.
        import sqlalchemy as sa

        from sense_worker.storage.engine import Database
        from sense_worker.storage.schema import DEAD_ENTRY, EVENT

        if self._database is None:
            self._database = Database(self._url)
        with self._database.read() as connection:
            entry = DEAD_ENTRY.c.stream == self._stream, DEAD_ENTRY.c.stream_id == published.stream_id
            dead = connection.execute(sa.select(DEAD_ENTRY.c.word, DEAD_ENTRY.c.detail).where(*entry)).first()
            if dead is not None:
                reason = f"accepted as {published.stream_id}, then refused: {dead.word}: {dead.detail}"
                raise PublishError(
                    f"event {published.event_id}", reason, "nothing was delivered; mend it and announce again"
                )
            event_id = bytes.fromhex(published.event_id)
            events = sa.select(sa.literal(1)).select_from(EVENT).where(EVENT.c.id == event_id)
            return connection.execute(events).first() is not None

    def close(self) -> None:
        """Let go of the database."""
        if self._database is not None:
            self._database.dispose()


def __getattr__(name: str) -> Any:
    # asyncio takes 0.1 s to import, which a blocking adapter such as a git hook does not pay.
    if name == "AsyncPublisher":
        from sense_worker.async_publisher import AsyncPublisher

        return AsyncPublisher
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
