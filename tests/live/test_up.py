"""`sense-worker up` as a person runs it: one process, everything under it, on a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from sense_worker.health import check_health
from sense_worker.server import connect
from sense_worker.settings import Settings
from tests.live.worlds import QUICK, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.redis_servers import RedisServer

START_S = 100.0
"""Ready in 5 s on two idle cores; a suite that keeps both busy has taken 25 s."""
MAIN = (sys.executable, "-m", "sense_worker.cli.main")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="what is left of a killed process is read from /proc"),
    pytest.mark.timeout(400),
]


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return an environment without any setting of the caller, with short waits and one reader."""
    passed = {name: value for name, value in os.environ.items() if not name.startswith("SENSE_")}
    return {**passed, "HCP_HOME": str(home), "SENSE_INTAKE": "1", "SENSE_CONCURRENCY": "1", **QUICK, **more}


class Up:
    """A running `up`; its log is read as it comes."""

    def __init__(self, home: Path, **more: str) -> None:
        self.home = home
        self.env = environment(home, **more)
        self.log = home.parent / f"up-{home.name}.log"
        self._file = self.log.open("ab")
        self.process = subprocess.Popen(
            [*MAIN, "up"], env=self.env, stdin=subprocess.DEVNULL, stdout=self._file, stderr=self._file
        )

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def says(self, text: str, times: int = 1) -> bool:
        return sum(text in line for line in self.lines()) >= times

    def ready(self, times: int = 1) -> Self:
        def holds() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.says("up     | ready: ", times)

        until(holds, START_S, "ready")
        return self

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command on this home, which has to find the server by itself."""
        return subprocess.run([*MAIN, *arguments], env=self.env, capture_output=True, text=True, check=False)

    def url(self) -> str:
        return str(json.loads((self.home / "up.json").read_text())["redis_url"])

    def healthy(self) -> bool:
        return check_health(Settings.load({"HCP_HOME": str(self.home), **QUICK})).ok

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=START_S)

    def close(self) -> None:
        """End whatever is left, by its id."""
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for pid in living(self.home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._file.close()


def living(home: Path, *words: bytes) -> list[int]:
    """Return the processes that carry this home in their arguments or environment, and all `words` in the former."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal() or int(process.name) == os.getpid():
            continue
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes()
            carries = os.fsencode(home) in arguments + (process / "environ").read_bytes()
            if carries and all(word in arguments for word in words):
                found.append(int(process.name))
    return found


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Return a function that starts `up` on a home, by default an empty one of this test."""
    started: list[Up] = []

    def start(home: Path = tmp_path / "home", **more: str) -> Up:
        started.append(Up(home, **more))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.mark.long
def test_an_empty_home_comes_up_and_ends_in_order(up: Callable[..., Up]) -> None:
    """It makes the home, starts a server and a worker, says what runs, refuses a second one, and leaves nothing.

    In the quick tier the test of the README's first steps asks the same of the `up` that it starts.
    """
    assert_is_alone_and_ends_in_order(up().ready())


def assert_is_alone_and_ends_in_order(running: Up) -> None:
    """A running `up` is healthy, refuses a second one on its home, and stops with nothing left behind."""
    health = running.cli("health", "--json")
    second = running.cli("up")
    mode = (running.home / "up.json").stat().st_mode & 0o777

    code = running.stop()

    assert health.returncode == 0, health.stdout
    assert json.loads(health.stdout)["ok"] is True
    pid = running.process.pid
    assert (second.returncode, second.stderr) == (
        1,
        f"error: HCP_HOME: `up` runs already on {running.home} (process {pid}) (stop it with: kill {pid})\n",
    )
    assert mode == 0o600
    assert code == 0
    assert running.lines()[0].startswith("up     | private ")
    stops = [line for line in running.lines() if line.startswith("up ") and "stop" in line]
    assert sorted(stops[-4:-2]) == ["up     | exec is stopping", "up     | worker is stopping"]
    assert stops[-2:] == ["up     | redis is stopping", "up     | stopped"]
    assert living(running.home) == []
    assert not (running.home / "up.json").exists()


@pytest.mark.long
def test_whatever_is_killed_comes_back(up: Callable[..., Up]) -> None:
    """SIGKILL of `up` ends the whole tree, and the next has all data; a killed worker or server is started again."""
    first = up().ready()
    with connect(first.url(), timeout_s=5) as client:
        client.set("kept", "yes")
    tree = living(first.home)

    first.process.kill()
    first.process.wait()

    second = up().ready(times=2)
    until(lambda: not set(tree) & set(living(first.home)), START_S, "the killed tree is gone")
    for name, word in (("worker", b"sense_worker.cli.main\0worker\0"), ("redis", b"redis.sock")):
        killed = living(second.home, word)
        assert killed, name
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        noticed = f"up     | {name} is started again"
        until(lambda noticed=noticed: second.says(noticed), START_S, noticed)  # type: ignore[misc]
    until(second.healthy, START_S, "health after all that")
    with connect(second.url(), timeout_s=5) as client:
        assert client.get("kept") == "yes"
    assert second.process.poll() is None


def test_a_named_server_is_used(up: Callable[..., Up], redis_server: RedisServer) -> None:
    """SENSE_REDIS_URL is the first rung: no private server is started, and the stop may come at any moment."""
    running = up(SENSE_REDIS_URL=redis_server.url)
    until(running.lines, START_S, "the first line")

    code = running.stop()

    assert running.lines()[0].endswith(f" of SENSE_REDIS_URL at {redis_server.url}")
    assert code == 0
    assert not (running.home / "redis").exists()
    assert living(running.home) == []


def test_a_named_server_that_may_evict_stops_the_start(
    tmp_path: Path, redis_servers: Callable[..., RedisServer]
) -> None:
    """Exit 2, one line that names the setting, and no home was made."""
    server = redis_servers("--maxmemory-policy", "allkeys-lru")
    env = environment(tmp_path / "home", SENSE_REDIS_URL=server.url)

    done = subprocess.run([*MAIN, "up"], env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr == (
        "error: SENSE_REDIS_URL: the server's maxmemory-policy is allkeys-lru: it may drop accepted events "
        "(CONFIG SET maxmemory-policy noeviction, and in its configuration)\n"
    )
    assert not (tmp_path / "home").exists()
