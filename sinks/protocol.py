"""The sink contract, version 1: batch first, closed outcomes (DESIGN §6, §9).

A sink is a class. The runtime reads its class attributes when it is registered, builds it with its validated options,
calls `open` once in each process before the first batch and `close` at the end. `deliver` gets up to `batch_size`
deliveries and answers one outcome for each, in order. A raised exception is a Retry for the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runtime_core.addresses import Network

SINK_CONTRACT = 1
LANDS = ("personal", "brain", "local")
NETWORKS_SETTING = "SENSE_SINK_NETWORKS"
SERVICES_SETTING = "SENSE_NOTIFY_SERVICES"
"""Where the host's operator names the internal address ranges that sinks may reach."""


class Delivery(NamedTuple):
    """One event for one route, as a sink sees it. `id` is stable over retries and replays: the idempotency key.

    A tuple, because one is made for each row of the hot path: 0.5 µs, where a frozen dataclass takes 3.5 µs.
    """

    id: str
    event_id: str
    """32 hex digits."""
    route_id: str
    tenant: str
    principal: str
    """The owner of the route, to whom this is delivered (§9.1.1)."""
    publisher: str
    project: str | None
    pack_id: str
    ref: str
    land: str
    subject: str | None
    occurred_at: str
    """RFC 3339 with a zone, as the adapter wrote it."""
    accepted_at: int
    """Microseconds since the epoch, UTC."""
    body: bytes
    """The body as signed: a JSON object with ref, data, occurred_at and perhaps subject, byte for byte."""
    attempt: int
    """1 for the first."""
    workspace: str | None
    """The activation's workspace folder; None without one."""
    route_options: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Delivered:
    """It is there. `receipt` is a short text for `explain`, or None."""

    receipt: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Not now. `after` is seconds, or None for the schedule of the ledger; `reason` names what happened, no secrets."""

    reason: str
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Never. The delivery is dead; with `stop` the sink row is disabled and its other deliveries are held."""

    reason: str
    stop: bool = False


Outcome = Delivered | Retry | Rejected


class Host(NamedTuple):
    """What the host's operator allows sinks, whatever their options name. By default nothing."""

    networks: tuple[Network, ...] = ()
    """Internal address ranges that sinks may reach (NETWORKS_SETTING); public addresses need none."""
    services: tuple[str, ...] = ()
    """Notification services that sinks may use, by their Apprise schema (SENSE_NOTIFY_SERVICES)."""


NOTHING_ALLOWED = Host()


class NoOptions(BaseModel):
    """The options model of a sink that takes none."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Sink(Protocol):
    """What the runtime asks of a sink class; `sinks.registry` checks it. `SinkBase` gives the defaults."""

    contract: ClassVar[int]
    kind: ClassVar[str]
    Options: ClassVar[type[BaseModel]]
    lands: ClassVar[tuple[str, ...]]
    partitioned: ClassVar[bool]
    transactional: ClassVar[bool]
    local: ClassVar[bool]
    deadline_s: ClassVar[float]
    concurrency: ClassVar[int]
    batch_size: ClassVar[int]

    def __init__(self, name: str, options: BaseModel) -> None:
        """Keep name and options, connect to nothing: it is also built to learn `workspace`, and never opened then.

        Raises UsageError for options that cannot work together.
        """

    @property
    def workspace(self) -> bool:
        """Whether, with these options, it writes under the activation's workspace and nowhere else."""
        ...

    def open(self) -> None:
        """Connect; called once in each process before the first batch."""

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Hand a batch over and answer one outcome for each delivery, in order, within `deadline_s` seconds.

        With a `concurrency` over 1 it is called from several threads at once.
        """
        ...

    def close(self) -> None:
        """Let go of what `open` took."""


class SinkBase:
    """Defaults of the contract: not partitioned, not local, 30 s, one batch of one at a time, every land."""

    contract: ClassVar[int] = SINK_CONTRACT
    kind: ClassVar[str] = ""
    Options: ClassVar[type[BaseModel]] = NoOptions
    lands: ClassVar[tuple[str, ...]] = LANDS
    partitioned: ClassVar[bool] = False
    """Keeps principals apart by itself, so that any owner's data may go in."""
    transactional: ClassVar[bool] = False
    """A TransactionalSink. Contract 1 keeps this for built-in kinds: a `write` that raises undoes the whole batch."""
    local: ClassVar[bool] = False
    """Fast and on this machine: intake hands over itself instead of ringing for a drain."""
    deadline_s: ClassVar[float] = 30.0
    """Seconds one `deliver` may take; the lease is this and 10 s more."""
    concurrency: ClassVar[int] = 1
    """Deliver calls in flight at once over all workers."""
    batch_size: ClassVar[int] = 1

    def __init__(self, name: str, options: BaseModel) -> None:
        self.name = name
        self.options = options

    def narrow(self, *, deadline_s: float, concurrency: int, batch_size: int) -> None:
        """Take less than the class declares, as the options say; to be called in `__init__`."""
        cls = type(self)
        vars(self).update(
            deadline_s=min(deadline_s, cls.deadline_s),
            concurrency=min(concurrency, cls.concurrency),
            batch_size=min(batch_size, cls.batch_size),
        )

    @property
    def workspace(self) -> bool:
        """Whether, with these options, it writes under the activation's workspace and nowhere else."""
        return False

    def admit(self, host: Host) -> None:
        """Keep of `host` what `open` needs; called right after `__init__`, and like it connects to nothing.

        Optional in the contract. Raises UsageError where the host does not allow what the options name.
        """

    def open(self) -> None:
        """Connect; called once in each process, after the fork."""

    def close(self) -> None:
        """Let go of what `open` took."""


@runtime_checkable
class HostedSink(Protocol):
    """A sink that is told what the host's operator allows. `SinkBase` has the method."""

    def admit(self, host: Host) -> None:
        """See `SinkBase.admit`."""
        ...


class RowWriter(Protocol):
    """Writes rows in the ledger's own transaction; raises what the database raises."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
        """Insert rows; one whose primary key exists is left as it is. Returns how many were inserted."""
        ...

    def add(
        self, table: str, key: Sequence[str], amounts: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> Mapping[tuple[str, ...], tuple[int, ...]]:
        """Add integers to counting rows, making those that are missing; returns the new amounts by key.

        A row is its key (texts, which make the primary key) and then its amounts; no key comes twice. Each stays locked
        until the transaction ends: rows in key order, in one call a transaction, cannot deadlock.
        """
        ...

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one query, with `?` as the mark on every database."""
        ...


@runtime_checkable
class TransactionalSink(Protocol):
    """A sink whose tables live in the ledger's database: written in the transaction that settles (exactly once)."""

    def write(self, batch: Sequence[Delivery], rows: RowWriter) -> None:
        """Write every delivery of the batch; raises what the database raises, and then nothing of it is kept.

        Called once a transaction for all sinks of the kind, on any one of them: they share their tables, and rows that
        are locked in several calls could deadlock.
        """
        ...
