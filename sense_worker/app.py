"""The Celery app: doorbells, a pool, and the call of hosts that run Celery; the truth is in the ledger (DESIGN §6.4).

Messages are acknowledged early: on the Redis broker a late acknowledgement kills the worker when the connection drops
(Celery 5.7.0 with kombu 5.7.0), and a lost doorbell costs one sweep. Nothing is ever sent with a countdown or ETA.
"""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

from celery import Celery, signals

from sense_worker.exec.calls import Calls
from sense_worker.exec.celery_call import CALL_QUEUE, CALL_TASK
from sense_worker.exec.process import exec_drain
from sense_worker.exec.record import LANES
from sense_worker.home import OPENING_FOLDER, sink_kinds
from sense_worker.intake.step import IntakeStep
from sense_worker.logs import configure, log
from sense_worker.nursery import Forked
from sense_worker.opening import Marks
from sense_worker.wiring import PoolProcess, delivery_drain

if TYPE_CHECKING:
    from collections.abc import Callable

    from sense_worker.settings import Settings

DRAIN = "sense_worker.drain"
QUEUE = "sense.drain"
EXEC_DRAIN = "sense_worker.exec_drain"
EXEC_QUEUE = "sense.exec"
EXEC_SLOTS = 3
"""Processes of the exec worker's pool: one for each lane, and one for whoever waits through Celery."""
READER = "sense_worker.intake.child"
EXEC_READER = "sense_worker.exec.child"
SWEEP = "sense_worker.schedule:0"
VISIBILITY_S = 3_600
"""Of the broker's unacknowledged messages; with early acknowledgement they stay there for milliseconds."""


def make_app(settings: Settings) -> Celery:
    """Return the app for these settings; it connects to nothing until it is used."""
    app = Celery("sense_worker", broker=settings.broker_url, set_as_current=False)
    app.conf.update(
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_acks_late=False,
        task_serializer="json",
        accept_content=["json"],
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={"visibility_timeout": VISIBILITY_S, "socket_keepalive": True},
        # Of CALL_TASK alone: nobody waits for a doorbell.
        result_backend=settings.broker_url,
        result_serializer="json",
        result_expires=settings.exec_result_s,
        sense_settings=settings,
    )
    process = PoolProcess(settings, send_drain(app), delivery_drain)
    exec_process = PoolProcess(settings, send_drain(app), exec_drain)
    calls = Calls(settings, send_drain(app))
    for one in (process, exec_process):
        # billiard ends a child without joining its threads.
        signals.worker_process_shutdown.connect(lambda one=one, **_: one.finish(), weak=False)

    @app.task(name=DRAIN, ignore_result=True)
    def drain(lane: str) -> None:
        process.run(lane)

    @app.task(name=EXEC_DRAIN, ignore_result=True)
    def drain_requests(lane: str) -> None:
        exec_process.run(lane)

    @app.task(name=CALL_TASK, ignore_result=False)
    def call(**kwargs: Any) -> str | None:
        return calls.run(kwargs)

    return app


def send_drain(app: Celery) -> Callable[[str], Any]:
    """Return the function that sends the doorbell's message for a lane."""

    def send(lane: str) -> Any:
        task, queue = (EXEC_DRAIN, EXEC_QUEUE) if lane in LANES.values() else (DRAIN, QUEUE)
        return app.send_task(task, (lane,), queue=queue, ignore_result=True, retry=False)

    return send


def run_worker(settings: Settings, *, commands: bool = False) -> None:
    """Run a Celery worker with its intake processes until SIGTERM; returns after an orderly stop.

    One for events, or with `commands` one for requests: its own readers, queue and pool, so that events never hold a
    command up (DESIGN §8).
    """
    configure(settings)
    reader, count = (EXEC_READER, settings.exec_intake) if commands else (READER, settings.intake)
    children = [*(f"{reader}:{index}" for index in range(count)), SWEEP]
    nursery = Forked(children)  # before a sink's package is loaded, which may start a thread
    if not commands:
        Marks(settings.home / OPENING_FOLDER).forget()
    for fault in sink_kinds(settings, fresh=True).faults:
        log().warning("sink plugin left out", fault=str(fault))
    app = make_app(settings)
    app.conf.update(sense_children=children, sense_nursery=nursery)
    app.steps["worker"].add(IntakeStep)
    signals.setup_logging.connect(lambda **_: configure(settings), weak=False)
    # Its warning about root is of messages that run code; ours are JSON and name a lane.
    warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")
    # The pool collects garbage before each process that it forks: 35 ms of CPU over what is loaded, and stays.
    gc.freeze()
    # As its command line does, which loads a terminal's toolkit for its shell first (0.2 s of CPU).
    app.Worker(
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        queues=[EXEC_QUEUE, CALL_QUEUE] if commands else [QUEUE],
        concurrency=EXEC_SLOTS if commands else settings.concurrency,
        loglevel=settings.log_level.upper(),
    ).start()
