"""A world with an exec worker: a pack of shell commands, and ana's session with its secret."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest

from sense_worker.client import AsyncRuntimeClient, HeldSession, RuntimeClient
from sense_worker.intake.health import EXEC_HEALTH_KEY
from sense_worker.storage import tables
from tests.live.worlds import World, until
from tests.provision import NEVER

if TYPE_CHECKING:
    from pathlib import Path

    from sense_worker.storage.engine import Database
    from tests.live.worlds import Worker

COMMANDS = """
import sys

from sense_worker.cli.main import main

sys.argv = ["sense-worker", "worker", "--commands"]
main()
"""
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@pytest.fixture(name="database_url", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def quick_on_one_kind(request: pytest.FixtureRequest) -> str:
    """Both kinds of database, PostgreSQL in the long tier: each of these tests starts a worker for some five seconds.

    What the databases do differently is tested on both by `tests/sense_worker/exec`, in the quick tier.
    """
    return str(request.getfixturevalue(f"{request.param}_url"))


class ExecWorld(World):
    """Pack `tool`, activated on ana's session, with grants to read and write. `tool.wait` and `tool.hold` do not end.

    Each run of those and of `tool.put` leaves a line in `ran`.
    """

    def __init__(self, home: Path, redis_url: str, database: Database, **env: str) -> None:
        super().__init__(home, redis_url, database, **env)
        self.ran = home / "ran"
        self.ran.touch()
        surface, policy = self._tool()
        self.rows.pack(surface, policy, bins={"sh": "/bin/sh"})
        self.held = self.session("ses-web", "ana")
        for capability in ("verb.exec.read", "verb.exec.write"):
            self.allow("ana", capability)

    def session(self, session_id: str, principal: str) -> HeldSession:
        """Issue a session with the pack activated on it."""
        secret = secrets.token_hex(32)
        sealed = self.rows.vault.seal(secret.encode())
        row = {"id": session_id, "principal": principal, "secret": sealed, "previous_until": 0}
        self.rows.put(tables.SessionRow, **row, created_at=1, expires_at=NEVER)
        self.rows.put(
            tables.ActivationRow,
            id=f"a-{session_id}",
            session_id=session_id,
            pack_id="tool",
            secret=self.rows.vault.seal(b"of the activation"),
            previous_until=0,
            created_at=1,
        )
        return HeldSession(self.rows.tenant, session_id, secret)

    def rotate(self, secret: str) -> None:
        """Give ana's session a new secret; the one before is dead."""
        self.rows.change(tables.SessionRow, {"id": self.held.session_id}, secret=self.rows.vault.seal(secret.encode()))

    def allow(self, principal: str, capability: str) -> None:
        """Grant a capability for the whole pack."""
        name, maker = f"grt-{principal}-{capability}", {"created_by": "test", "created_at": 1}
        self.rows.put(tables.GrantRow, id=name, principal=principal, capability=capability, pack_id="tool", **maker)

    def commands(self, **env: str) -> Worker:
        """Start a worker for commands; its reader reads when this returns."""
        worker = self.worker(COMMANDS, **env)
        with self.client() as client:
            until(lambda: client.exists(EXEC_HEALTH_KEY), timeout=90, what="the exec reader")
        return worker

    def runtime(self, **options: Any) -> RuntimeClient:
        """Return a client of ana's."""
        return RuntimeClient(self.held, str(self.settings.redis_url), **options)

    def async_runtime(self, **options: Any) -> AsyncRuntimeClient:
        """Return an async client of ana's."""
        return AsyncRuntimeClient(self.held, str(self.settings.redis_url), **options)

    def runs(self) -> list[str]:
        """Return which commands began, in order."""
        return self.ran.read_text().split()

    def _tool(self) -> tuple[dict[str, Any], dict[str, Any]]:
        tell = f'echo "$0" >> {self.ran}'
        scripts = {
            "say": ("read", TEXT, ['printf %s "$1"', "say", "{text}"]),
            "big": ("read", None, ["head -c 900000 /dev/zero | tr '\\0' x", "big"]),
            "bigger": ("read", None, ["head -c 1048570 /dev/zero | tr '\\0' x", "bigger"]),
            "fail": ("read", None, ["exit 3", "fail"]),
            "wait": ("read", None, [f"{tell}; exec sleep 60", "wait"]),
            "put": ("write", None, [tell, "put"]),
            "hold": ("write", None, [f"{tell}; exec sleep 60", "hold"]),
        }
        verbs, entries = {}, {}
        for name, (operation, args, script) in scripts.items():
            verbs[f"tool.{name}"] = {"summary": name, "cli": ["-c", *script]} | ({"args": args} if args else {})
            entries[f"tool.{name}"] = {"operation": operation, "privacy": {"land": "personal"}}
        surface = {
            "id": "tool",
            "version": "1.0.0",
            "title": "Tool",
            "plane": "runtime",
            "adapter": {"kind": "wrap", "bin": "sh"},
            "binding": {"mode": "public", "hub": "none"},
            "sandbox": {"posture": "native-local", "bins": ["sh"], "timeout_s": 60},
            "verbs": verbs,
        }
        return surface, {"surface_id": "tool", "version": 1, "verbs": entries}
