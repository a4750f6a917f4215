"""The `redis_stream` sink: one entry a delivery on a stream in the host's own Redis, for programs of the host to read.

Bounded by refusal: a stream that holds `limit` entries takes no more until its readers have deleted some (XDEL, XTRIM);
nothing is ever trimmed here. All entries of a batch for one stream go in one script, so that the bound holds whoever
else writes. Exactly once within `once_s`: the script leaves a key for each id it added, and passes over an id whose
key is there, so that a lost answer, a crash and a replay add nothing again within that time; later ones may, under the
same `id`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from runtime_core.errors import UsageError
from sinks.address import Address
from sinks.line import data_json, told
from sinks.protocol import Delivered, Outcome, Rejected, Retry, SinkBase
from sinks.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis

    from sinks.protocol import Delivery

RUNTIME_KEYS = "sense:"
"""What every key of the runtime begins with."""
PRINCIPAL = "{principal}"
"""In `stream`: a stream for each owner of a route."""
_LONGEST_KEY = 512

ADD = """
local length, limit, seconds = redis.call('XLEN', KEYS[1]), tonumber(ARGV[1]), ARGV[2]
local at, answers = 3, {}
for n = 2, #KEYS do
    local last = at + tonumber(ARGV[at])
    if redis.call('EXISTS', KEYS[n]) == 1 then
        answers[n - 1] = false
    elseif length >= limit then
        answers[n - 1] = length
    else
        redis.call('SET', KEYS[n], '', 'EX', seconds)
        local added = redis.pcall('XADD', KEYS[1], '*', unpack(ARGV, at + 1, last))
        if type(added) == 'table' then
            redis.call('SET', KEYS[n], '', 'PX', 1)
            return added
        end
        answers[n - 1] = added
        length = length + 1
    end
    at = last + 1
end
return answers
"""
"""Answers for each entry the id it got, the stream's length where that is at the limit, or nil where it was added
before. KEYS: the stream, and the key of each id. ARGV: limit, seconds, and for each entry a count and as many names
and values. The key is set first, because whoever may not set it must not add either; an entry that the server refuses
takes its key back by letting it lapse, which needs no further right."""

_BEFORE = Delivered("was added before")


class RedisStreamOptions(BaseModel):
    """`url` and `stream`; the others have defaults."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    url: Address
    """redis://, rediss:// or unix://, with name and password where the server wants them."""
    stream: str = Field(min_length=1, max_length=_LONGEST_KEY)
    """The key; `{principal}` in it stands for the owner of the route."""
    limit: int = Field(100_000, ge=1, le=10_000_000)
    """Entries the stream may hold."""
    once_s: int = Field(600, ge=1, le=604_800)
    """Seconds in which an id is added once; each delivery costs the server about 150 bytes for as long."""
    ca_file: str | None = None
    """Absolute path of the authorities to believe a `rediss` server by; else the system's."""

    @field_validator("url")
    @classmethod
    def _server(cls, url: Address) -> Address:
        RedisServer(url.get_secret_value())
        return url

    @field_validator("stream")
    @classmethod
    def _key(cls, stream: str) -> str:
        if not stream.isprintable():
            raise ValueError("holds a control character")
        if stream.startswith(RUNTIME_KEYS):
            raise ValueError(f"begins with {RUNTIME_KEYS}, which is the runtime's own")
        return stream

    @field_validator("ca_file")
    @classmethod
    def _absolute(cls, ca_file: str | None) -> str | None:
        if ca_file is not None and not (ca_file.startswith("/") and ca_file.isprintable()):
            raise ValueError("is no absolute path")
        return ca_file


class RedisStream(SinkBase):
    """Adds entries; with `{principal}` in `stream` it keeps principals apart."""

    kind: ClassVar[str] = "redis_stream"
    Options: ClassVar[type[BaseModel]] = RedisStreamOptions
    batch_size: ClassVar[int] = 100
    """Of 256 KiB at most: one script then takes some 25 MiB, and a fraction of a second."""

    def __init__(self, name: str, options: RedisStreamOptions) -> None:
        super().__init__(name, options)
        self._server = RedisServer(options.url.get_secret_value())
        self._stream = options.stream
        self._bounds = options.limit, options.once_s
        self._ca_file = options.ca_file
        self._client: redis.Redis | None = None
        # The class says what holds without options; the runtime asks the sink that was built with them.
        self.partitioned = PRINCIPAL in options.stream  # type: ignore[misc]

    def open(self) -> None:
        """Make a client; it connects with the first batch. Raises UsageError where `ca_file` is no file."""
        if self._ca_file is not None and not Path(self._ca_file).is_file():
            raise UsageError("options.ca_file", "there is no such file", "it has to be on every worker's machine")
        self._client = self._server.client(self._ca_file)

    def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Add one entry a delivery, in order; one round trip, one script for each stream."""
        outcomes: list[Outcome] = [_BEFORE] * len(batch)
        streams: dict[str, list[tuple[int, str, list[str]]]] = {}
        for index, delivery in enumerate(batch):
            stream = self._stream.replace(PRINCIPAL, delivery.principal)
            if stream.startswith(RUNTIME_KEYS):
                outcomes[index] = Rejected(f"the stream of {delivery.principal} would be one of the runtime's own")
                continue
            try:
                entry = (index, f"{stream}:id:{delivery.id}", _fields(delivery))
            except ValueError as error:
                outcomes[index] = Rejected(f"the event does not become an entry: {error}")
            else:
                streams.setdefault(stream, []).append(entry)
        for (stream, entries), reply in zip(streams.items(), self._added(streams), strict=True):
            for (index, _, _), answer in zip(entries, _answers(reply, len(entries)), strict=True):
                outcomes[index] = self._outcome(stream, answer)
        return outcomes

    def _added(self, streams: dict[str, list[tuple[int, str, list[str]]]]) -> Sequence[Any]:
        """Return the reply of each stream's script, or the error in its place; one connection error counts for all."""
        import redis

        if self._client is None:
            raise RuntimeError("deliver before open")
        with self._client.pipeline(transaction=False) as said:
            for stream, entries in streams.items():
                keys = [stream, *(key for _, key, _ in entries)]
                values = [text for _, _, fields in entries for text in (str(len(fields)), *fields)]
                said.eval(ADD, len(keys), *keys, *map(str, self._bounds), *values)
            try:
                return said.execute(raise_on_error=False)
            except redis.RedisError as error:
                return [error] * len(streams)

    def _outcome(self, stream: str, answer: object) -> Outcome:
        match answer:
            case None:
                return _BEFORE
            case int():
                return Retry(f"stream is full ({answer} of {self._bounds[0]})")
            case bytes():
                return Delivered(f"{stream} {answer.decode()}")
            case Exception():
                return Retry(f"stream {stream}: {self._server.told(answer)}")
        return Retry(f"stream {stream}: {self._server.shown} answered something else than Redis does")


def _answers(reply: Any, count: int) -> Sequence[object]:
    """Return the answer for each entry of one script."""
    return reply if isinstance(reply, list) and len(reply) == count else [reply] * count


def _fields(delivery: Delivery) -> list[str]:
    """Return names and values of an entry, alternating; raises ValueError for a body that is no event."""
    fields = {**told(delivery, "route_id"), "attempt": str(delivery.attempt), "data": data_json(delivery.body)}
    return [text for name, value in fields.items() if value is not None for text in (name, value)]
