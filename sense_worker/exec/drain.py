"""ExecDrain: claim → run → answer → settle, until a lane is empty (DESIGN §8)."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sense_worker.exec.engine import LOOK_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sense_worker.doorbell import Doorbell
    from sense_worker.exec.engine import Engine

TURN_S = 5.0
"""A drain gives its Celery slot back after this long and what runs then, so that a stop is prompt."""


class ExecDrain:
    """Drains exec lanes in this process, one at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, lane: str, bell: Doorbell, linger_s: float) -> None:
        """Drain a lane until it is empty and no ring comes for `linger_s`, or its turn is over.

        Raises LedgerBusy and RedisError: what was claimed is taken over when its lease runs out.
        """
        engine = self._engine
        bell.start(lane)
        ends = time.monotonic() + TURN_S
        with _listening(bell, lane, engine):
            engine.call()
            while True:
                heard = engine.hear(LOOK_S if engine.busy else linger_s)
                claiming = time.monotonic() < ends
                if heard:
                    engine.settle(heard, lane if claiming else None)
                if engine.busy:
                    if engine.tend():
                        bell.at_work(lane)
                elif not claiming:
                    break
                elif not heard:
                    if not bell.stop(lane):
                        return
                    bell.start(lane)
                    engine.call()
        bell.stop(lane)
        bell.ring([lane])

    def finish(self) -> None:
        """Nothing is left to wait for: `run` ends with the last command it began."""


@contextmanager
def _listening(bell: Doorbell, lane: str, engine: Engine) -> Iterator[None]:
    """Let the engine hear the lane's rings while the block runs."""
    stop = threading.Event()

    def listen() -> None:
        while not stop.is_set():
            if bell.wait(lane, LOOK_S):
                engine.call()

    thread = threading.Thread(target=listen, name="exec-bell", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
