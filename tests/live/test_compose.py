"""compose.yaml and the Dockerfile: read, and their services started as plain processes on real servers.

No container is started. Each service's own command and health check run with its own environment; only names that
exist inside the network of containers are mapped: hosts and ports to loopback, the volume to a temporary folder.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
import yaml

from sense_worker.intake.health import EXEC_HEALTH_KEY, HEALTH_KEY
from sense_worker.tether import tethered
from tests.databases import PostgresServer
from tests.live.worlds import until
from tests.redis_servers import server_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parent.parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROGRAMS = Path(sys.executable).parent
START_S = 100.0

pytestmark = pytest.mark.timeout(600)

PING = """
import sys, redis
print("PONG" if redis.Redis(port=int(sys.argv[1]), socket_timeout=5).ping() else "")
"""
"""What `valkey-cli ping` prints, where no such client is installed."""


def recipe() -> str:
    """Return the shell lines in the head of compose.yaml that make the file of secrets."""
    head = (ROOT / "compose.yaml").read_text().partition("# Then:")[0]
    return "\n".join(line.removeprefix("#   ") for line in head.splitlines() if line.startswith("#   "))


def dockerfile() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile as (name, rest)."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines) if name and name != "#"]


class TestFiles:
    """What the two files say."""

    def test_no_secret_stands_in_the_file(self) -> None:
        """Passwords and keys come from compose.env, which gets into no image."""
        given = {name for service in SERVICES.values() for name in service.get("environment", {})}
        made = set(re.findall(r'echo "(\w+)=', recipe()))

        assert made == {"POSTGRES_PASSWORD", "SENSE_DATABASE_URL", "SENSE_SECRET_KEYS"}
        assert not made & given
        assert [service["env_file"] for service in SERVICES.values() if "env_file" in service] == [["compose.env"]] * 4
        assert not in_context("compose.env")

    def test_every_service_that_stays_has_a_health_check(self) -> None:
        """All but the one-shot `init`; what a service waits for exists and can become what it waits for."""
        stays = {name for name in SERVICES if name != "init"}

        assert {name for name, service in SERVICES.items() if "healthcheck" in service} == stays
        assert {name for name, service in SERVICES.items() if service.get("restart") == "unless-stopped"} == stays
        for service in SERVICES.values():
            for needed, how in service.get("depends_on", {}).items():
                done = how["condition"] == "service_completed_successfully"
                assert done == (needed == "init")

    def test_volumes_and_images_are_plain(self) -> None:
        """Each volume is declared; no image names a registry's host."""
        used = {volume.partition(":")[0] for service in SERVICES.values() for volume in service["volumes"]}

        assert used == set(COMPOSE["volumes"])
        assert [s["image"] for s in SERVICES.values() if re.match(r"[^/]*[.:][^/]*/", s["image"])] == []

    def test_the_image_runs_what_the_worker_service_runs(self) -> None:
        """The image alone has the same command and health check, without root."""
        instructions = dockerfile()
        last = dict(instructions[[name for name, _ in instructions].index("USER") :])

        assert yaml.safe_load(last["CMD"]) == SERVICES["worker"]["command"]
        health = last["HEALTHCHECK"].partition(" CMD ")[2]
        assert ["CMD", *yaml.safe_load(health)] == SERVICES["worker"]["healthcheck"]["test"]
        assert last["USER"] not in ("root", "0")

    def test_the_build_finds_its_files(self) -> None:
        """Every source that is copied exists and is let into the build's context."""
        for name, rest in dockerfile():
            if name == "COPY" and not rest.startswith("--from"):
                for source in rest.split()[:-1]:
                    assert (ROOT / source).exists(), source
                    assert in_context(source), source


def in_context(source: str) -> bool:
    """Say whether .dockerignore lets a name of the top folder into the build's context; its last match decides."""
    let = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and fnmatch.fnmatch(source, pattern):
            let = line.startswith("!")
    return let


class Host:
    """The one machine that stands for the network of containers."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.programs = folder / "programs"
        self.programs.mkdir()
        self._stack = stack
        self._taken = [socket.socket() for _ in range(2)]
        for one in self._taken:
            one.bind(("127.0.0.1", 0))
        self.redis_port, self.postgres_port = (one.getsockname()[1] for one in self._taken)
        self._mapped = {
            "redis:6379": f"127.0.0.1:{self.redis_port}",
            "postgres:5432": f"127.0.0.1:{self.postgres_port}",
            "/var/lib/sense": str(folder / "home"),
        }
        for one in self._taken:
            one.close()

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a service: its own names and its file, nothing of the test's but the paths."""
        env = {"PATH": f"{self.programs}:{PROGRAMS}:/usr/bin:/bin"}
        env |= {"SENSE_INTAKE": "1", "SENSE_CONCURRENCY": "1", "SENSE_BLOCK_MS": "200"}
        for file in SERVICES[name].get("env_file", []):
            env |= dict(line.split("=", 1) for line in (self.folder / file).read_text().splitlines())
        env |= SERVICES[name].get("environment", {})
        for inside, outside in self._mapped.items():
            env = {key: value.replace(inside, outside) for key, value in env.items()}
        return env | {"PGHOST": "127.0.0.1", "PGPORT": str(self.postgres_port)}

    def start(self, name: str, argv: list[str] | None = None) -> subprocess.Popen[bytes]:
        """Start a service's command; it ends with the test."""
        log = self._stack.enter_context((self.folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            tethered(argv or SERVICES[name]["command"]), env=self.environment(name), stdout=log, stderr=log
        )
        self._stack.callback(self._end, process)
        return process

    def healthy(self, name: str) -> bool:
        """Run a service's health check once."""
        kind, *check = SERVICES[name]["healthcheck"]["test"]
        argv = {"CMD": check, "CMD-SHELL": ["sh", "-c", *check]}[kind]
        with (self.folder / f"{name}.health").open("wb") as said:
            done = subprocess.run(argv, env=self.environment(name), stdout=said, stderr=said, check=False, timeout=60)
        return done.returncode == 0

    def said(self, name: str) -> str:
        return (self.folder / name).read_text(errors="replace")[-3000:]

    def program(self, name: str, line: str) -> None:
        (self.programs / name).write_text(f"#!/bin/sh\nexec {line}\n")
        (self.programs / name).chmod(0o755)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class ComposePostgres(PostgresServer):
    """The wheel's server in the place of the image's: what its entry point does, then the service's command."""

    def start_for(self, host: Host) -> None:
        env = host.environment("postgres")
        programs, data = self._programs(), self.folder / "data"
        password = self.folder / "password"
        password.write_text(env["POSTGRES_PASSWORD"])
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", env["POSTGRES_USER"], "-A", "scram-sha-256"]
        argv = [*initdb, f"--pwfile={password}", "--locale=C", "-E", "UTF8", "--no-sync"]
        subprocess.run(argv, check=True, capture_output=True, **self._as_owner())  # type: ignore[call-overload]
        host.program("pg_isready", f'{programs / "pg_isready"} "$@"')
        command, *arguments = SERVICES["postgres"]["command"]
        mapped = ["-D", str(data), "-p", str(host.postgres_port), "-k", str(self.folder)]
        mapped += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        with (host.folder / "postgres.log").open("wb") as log:
            self.process = subprocess.Popen(
                self._tethered([str(programs / command), *arguments, *mapped]),
                env={"PATH": "/usr/bin:/bin"},
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        until(lambda: host.healthy("postgres"), START_S, "postgres is healthy")
        psql = [str(programs / "psql"), "-U", env["POSTGRES_USER"], "-d", "postgres", "-c"]
        create = [*psql, f"CREATE DATABASE {env['POSTGRES_DB']}"]
        subprocess.run(create, check=True, capture_output=True, env={**env, "PGPASSWORD": env["POSTGRES_PASSWORD"]})


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the recipe for the secrets needs openssl")
def test_every_service_becomes_healthy(tmp_path: Path) -> None:
    """The recipe makes the secrets; Redis, PostgreSQL, init and worker start as the file says and become healthy."""
    with ExitStack() as stack:
        host = Host(tmp_path, stack)
        subprocess.run(["sh", "-euc", recipe()], cwd=tmp_path, check=True, capture_output=True)
        mode = (tmp_path / "compose.env").stat().st_mode & 0o777
        data = tmp_path / "redis"
        data.mkdir()
        port = host.redis_port
        host.program("valkey-server", f'{server_program()} --port {port} --bind 127.0.0.1 --dir {data} "$@"')
        client = shutil.which("valkey-cli") or shutil.which("redis-cli")
        stand_in = shlex.join([sys.executable, "-c", PING, str(port)])
        host.program("valkey-cli", f'{client} -p {port} "$@"' if client else stand_in)
        postgres = ComposePostgres(fsync=False)
        stack.callback(postgres.close)

        host.start("redis")
        postgres.start_for(host)
        until(lambda: host.healthy("redis"), START_S, "redis is healthy")
        first_init = host.start("init").wait(timeout=START_S)
        second_init = host.start("init").wait(timeout=START_S)
        with redis.Redis(port=port) as asked:  # a health check costs half a second: none before there is a reader
            worker = host.start("worker")
            until(lambda: asked.exists(HEALTH_KEY) or worker.poll() is not None, START_S, "events are read")
            until(lambda: host.healthy("worker") or worker.poll() is not None, START_S, "the worker is healthy")
            commands = host.start("commands")
            before = host.healthy("commands")
            until(lambda: asked.exists(EXEC_HEALTH_KEY) or commands.poll() is not None, START_S, "requests are read")
        until(lambda: host.healthy("commands") or commands.poll() is not None, START_S, "commands are healthy")

        assert mode == 0o600
        assert (first_init, second_init) == (0, 0), host.said("init.log")
        assert worker.poll() is None, host.said("worker.log")
        assert "postgresql, schema current" in host.said("worker.health")
        assert commands.poll() is None, host.said("commands.log")
        assert not before, "no reader of requests was there yet"
        assert (data / "appendonlydir").is_dir()
        assert (tmp_path / "home" / "operator.session").exists()
        for one in (worker, commands):
            one.terminate()
        assert [one.wait(timeout=40) for one in (worker, commands)] == [0, 0]


@pytest.mark.long
def test_the_image_s_build_installs_all_that_runs(tmp_path: Path) -> None:
    """The build stage, step by step in a folder: what it installs runs without anything of the test extras."""
    source, target = tmp_path / "src", tmp_path / "opt"
    source.mkdir()
    instructions = dockerfile()
    stage = instructions[: [name for name, _ in instructions].index("FROM", 1)]
    steps: dict[str, Callable[[str], object]] = {
        "COPY": lambda rest: copy(rest.split(), source),
        "RUN": lambda rest: subprocess.run(
            ["sh", "-euc", rest.replace("/opt/sense", str(target)).replace("python -m", f"{sys.executable} -m")],
            cwd=source,
            check=True,
        ),
    }
    for name, rest in stage:
        steps.get(name, lambda _: None)(rest)

    run = [str(target / "bin" / "sense-worker")]
    env: Mapping[str, str] = {"PATH": os.defpath, "HCP_HOME": str(tmp_path / "home")}
    codes = [
        subprocess.run([*run, *words], env=env, cwd=tmp_path, check=False).returncode
        for words in (["version"], ["init"], ["pack", "list"], ["health"])
    ]

    assert codes == [0, 0, 0, 1]


def copy(words: list[str], target: Path) -> None:
    """Do what COPY does with files, or one folder, of the build's context."""
    *sources, place = words
    for name in sources:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target / place)
