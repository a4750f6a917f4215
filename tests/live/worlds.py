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

from sense_worker.operator import Operator
from sense_worker.publisher import Publisher
from sense_worker.settings import Settings
from sense_worker.storage.engine import Database
from sense_worker.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SURFACE = {
    "id": "mail",
    "version": "1.0.0",
    "title": "Mail",
    "plane": "runtime",
    "adapter": "sense_only",
    "binding": {"mode": "public", "hub": "none"},
    "verbs": {},
    "stimulusTriggers": [
        {"ref": "new_item", "summary": "A message came"},
        {"ref": "shared_item", "summary": "A message came to the project"},
        {"ref": "saved_item", "summary": "A message was saved in the workspace"},
    ],
}
POLICY = {
    "surface_id": "mail",
    "version": 1,
    "verbs": {},
    "stimuli": {
        "new_item": {"operation": "read", "privacy": {"land": "personal"}},
        "shared_item": {"operation": "read", "privacy": {"land": "brain"}},
        "saved_item": {"operation": "read", "privacy": {"land": "local"}},
    },
}
QUICK = {"SENSE_HEARTBEAT_S": "0.3", "SENSE_RECLAIM_S": "0.3", "SENSE_SWEEP_S": "0.2", "SENSE_LINGER_S": "0.2"}
"""Waits a tenth to a twentieth of life."""


def write_pack(folder: Path, surface: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> Path:
    """Write a pack folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "surface.json").write_text(json.dumps(surface or SURFACE))
    (folder / "policy.json").write_text(json.dumps(policy or POLICY))
    (folder / "HARNESS.md").write_text("# Mail\n")
    return folder


class World:
    """One home with the pack `mail` installed in tenant `default`, and the principal `operator` of its session."""

    def __init__(self, home: Path, redis_url: str, database_url: str | None = None, **env: str) -> None:
        self.home = home
        self.env = {"HCP_HOME": str(home), "SENSE_REDIS_URL": redis_url, "SENSE_LOG_FORMAT": "json", **QUICK, **env}
        if database_url:
            self.env["SENSE_DATABASE_URL"] = database_url
        self.settings = Settings.load(self.env)
        Operator.initialize(self.settings)
        self.database = Database(self.settings.database_url)
        self.operator = Operator.open(self.settings)
        self.operator.install_pack(write_pack(home / "source" / "mail"))
        self.workers: list[Worker] = []

    def route(self, ref: str = "new_item", sink: str = "inbox", *, granted: bool = True) -> str:
        """Make a route of the acting principal, with or without its grant; returns its id."""
        if granted:
            self.operator.add_grant(self.operator.acting.principal, "sense.enable", pack="mail", keys=[ref])
        return self.operator.add_route("mail", ref, sink).id

    def publisher(self, **options: Any) -> Publisher:
        """Return a publisher for an activation of the pack without a project."""
        return Publisher(self.operator.activate("mail").file, **options)

    def worker(self, **env: str) -> Worker:
        """Start a worker process; it ends with the test."""
        worker = Worker(self, {**self.env, **env})
        self.workers.append(worker)
        return worker

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a query with `?` marks."""
        from sense_worker.storage.rows import Rows

        with self.database.read() as connection:
            return Rows(connection, self.database.kind).query(sql, parameters)

    def states(self) -> dict[str, int]:
        """Return how many deliveries stand in each state."""
        return dict(self.query("SELECT state, count(*) FROM sense_delivery GROUP BY state"))

    def close(self) -> None:
        """End every worker and connection."""
        for worker in self.workers:
            worker.kill()
        self.operator.close()
        self.database.dispose()


class Worker:
    """`sense-worker worker` in a process group of its own, its log in a file."""

    def __init__(self, world: World, env: dict[str, str]) -> None:
        self.log = world.home / f"worker-{len(world.workers)}.log"
        argv = [sys.executable, "-m", "sense_worker.cli.main", "worker"]
        passed = {name: value for name, value in os.environ.items() if not name.startswith("SENSE_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                tethered(argv),
                env={**passed, **env},
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

    def stop(self, timeout: float = 30.0) -> int:
        """Stop it in order; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=timeout)


def until(holds: Callable[[], object], timeout: float = 30.0, what: str = "") -> None:
    """Wait until `holds()` is true, looking every 50 ms; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what or holds}"
        time.sleep(0.05)
