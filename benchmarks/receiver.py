"""A receiver of webhooks that costs little: `python -m benchmarks.receiver` prints its port and answers 200."""

from __future__ import annotations

import asyncio
import sys

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_LENGTH = b"content-length: "


class Receiver(asyncio.Protocol):
    """Reads requests with a Content-Length off a connection and answers each."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport = transport
        self._waiting = b""

    def data_received(self, data: bytes) -> None:
        """Answer every request that is whole."""
        self._waiting += data
        while (end := self._waiting.find(b"\r\n\r\n")) >= 0:
            head = self._waiting[:end].lower()
            at = head.find(_LENGTH)
            length = int(head[at + len(_LENGTH) :].split(b"\r", 1)[0]) if at >= 0 else 0
            if len(self._waiting) < end + 4 + length:
                return
            self._waiting = self._waiting[end + 4 + length :]
            self._transport.write(ANSWER)  # type: ignore[attr-defined]


async def main() -> None:
    """Serve until the process ends."""
    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0, backlog=512)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
