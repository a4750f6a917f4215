"""The bootstep of the Celery worker that keeps the nursery of its readers and its sweep alive (DESIGN §6.1)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from celery import bootsteps

from sense_worker.logs import log
from sense_worker.nursery import Restarts
from sense_worker.tether import tethered

NURSERY = "sense_worker.nursery"
STOP_S = 18.0
"""Longer than the nursery gives its children: what is left after this is killed, and its entries are taken over."""

STARTING = threading.Lock()
"""Held while a process is started, and by every fork of this one. A pool process that is forked in between keeps the
pipe on which Popen waits for the start: Popen then returns when that pool process ends, and nobody watches ours."""
os.register_at_fork(before=STARTING.acquire, after_in_parent=STARTING.release, after_in_child=STARTING.release)


class IntakeStep(bootsteps.StartStopStep):
    """Keeps the readers that `sense_children` names, by module and index, and one sweep running beside the pool."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **_: Any) -> None:
        super().__init__(parent)
        children = [*parent.app.conf.sense_children, ("sense_worker.schedule", 0)]
        self._keeper = _Keeper([f"{module}:{index}" for module, index in children])

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

    Its own thread starts it and lives on, because the kernel tells a child of the death of that thread (see `tether`).
    """

    def __init__(self, children: list[str]) -> None:
        self._children = children
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="nursery", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._process is not None:
            self._process.terminate()
        self._thread.join(STOP_S)
        if self._thread.is_alive() and self._process is not None:
            log().warning("process killed: it did not stop in time", process=NURSERY, seconds=STOP_S)
            self._process.kill()
            self._thread.join()

    def _keep(self) -> None:
        argv = [sys.executable, "-m", NURSERY, str(os.getpid()), *self._children]
        restarts = Restarts(NURSERY)
        while not self._stop.is_set():
            begun = time.monotonic()
            with STARTING:
                self._process = subprocess.Popen(tethered(argv, signal.SIGTERM), stdin=subprocess.DEVNULL)
            if self._stop.is_set():
                self._process.terminate()
            code = self._process.wait()
            if self._stop.is_set():
                return
            self._stop.wait(restarts.pause_s(code, time.monotonic() - begun))
