"""A connection that says a few commands to Redis and nothing else; sync and async over one way of judging bytes.

The publisher does not use redis-py. Its import costs 0.8 s of CPU, which a short-lived adapter such as a git hook pays
at every announcement (this: 0.1 s); it repeats a command by itself, up to 10 times, and says CLIENT and HELLO on
connect, which an ACL of `+xadd +xlen` does not cover. hiredis, the parser beneath redis-py, does the protocol here.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any, Protocol

import hiredis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_core.redis_url import RedisUrl

Command = tuple[str | bytes | int, ...]
Reply = int | bytes | list[Any] | None | hiredis.ReplyError

READ_BYTES = 65_536


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


def greeting(to: RedisUrl) -> list[Command]:
    """Return what must be said first: AUTH where there is a password, SELECT where the database is not 0."""
    said: list[Command] = []
    if to.password:
        said.append(("AUTH", *((to.username,) if to.username else ()), to.password))
    if to.db:
        said.append(("SELECT", to.db))
    return said


class Answers:
    """Bytes in, replies out: the part of a connection that does no I/O."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()

    def feed(self, data: bytes) -> None:
        """Take bytes as they were read. Raises ConnectionResetError for the empty ones of an end of file."""
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self._reader.feed(data)

    def collect(self, replies: list[Reply], count: int) -> bool:
        """Move whole replies over until there are `count`; False where more bytes must be read first."""
        try:
            while len(replies) < count:
                reply = self._reader.gets()
                if reply is False:  # "not yet": RESP 2 has no booleans
                    return False
                replies.append(reply)
        except hiredis.ProtocolError as error:
            raise ConnectionError(f"the answer is not of Redis: {error}") from None
        return True


def packed(commands: Sequence[Command]) -> bytes:
    """Return the commands as bytes of the protocol."""
    return b"".join([hiredis.pack_command(command) for command in commands])  # type: ignore[arg-type]


class Connection:
    """A blocking connection, made when first needed and again after a failure; safe for threads and after a fork.

    `timeout_s` bounds the connect, each send and each wait for bytes.
    """

    def __init__(self, address: RedisUrl, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._answers = Answers()
        self._pid = os.getpid()
        self._turn = threading.Lock()

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """Say the commands in one go and return a reply for each; an error reply is returned, not raised.

        Raises OSError where the server does not answer; then nobody knows which commands were carried out.
        """
        with self._turn:
            try:
                return self._exchange(self._ready(), commands)
            except BaseException:
                # Replies that come late would be taken for those of the next commands.
                self._drop()
                raise

    def close(self) -> None:
        """Let go of the socket; a later exchange makes a new one."""
        with self._turn:
            self._drop()

    def _ready(self) -> socket.socket:
        if self._socket is not None and (self._pid != os.getpid() or has_ended(self._socket)):
            self._drop()
        if self._socket is None:
            self._socket = self._connected()
            self._pid = os.getpid()
            self._answers = Answers()
            accept_greeting(self._exchange(self._socket, greeting(self._address)))
        return self._socket

    def _connected(self) -> socket.socket:
        to = self._address
        if to.path:
            opened = socket.socket(socket.AF_UNIX)
            try:
                opened.settimeout(self._timeout_s)
                opened.connect(to.path)
            except BaseException:
                opened.close()
                raise
            return opened
        plain = socket.create_connection((to.host, to.port), self._timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ssl.create_default_context().wrap_socket(plain, server_hostname=to.host) if to.tls else plain

    def _exchange(self, opened: socket.socket, commands: Sequence[Command]) -> list[Reply]:
        opened.sendall(packed(commands))
        replies: list[Reply] = []
        while not self._answers.collect(replies, len(commands)):
            self._answers.feed(opened.recv(READ_BYTES))
        return replies

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def accept_greeting(replies: Sequence[Reply]) -> None:
    """Raise the first error among the replies to a greeting: nothing may be said after it."""
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise reply


def has_ended(opened: _HasFileno) -> bool:
    """Tell whether an idle socket has something to read: nothing is due, so it is the end of it."""
    poll = select.poll()
    poll.register(opened, select.POLLIN)
    return bool(poll.poll(0))
