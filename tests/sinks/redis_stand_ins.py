"""Stand-ins between a sink and Redis: a wire that loses an answer, and a server that answers what it is told to."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable


class Listener:
    """Accepts on a loopback port and serves each connection in a thread; `url` is its address."""

    def __init__(self, serve: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> None:
        self._serve = serve
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"redis{'' if tls is None else 's'}://127.0.0.1:{self.port}"
        self.connections = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._guarded, args=(connection,), daemon=True).start()

    def _guarded(self, connection: socket.socket) -> None:
        try:
            with connection if self._tls is None else self._tls.wrap_socket(connection, server_side=True) as wire:
                self._serve(wire)
        except OSError:  # the other side went
            return


def saying(answer: bytes) -> Callable[[socket.socket], None]:
    """Answer everything that is said with the same bytes."""

    def serve(wire: socket.socket) -> None:
        while wire.recv(65_536):
            wire.sendall(answer)

    return serve


def passing(path: str, loses: list[bytes]) -> Callable[[socket.socket], None]:
    """Pass everything on to the server at a unix socket; a request that holds one of `loses` gets no answer, once."""

    def serve(wire: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(path)
            while said := wire.recv(1_048_576):
                server.sendall(said)
                answer = server.recv(1_048_576)
                lost = [one for one in loses if one in said]
                if lost:
                    loses.remove(lost[0])
                    return
                wire.sendall(answer)

    return serve
