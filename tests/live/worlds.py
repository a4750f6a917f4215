"""A world for tests on real parts: a home, a database, a Redis, one pack, and as many workers as a test starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import redis
from cryptography.fernet import Fernet

from sense_worker.publisher import Publisher
from sense_worker.settings import Settings
from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import each_database, migrate
from sense_worker.storage.rows import Rows as Statements
from sense_worker.tether import tethered
from sense_worker.vault import Vault
from tests.provision import Rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


QUICK = {
    "SENSE_HEARTBEAT_S": "0.3",
    "SENSE_RECLAIM_S": "0.3",
    "SENSE_SWEEP_S": "0.2",
    "SENSE_LINGER_S": "0.2",
    "SENSE_BLOCK_MS": "200",
    "SENSE_LEASE_SLACK_S": "1",
}
"""Waits a tenth to a twentieth of life."""

FILED = """
from pydantic import BaseModel

from sinks import Delivered, SinkBase


class Options(BaseModel, extra="forbid"):
    file: str


class Sink(SinkBase):
    kind = "filed"
    Options = Options

    def deliver(self, batch):
        with open(self.options.file, "a") as file:
            file.writelines(one.id + "\\n" for one in batch)
        return [Delivered()] * len(batch)
"""
"""A sink that is not local: it writes the ids of what it gets into the file of its options."""


class World:
    """A home with tenant t-red, its pack `mail`, principal ana with the activation `a-ana`, and servers given."""

    def __init__(self, home: Path, redis_url: str, database: Database, **env: str) -> None:
        self.home = home
        self.database = database
        self.env = {
            "HCP_HOME": str(home),
            "SENSE_REDIS_URL": redis_url,
            "SENSE_DATABASE_URL": database.url.render_as_string(hide_password=False),
            "SENSE_SECRET_KEYS": Fernet.generate_key().decode(),
            "SENSE_LOG_FORMAT": "json",
            **QUICK,
            **env,
        }
        self.settings = Settings.load(self.env)
        for one in each_database(self.settings):
            migrate(one)
        self.rows = Rows(database, Vault.load(self.settings))
        with self.rows.together():
            self.rows.principal("ana")
            self.rows.pack()
            self.secret = self.rows.activation("a-ana", "ana")
        self.workers: list[Worker] = []
        self.publishers: list[Publisher] = []

    def route(self, ref: str = "new_item", sink: str = "inbox") -> str:
        """Make a granted route of ana's; returns its id."""
        self.rows.grant("ana", ref)
        return self.rows.route("ana", ref, sink)

    def publisher(self, **options: Any) -> Publisher:
        """Return a publisher for ana's activation."""
        file = self.home / "activation.json"
        facts = {"v": 1, "tenant": "t-red", "principal": "ana", "activation_id": "a-ana", "pack_id": "mail"}
        file.touch(0o600)
        file.write_text(json.dumps({**facts, "secret": self.secret.decode(), "redis_url": self.settings.redis_url}))
        self.publishers.append(Publisher(file, **options))
        return self.publishers[-1]

    def client(self) -> redis.Redis:
        """Return a client of the world's Redis."""
        return redis.Redis.from_url(str(self.settings.redis_url), protocol=2)

    def worker(self, program: str | None = None, **env: str) -> Worker:
        """Start a worker process, or a Python program in its place; it ends with the test."""
        worker = Worker(self, {**self.env, **env}, program)
        self.workers.append(worker)
        return worker

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a query with `?` marks."""
        with self.database.read() as connection:
            return Statements(connection, self.database.kind).query(sql, parameters)

    def asked(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a query on the database of requests; with SQLite that is another file."""
        requests = Database(self.settings.requests_url)
        try:
            with requests.read() as connection:
                return Statements(connection, requests.kind).query(sql, parameters)
        finally:
            requests.dispose()

    def states(self) -> dict[str, int]:
        """Return how many deliveries stand in each state."""
        return dict(self.query("SELECT state, count(*) FROM sense_delivery GROUP BY state"))

    def close(self) -> None:
        """End every worker."""
        for publisher in self.publishers:
            publisher.close()
        for worker in self.workers:
            worker.kill()


class Worker:
    """`sense-worker worker` in a process group of its own, its log in a file."""

    def __init__(self, world: World, env: dict[str, str], program: str | None) -> None:
        self.log = world.home / f"worker-{len(world.workers)}.log"
        called = ("-m", "sense_worker.cli.main", "worker") if program is None else ("-c", program)
        argv = [sys.executable, *called]
        passed = {name: value for name, value in os.environ.items() if not name.startswith("SENSE_")}
        paths = filter(None, (passed.get("PYTHONPATH"), env.get("PYTHONPATH")))  # the guard's, and the plugins'
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                tethered(argv),
                env={**passed, **env, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL the worker and all its children at once, as the kernel or a pulled plug would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=20)

    def kill_process(self, pid: int) -> None:
        """SIGKILL one process of this worker; anything else is refused."""
        assert os.getpgid(pid) == self.process.pid, "not of this worker"
        os.kill(pid, signal.SIGKILL)

    def stop(self, timeout: float = 30.0) -> int:
        """Stop it in order; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=timeout)


def write_plugin(folder: Path, kind: str, source: str) -> Path:
    """Write a package whose one sink `kind` is the class `Sink` of `source`, as an installer would; returns `folder`.

    A worker finds it with PYTHONPATH.
    """
    info = folder / f"{kind}-1.dist-info"
    info.mkdir(parents=True)
    (folder / f"{kind}_sink.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {kind}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[sense_worker.sinks]\n{kind} = {kind}_sink:Sink\n")
    return folder


def until(holds: Callable[[], object], timeout: float = 30.0, what: str = "") -> None:
    """Wait until `holds()` is true, looking every 50 ms; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what or holds}"
        time.sleep(0.05)
