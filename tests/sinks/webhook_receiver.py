"""A receiver on loopback that keeps what arrives and answers byte for byte as it is told."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sinks.protocol import Host
from sinks.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from sinks.webhook import Webhook

CASES = Path(__file__).parents[1] / "cases"
HOST = Host((ip_network("127.0.0.0/8"), ip_network("::1/128")))
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""The example of Standard Webhooks."""


class Received(NamedTuple):
    """One request as it arrived; names of headers in lower case."""

    line: str
    headers: dict[str, str]
    body: bytes


def said(status: int, *headers: tuple[str, str], body: bytes = b"") -> bytes:
    """Return an answer."""
    lines = [
        f"HTTP/1.1 {status} Said",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return "\r\n".join([*lines, "", ""]).encode("utf-8") + body


class Receiver:
    """Answers each request with `answer`: bytes, after which it waits for the next, or what to do with the socket."""

    def __init__(self, answer: Callable[[Received], Any] = lambda _: said(200)) -> None:
        self.answer = answer
        self.received: list[Received] = []
        self.connections = 0
        self.over = threading.Event()
        """Set when the test is over: what hangs lets go."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._sockets: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.over.set()
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):  # what wakes the thread that waits in accept or for a next request
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self.over.is_set():
                connection, _ = self._listener.accept()
                self.connections += 1
                self._sockets.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            while not self.over.is_set() and (line := stream.readline()):
                headers = {}
                while (header := stream.readline().decode("latin-1").strip()) != "":
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", "0")))
                one = Received(line.decode("latin-1").strip(), headers, body)
                self.received.append(one)
                answer = self.answer(one)
                if not isinstance(answer, bytes):
                    answer(connection)
                    return
                connection.sendall(answer)


def built(url: str, host: Host = HOST, **options: Any) -> Webhook:
    """Return a webhook built as the runtime builds one, not opened."""
    found: Any = Registry(host).build("webhook", "hook", {"url": url, "secret": SECRET, **options})
    return found


def delivered(url: str, *deliveries: Any, **options: Any) -> list[Any]:
    """Open a webhook, hand a batch over and close it; returns the outcomes."""
    sink = built(url, **options)
    sink.open()
    try:
        return list(sink.deliver(deliveries))
    finally:
        sink.close()


def case(name: str) -> Any:
    """Return a handed case."""
    return json.loads((CASES / name).read_text("utf-8"))
