"""Receivers that take their time, or say more than anybody wants to hear."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from sinks.protocol import Delivered, Rejected, Retry
from tests.sinks.deliveries import delivery
from tests.sinks.webhook_receiver import CASES, Receiver, built, delivered, said

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

LONG = {"total_s": 10.0, "connect_s": 3.0, "pause": 2.0, "ends": 11.0}
SHORT = {"total_s": 0.5, "connect_s": 0.3, "pause": 0.1, "ends": 1.5}
CAP = 3 * 2**20
"""Bytes that an answer may take in memory while it is read: what the loop reads at once, and its parts."""


def closed(connection: socket.socket) -> bool:
    """Tell whether the other side has closed."""
    connection.settimeout(15)
    with contextlib.suppress(OSError):
        return connection.recv(1) == b""
    return True


def dripping(start: bytes, drip: bytes, pause: float) -> Callable[[Receiver], Any]:
    """Say `start` and then one byte after the other, until the other side is gone."""

    def answer(receiver: Receiver) -> Any:
        def drop_by_drop(connection: socket.socket) -> None:
            connection.sendall(start)
            while not receiver.over.wait(pause):
                connection.sendall(drip)  # raises when the other side is gone

        return lambda _: drop_by_drop

    return answer


def silent(start: bytes) -> Callable[[Receiver], Any]:
    """Say `start` and no more, until the other side closes."""

    def answer(receiver: Receiver) -> Any:
        def stall(connection: socket.socket) -> None:
            connection.sendall(start)
            receiver.gone = closed(connection)  # type: ignore[attr-defined]

        return lambda _: stall

    return answer


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"


@pytest.mark.case("C48")
@pytest.mark.parametrize("limits", [SHORT, pytest.param(LONG, marks=pytest.mark.long)], ids=["short", "literal"])
@pytest.mark.parametrize("how", ["nothing", "a byte of the head", "a byte of the body", "a head alone"])
def test_a_slow_receiver_ends_at_the_deadline(limits: dict[str, float], how: str):
    """Whatever is dripped, the attempt ends at its total time, is tried again, and the socket is closed."""
    pause = limits["pause"]
    answers = {
        "nothing": silent(b""),
        "a byte of the head": dripping(b"HTTP/1.1 200 OK\r\nX-Drip: ", b"x", pause),
        "a byte of the body": dripping(HEAD, b"x", pause),
        "a head alone": silent(HEAD),
    }
    with Receiver() as receiver:
        receiver.answer = answers[how](receiver)
        sink = built(receiver.url, total_s=limits["total_s"], connect_s=limits["connect_s"])
        sink.open()
        begun = time.monotonic()
        (outcome,) = sink.deliver([delivery()])
        took = time.monotonic() - begun
        for thread in receiver._threads[1:]:
            thread.join(5)  # it ends when its socket is closed
            assert not thread.is_alive()
        sink.close()
    assert outcome == Retry(f"127.0.0.1:{receiver.port} gave no whole answer within {limits['total_s']:g} s")
    assert limits["total_s"] <= took < limits["ends"]


@pytest.mark.case("C48")
def test_the_slot_of_what_hung_is_free_again():
    """With one request in flight at a time: when the one that hangs has ended, the next is delivered."""
    with Receiver() as receiver:
        hanging = silent(b"")(receiver)
        receiver.answer = lambda one: hanging(one) if one.headers["webhook-id"] == delivery(1).id else said(200)
        sink = built(receiver.url, in_flight=1, total_s=0.3)
        sink.open()
        (hung,) = sink.deliver([delivery(1)])
        assert hung == Retry(f"127.0.0.1:{receiver.port} gave no whole answer within 0.3 s")
        assert list(sink.deliver([delivery(2)])) == [Delivered("200")]
        sink.close()


def test_one_slow_exchange_holds_no_other():
    """Of a batch the quick ones are answered as they are, the one that hangs ends at the deadline."""
    with Receiver() as receiver:
        hanging = silent(b"")(receiver)
        receiver.answer = lambda one: hanging(one) if one.headers["webhook-id"] == delivery(3).id else said(200)
        outcomes = delivered(receiver.url, *(delivery(n) for n in range(6)), total_s=0.4)
    assert [type(outcome) for outcome in outcomes] == [Delivered, Delivered, Delivered, Retry, Delivered, Delivered]


def endless(head: bytes, chunk: bytes) -> Callable[[socket.socket], None]:
    """Say `head`, and `chunk` until the other side is gone."""

    def flood(connection: socket.socket) -> None:
        connection.sendall(head)
        for _ in range(2_000):
            connection.sendall(chunk)

    return flood


BOMB = (CASES / "C49-bomb.gz").read_bytes()
LONG_LINES = b"".join(b"X-Header-%d: %s\r\n" % (number, b"v" * 8_000) for number in range(900))
LINES = b"".join(b"X-Header-%d: value\r\n" % number for number in range(10_000))
HUGE: dict[str, Any] = {
    "an endless body": endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65_536),
    "endless chunks": endless(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    ),
    "a bomb": said(200, ("Content-Encoding", "gzip"), body=BOMB),
    "a length far above what is sent": endless(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\nx", b""),
    "10,000 header lines": b"HTTP/1.1 200 OK\r\n" + LINES + b"Content-Length: 0\r\n\r\n",
    "7 MB of headers": b"HTTP/1.1 200 OK\r\n" + LONG_LINES + b"Content-Length: 0\r\n\r\n",
    "a head without end": endless(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 65_536),
    "a header that is none": b"HTTP/1.1 200 OK\r\n\x00: x\r\n\r\n",
}


@pytest.mark.case("C49")
@pytest.mark.parametrize("answer", HUGE.values(), ids=HUGE)
def test_a_success_is_one_whatever_follows_it(answer: Any):
    """The status arrived whole: it counts. What comes behind it is read up to a cap, unpacked never."""
    with Receiver(lambda _: answer) as receiver:
        sink = built(receiver.url)
        sink.open()
        assert list(sink.deliver([delivery(1)])) == [Delivered("200")]
        tracemalloc.start()
        try:
            assert list(sink.deliver([delivery(2)])) == [Delivered("200")]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        sink.close()
    assert peak < CAP
    assert len(receiver.received) == 2


@pytest.mark.case("C49")
def test_an_endless_answer_is_cut_off():
    """Beyond the cap the connection is closed: what the receiver goes on saying is read by nobody."""
    sent: list[int] = []

    def flood(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(2_000):
            connection.sendall(b"x" * 65_536)  # raises when the other side is gone
            sent.append(65_536)

    with Receiver(lambda _: flood) as receiver:
        assert delivered(receiver.url, delivery()) == [Delivered("200")]
    assert sum(sent) < 2_000 * 65_536 / 4


@pytest.mark.case("C49")
def test_nothing_is_unpacked(monkeypatch: pytest.MonkeyPatch):
    """The fixture swells by a thousand; not a byte of it is handed to zlib."""
    unpacked: list[int] = []
    monkeypatch.setattr(
        "aiohttp.compression_utils.ZLibDecompressor.decompress_sync",
        lambda _, data, *__, **___: unpacked.append(len(data)),
    )
    with Receiver(lambda _: said(200, ("Content-Encoding", "gzip"), body=BOMB)) as receiver:
        assert delivered(receiver.url, delivery()) == [Delivered("200")]
    assert (unpacked, receiver.received[0].headers["accept-encoding"]) == ([], "identity")


@pytest.mark.case("C49")
def test_a_failure_is_one_too():
    """The same for a status that is no success, and its text is nowhere in the reason."""
    with Receiver(lambda _: b"HTTP/1.1 404 Gone fishing\r\n" + LINES + b"\r\n") as receiver:
        assert delivered(receiver.url, delivery()) == [Rejected(f"127.0.0.1:{receiver.port} answered 404")]


def test_half_a_status_is_none():
    """A connection that goes before the status line is whole says nothing of the delivery."""
    with Receiver(lambda _: lambda connection: connection.sendall(b"HTTP/1.1 20")) as receiver:
        (outcome,) = delivered(receiver.url, delivery())
    assert outcome == Retry(f"127.0.0.1:{receiver.port} closed the connection without an answer")
