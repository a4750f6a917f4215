"""A stream in memory that drives plans, and fails as a server does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sense_worker.activation_file import ActivationFile
from sense_worker.publisher import Announcement
from sense_worker.publishing import Do, Exchange, Pause, Publishing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY = "sense:acme:events"
ANA = ActivationFile("acme", "ana", "act_1", "git", b"s3cret", None)


class Stream:
    """One stream, and a driver. `faults`: what becomes of the next exchanges; None: nothing."""

    def __init__(self, faults: list[Any] | None = None) -> None:
        self.entries: list[dict[bytes, bytes]] = []
        self.exchanges: list[list[object]] = []
        self.pauses: list[float] = []
        self.now = 1_780_315_200.0
        self.faults: Iterator[Any] = iter(faults or [])
        self.while_pausing: Callable[[], object] = bool

    def drive(self, plan: Any) -> Any:
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                step = plan.throw(error) if error else plan.send(answer)
            except StopIteration as end:
                return end.value
            answer, error = None, None
            try:
                answer = self.perform(step)
            except Exception as raised:  # noqa: BLE001 - the plan judges it
                error = raised

    def perform(self, step: Any) -> Any:
        match step:
            case Pause(seconds):
                self.pauses.append(seconds)
                self.now += seconds
                return self.while_pausing()
            case Do(act):
                return act()
            case Exchange(commands):
                self.exchanges.append([command[0] for command in commands])
                fault = next(self.faults, None)
                if isinstance(fault, Exception):
                    raise fault
                replies = [self.reply(command) for command in commands]
                if fault == "lost reply":
                    raise ConnectionResetError("the server closed the connection")
                return replies if fault is None else fault(replies)
        raise AssertionError(step)

    def reply(self, command: tuple[Any, ...]) -> int | bytes:
        if command[0] == "XLEN":
            assert command == ("XLEN", KEY)
            return len(self.entries)
        assert command[:3] == ("XADD", KEY, "*")
        raw = [word if isinstance(word, bytes) else word.encode() for word in command[3:]]
        self.entries.append(dict(zip(raw[::2], raw[1::2], strict=True)))
        return b"%d-0" % len(self.entries)

    @property
    def ids(self) -> list[str]:
        return [entry[b"i"].decode() for entry in self.entries]


def down(times: int) -> list[Any]:
    return [ConnectionRefusedError(111, "Connection refused")] * times


def rules(stream: Stream, **changes: Any) -> Publishing:
    settings: dict[str, Any] = {"activation": ANA, "server": "redis", "stream_limit": 100_000, "attempts": 3}
    settings |= {"spool": None, "ledger": None, "confirm_timeout_s": 1.0}
    settings |= {"clock": lambda: stream.now, "monotonic": lambda: stream.now}
    return Publishing(**(settings | changes))


def one(id: str = "e-1", **changes: Any) -> Announcement:
    return Announcement(**({"ref": "commit.created", "data": {}, "id": id} | changes))


def many(count: int, **changes: Any) -> list[Announcement]:
    return [one(f"e-{number}", **changes) for number in range(count)]
