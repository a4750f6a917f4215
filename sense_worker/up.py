"""`sense-worker up`: everything on this machine under one process (DESIGN §9).

A private server unless SENSE_REDIS_URL names one, a worker for events and one for commands, each with its readers and
pool, all supervised, one log on standard output. It ends at SIGINT or SIGTERM: the worker first, the server last.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import redis

from runtime_core.errors import Conflict
from sense_worker.child import Child
from sense_worker.claim import claim, holder
from sense_worker.health import read_pulses, redis_micros
from sense_worker.intake.health import EXEC_HEALTH_KEY, HEALTH_KEY
from sense_worker.operator import Operator
from sense_worker.server import PrivateServer, answers, check_server, connect, find_program
from sense_worker.settings import masked
from sense_worker.supervisor import Stage, Supervisor
from sense_worker.up_file import remove_up_file, write_up_file

if TYPE_CHECKING:
    from pathlib import Path

    from sense_worker.settings import Settings

WORKER = ("-m", "sense_worker.cli.main", "worker")
WORKER_STOP_S = 60.0
"""The pool ends the batches and commands at hand, each at most its deadline; intake gets 18 s of it. As in compose."""
SERVER_STOP_S = 30.0
"""The server has synced every write already; what takes time is a rewrite of a large log that it gives up."""


def run_up(settings: Settings) -> int:
    """Run until SIGINT or SIGTERM; returns 0 after an orderly stop.

    Raises SettingsError where there is no fit server, Conflict where `up` or its server runs already on this home
    (nothing was changed by either), StartFailed where a child ends again and again before it is ready.
    """
    with ExitStack() as held:
        if settings.redis_url is not None:
            url = settings.redis_url
            told = f"Redis {check_server(url).version} of SENSE_REDIS_URL"
            server = None
        else:
            server = PrivateServer(settings.home, find_program())
            url, told = server.url, f"private {server.program}"
        _claim_home(settings.home, held)
        servers = () if server is None else (_server_child(server, held),)
        Operator.initialize(settings)
        held.callback(remove_up_file, settings.home)
        _supervise(settings, url, servers, told)
    return 0


def _supervise(settings: Settings, url: str, servers: tuple[Child, ...], told: str) -> None:
    stages = (
        Stage(servers, then=lambda: write_up_file(settings.home, url)),
        Stage(_workers(settings, url), then=lambda: supervisor.tell(_ready_line(settings, told))),
    )
    supervisor = Supervisor(stages, _write)
    supervisor.tell(f"{told} at {masked(url)}")
    supervisor.run()
    supervisor.tell("stopped")


def _server_child(server: PrivateServer, held: ExitStack) -> Child:
    lock = server.prepare()
    held.callback(server.release, lock)
    return Child(
        "redis",
        server.argv(),
        {"PATH": os.defpath},  # it reads no setting of ours, and no secret is its business
        ready=lambda: answers(server.url),
        stop_timeout_s=SERVER_STOP_S,
        on_death=signal.SIGTERM,
        pass_fds=(lock,),
        first_tries=1,
    )


def _workers(settings: Settings, url: str) -> tuple[Child, ...]:
    """Return the worker for events, and the one for commands unless that has no readers."""
    events = _worker_child(settings, url, "worker", HEALTH_KEY)
    if not settings.exec_intake:
        return (events,)
    return events, _worker_child(settings, url, "exec", EXEC_HEALTH_KEY, "--commands")


def _worker_child(settings: Settings, url: str, name: str, health_key: str, *options: str) -> Child:
    env = {**os.environ, "HCP_HOME": str(settings.home), "SENSE_REDIS_URL": url, "PYTHONUNBUFFERED": "1"}
    began: list[int] = []

    def ready() -> bool:
        """Say whether a reader finished a turn since the first time this was asked."""
        try:
            with connect(url, timeout_s=1) as client:
                began.append(redis_micros(client))
                return read_pulses(client, health_key).finished_at > began[0]
        except redis.RedisError:
            return False

    argv = (sys.executable, *WORKER, *options)
    return Child(name, argv, env, ready=ready, stop_timeout_s=WORKER_STOP_S)


def _claim_home(home: Path, held: ExitStack) -> None:
    """Hold the home against a second `up` for as long as `held` lasts. Raises Conflict naming the first."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = home / "up.lock"
    lock = claim(place)
    if lock is None:
        pid = holder(place)
        raise Conflict("HCP_HOME", f"`up` runs already on {home} (process {pid})", f"stop it with: kill {pid}")
    held.callback(os.close, lock)


def _ready_line(settings: Settings, told: str) -> str:
    readers = f"{settings.intake} reader{'s' if settings.intake > 1 else ''}"
    commands = ", one for commands" if settings.exec_intake else ""
    return (
        f"ready: {told}, one worker with {readers}{commands}, "
        f"ledger {masked(settings.database_url)}, home {settings.home}. "
        "Next: `sense-worker pack install PATH`, `sense-worker status`, `sense-worker health`; Ctrl-C stops everything"
    )


def _write(line: str) -> None:
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except (OSError, ValueError):
        return  # nobody reads the log any more, or its disk is full: the work goes on without it
