"""A real git repository with the hooks of the git pack, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_core.event import parse_body
from runtime_core.pack import read_folder, read_pack
from runtime_core.signing import verify
from sense_worker.wire import check_entry, parse_entry

if TYPE_CHECKING:
    from tests.redis_servers import RedisServer

PACK = Path(__file__).parents[2] / "examples/packs/git"
KEY = "sense:acme:events"


class Repository:
    """A repository with the hooks in it, git kept away from this machine's settings, and a look at the stream."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder = folder / "Repo ä"
        self.server = server
        self.activation = folder / "activation ü.json"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHON": sys.executable,
            "GIT_AUTHOR_NAME": "Ana",
            "GIT_AUTHOR_EMAIL": "ana@example.org",
            "GIT_COMMITTER_NAME": "Ana",
            "GIT_COMMITTER_EMAIL": "ana@example.org",
        }
        self.read = 0
        self.activate(server.url)
        self.folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def activate(self, url: str) -> None:
        who = {"tenant": "acme", "principal": "ana", "activation_id": "act_1", "pack_id": "git", "secret": "s3cret"}
        self.activation.write_text(json.dumps({"v": 1, **who, "redis_url": url}))
        self.activation.chmod(0o600)

    def run(self, *argv: str | Path, cwd: Path | None = None, **names: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment | names
        return subprocess.run(
            argv, cwd=cwd or self.folder, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def git(self, *words: str, cwd: Path | None = None, **names: str) -> str:
        """Run git; it must work and say nothing on standard error that is not its own."""
        done = self.run("git", *words, cwd=cwd, **names)
        assert done.returncode == 0, done.stderr
        assert "sense-worker" not in done.stderr, done.stderr
        return done.stdout.strip()

    def install(self) -> subprocess.CompletedProcess[str]:
        return self.run(PACK / "install-hooks.sh", self.folder, self.activation)

    def commit(self, message: str, *words: str) -> str:
        self.git("commit", "-q", "--allow-empty", "-m", message, *words)
        return self.git("rev-parse", "HEAD")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        self.git("add", "--", name)

    def announced(self) -> list[Any]:
        """Return the events since the last call; each must pass every door and its trigger's schema."""
        with self.server.client() as client:
            fields = [found for _, found in client.xrange(KEY)][self.read :]
        self.read += len(fields)
        events = []
        for entry in map(parse_entry, fields):
            check_entry(entry)
            assert verify([b"s3cret"], entry.c, entry.i, entry.t, entry.b, entry.s)
            event = parse_body(entry.b)
            assert read_pack(*read_folder(PACK)).triggers[event.ref].check(event.data) is None
            events.append(event)
        return events
