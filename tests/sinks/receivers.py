"""Receivers on loopback: HTTP that answers as it is told, mail, and one that hangs. They keep what arrived."""

from __future__ import annotations

import http.server
import socketserver
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS = "127.0.0.2"
"""Where they listen: not where `localhost` leads, so that a test can allow one and refuse the other."""


class Answer:
    """What an HTTP receiver says: a status, a body, headers."""

    def __init__(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.status = status
        self.body = body
        self.headers = headers


class _Serving:
    """A server in a thread; `requests` is what arrived, `connections` how many there were."""

    server: socketserver.BaseServer

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.server.shutdown()
        self.server.server_close()


class HttpReceiver(_Serving):
    """Answers each request with what `answer` returns for its path and body."""

    def __init__(self, answer: Callable[[str, bytes], Answer] = lambda path, body: Answer(200)) -> None:
        self.requests: list[tuple[str, bytes]] = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                receiver.requests.append((self.path, body))
                given = answer(self.path, body)
                self.send_response(given.status)
                for name, value in {"Content-Length": str(len(given.body)), **given.headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(given.body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *args: Any) -> None: ...

        self.server = http.server.ThreadingHTTPServer((ADDRESS, 0), Handler)
        self.port: int = self.server.server_address[1]  # type: ignore[assignment]


class MailReceiver(_Serving):
    """Takes mail over SMTP, without a password; `refuses` are recipients it answers 550."""

    refuses: ClassVar[tuple[bytes, ...]] = (b"nobody@",)

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        receiver = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 loopback\r\n")
                while line := self.rfile.readline():
                    word = line[:4].upper()
                    if word == b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        receiver.requests.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                    refused = word == b"RCPT" and any(one in line for one in receiver.refuses)
                    self.wfile.write(b"550 no such user\r\n" if refused else b"250 ok\r\n")

        socketserver.ThreadingTCPServer.daemon_threads = True
        self.server = socketserver.ThreadingTCPServer((ADDRESS, 0), Handler)
        self.port: int = self.server.server_address[1]  # type: ignore[assignment]


class Hanging(_Serving):
    """Accepts, reads and says nothing until it ends."""

    def __init__(self) -> None:
        self.connections = 0
        self._ends = threading.Event()
        receiver = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                receiver.connections += 1
                receiver._ends.wait(30)

        self.server = socketserver.ThreadingTCPServer((ADDRESS, 0), Handler)
        self.port: int = self.server.server_address[1]  # type: ignore[assignment]

    def __exit__(self, *raised: object) -> None:
        self._ends.set()
        super().__exit__(*raised)
