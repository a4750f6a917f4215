"""What a run works on: servers, a home, one pack, one principal with a granted route to the inbox."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from sense_worker.operator import Operator
from sense_worker.server import find_program
from sense_worker.settings import Settings
from sense_worker.storage.engine import Database
from sense_worker.storage.rows import Rows
from sense_worker.tether import tethered
from tests.databases import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable

REF = "new_item"
HARNESS = b"# Mail\n"
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "maxLength": 64},
        "from": {"type": "string"},
        "subject": {"type": "string"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "size": {"type": "integer", "minimum": 0},
    },
    "required": ["id", "from"],
    "additionalProperties": False,
}


def surface_bytes() -> bytes:
    """Return the manifest of the benchmark's pack: one trigger with a schema."""
    trigger = {"ref": REF, "summary": "A message came", "data": SCHEMA}
    return json.dumps(
        {
            "id": "mail",
            "version": "1.0.0",
            "title": "Mail",
            "plane": "runtime",
            "adapter": {"kind": "sense_only"},
            "binding": {"mode": "public", "hub": "none"},
            "verbs": {},
            "stimulusTriggers": [trigger],
        }
    ).encode()


def policy_bytes(land: str = "personal") -> bytes:
    """Return its policy: the trigger is read."""
    entry = {"operation": "read", "privacy": {"land": land}}
    return json.dumps({"surface_id": "mail", "version": 1, "verbs": {}, "stimuli": {REF: entry}}).encode()


def data(number: int) -> dict[str, Any]:
    """Return the data of one event: about 300 bytes as JSON."""
    return {
        "id": f"message-{number:012d}",
        "from": "somebody.with.a.name@mail.example",
        "subject": "A subject of a length that subjects have, with a few words more",
        "labels": ["inbox", "unread", "project-apollo"],
        "size": 48_211 + number % 1_000,
    }


class World:
    """A home with servers of its own. `database` is `sqlite` or `postgresql`; `env` are settings besides."""

    def __init__(self, database: str, *, appendfsync: str = "everysec", **env: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sense-bench-", dir="/tmp"))
        self.folder.chmod(0o711)
        self.postgres = PostgresServer(fsync=True) if database == "postgresql" else None
        if self.postgres:
            self.postgres.start()
        self._appendfsync = appendfsync
        self.redis = self._start_redis(appendfsync)
        home = self.folder / "home"
        url = self.postgres.url if self.postgres else f"sqlite:///{home / 'sense.db'}"
        self.env = {
            "HCP_HOME": str(home),
            "SENSE_REDIS_URL": f"unix://{self.folder / 'redis.sock'}",
            "SENSE_DATABASE_URL": url,
            "SENSE_LOG_LEVEL": "warning",
            "SENSE_STREAM_LIMIT": "10000000",
            **env,
        }
        self.settings = Settings.load(self.env)
        Operator.initialize(self.settings)
        self.database = Database(url)
        self.processes: list[subprocess.Popen[Any]] = []
        pack = self.folder / "mail"
        pack.mkdir()
        (pack / "surface.json").write_bytes(surface_bytes())
        (pack / "policy.json").write_bytes(policy_bytes())
        (pack / "HARNESS.md").write_bytes(HARNESS)
        with Operator.open(self.settings) as operator:
            operator.install_pack(pack)
            operator.add_grant(operator.acting.principal, "sense.enable", pack="mail", keys=[REF])
            operator.add_route("mail", REF, "inbox")
            self.activation = operator.activate("mail").file

    def _start_redis(self, appendfsync: str) -> subprocess.Popen[bytes]:
        argv = [find_program().path, "--port", "0", "--unixsocket", str(self.folder / "redis.sock")]
        argv += ["--dir", str(self.folder), "--appendonly", "yes", "--appendfsync", appendfsync, "--save", ""]
        argv += ["--maxmemory-policy", "noeviction"]
        process = subprocess.Popen(tethered(argv), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_until(self._redis_answers, 20)
        return process

    def restart_redis(self) -> None:
        """Kill the server with SIGKILL and start it again on its data."""
        self.redis.kill()
        self.redis.wait()
        self.redis = self._start_redis(self._appendfsync)

    def _redis_answers(self) -> bool:
        with suppress(redis.RedisError), self.client() as client:
            return bool(client.ping())
        return False

    def client(self) -> redis.Redis:
        """Return a client of the run's Redis."""
        return redis.Redis.from_url(f"unix://{self.folder / 'redis.sock'}", protocol=2)

    def start(self, *argv: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a Python module of ours in this world's environment."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                tethered([sys.executable, "-m", *argv]),
                env={**os.environ, **self.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        with self.database.read() as connection:
            return int(Rows(connection, self.database.kind).query(f"SELECT count(*) FROM {table}")[0][0])

    def stop(self, process: subprocess.Popen[Any]) -> None:
        """Stop a process in order, or kill it after 30 s."""
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End everything and remove the folder."""
        for process in self.processes:
            if process.poll() is None:
                self.stop(process)
        self.database.dispose()
        self.redis.kill()
        self.redis.wait()
        if self.postgres:
            self.postgres.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def wait_until(holds: Callable[[], bool], timeout: float) -> None:
    """Wait until `holds()`; raises SystemExit after `timeout` seconds."""
    ends = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > ends:
            raise SystemExit(f"not within {timeout} s: {holds}")
        time.sleep(0.02)
