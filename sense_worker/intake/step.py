"""The bootstep of the Celery worker that keeps the nursery of its readers and its sweep alive (DESIGN §6.1)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from celery import bootsteps

from sense_worker.logs import log
from sense_worker.nursery import Restarts
from sense_worker.tether import tethered

if TYPE_CHECKING:
    from sense_worker.nursery import Forked

NURSERY = "sense_worker.nursery"
STOP_S = 18.0
"""Longer than the nursery gives its children: what is left after this is killed, and its entries are taken over."""

STARTING = threading.Lock()
"""Held while a process is started, and by every fork of this one. A pool process that is forked in between keeps the
pipe on which Popen waits for the start: Popen then returns when that pool process ends, and nobody watches ours."""
os.register_at_fork(before=STARTING.acquire, after_in_parent=STARTING.release, after_in_child=STARTING.release)


class IntakeStep(bootsteps.StartStopStep):
    """Keeps the nursery of `sense_children` running beside the pool; `sense_nursery` is the first one, which waits."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **_: Any) -> None:
        super().__init__(parent)
        self._keeper = _Keeper(parent.app.conf.sense_children, parent.app.conf.sense_nursery)

    def start(self, parent: Any) -> None:  # noqa: ARG002 - the bootstep's signature
        """Start their nursery, in the care of a thread that lives as long as it is wanted."""
        self._keeper.start()

    def stop(self, parent: Any) -> None:  # noqa: ARG002 - the bootstep's signature
        """End them in order."""
        self._keeper.stop()

    def terminate(self, parent: Any) -> None:
        """End them the same way when the worker is told to hurry: a batch at hand takes milliseconds."""
        self.stop(parent)


class _Keeper:
    """Keeps the nursery of these children alive: started again whenever it ends, after a pause that doubles.

    The first was forked before the pool was. Its own thread starts the others and lives on, because the kernel tells a
    child of the death of that thread (see `tether`).
    """

    def __init__(self, children: list[str], first: Forked) -> None:
        self._children = children
        self._stop = threading.Event()
        self._process: Forked | subprocess.Popen[bytes] = first
        self._first = first
        self._thread = threading.Thread(target=self._keep, name="nursery", daemon=True)

    def start(self) -> None:
        self._first.begin()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._process.terminate()
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            log().warning("process killed: it did not stop in time", process=NURSERY, seconds=STOP_S)
            self._process.kill()
            self._thread.join()

    def _keep(self) -> None:
        argv = [sys.executable, "-m", NURSERY, str(os.getpid()), *self._children]
        restarts = Restarts(NURSERY)
        while True:
            begun = time.monotonic()
            code = self._process.wait()
            if self._stop.is_set():
                return
            self._stop.wait(restarts.pause_s(code, time.monotonic() - begun))
            if self._stop.is_set():
                return
            with STARTING:
                self._process = subprocess.Popen(tethered(argv, signal.SIGTERM), stdin=subprocess.DEVNULL)
            if self._stop.is_set():
                self._process.terminate()
