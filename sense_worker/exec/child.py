"""The reader of requests: a child of the exec worker (DESIGN §8)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from runtime_core.errors import LedgerBusy
from sense_worker.exec.engine import LOOK_S
from sense_worker.exec.process import build_engine, relaxed_database
from sense_worker.exec.record import ExecRecorder
from sense_worker.exec.wire import stream_of_exec
from sense_worker.intake.child import read
from sense_worker.intake.health import EXEC_HEALTH_KEY
from sense_worker.intake.stream import StreamKind
from sense_worker.logs import log
from sense_worker.vault import Vault
from sense_worker.wiring import redis_client

if TYPE_CHECKING:
    from sense_worker.ports import Ports
    from sense_worker.settings import Settings

STOP_S = 12.0
"""A reader has 15 s to stop."""
SETTLE_S = 0.05
"""How long an answered read waits to be settled together with others: a dozen of a client that asks without a pause."""
REQUESTS = StreamKind(stream_of_exec, "sense:reclaim:exec", EXEC_HEALTH_KEY)


class Reading:
    """The recorder of this process, with an engine for the reads that start here."""

    def __init__(self, settings: Settings, ports: Ports) -> None:
        vault = Vault.load(settings)
        self._engine = build_engine(settings, ports, vault, SETTLE_S)
        recorder = ExecRecorder(
            ports, relaxed_database(settings), vault, redis_client(settings), settings.exec_result_s, self._engine
        )
        self.record, self.bury = recorder.record, recorder.bury
        self._stop = threading.Event()
        self._owner = threading.Thread(target=self._own, name="exec-engine", daemon=True)
        self._owner.start()

    def close(self) -> None:
        """Let what runs end, as far as the stop's time goes; the rest is left to its lease."""
        self._stop.set()
        self._owner.join(STOP_S)

    def _own(self) -> None:
        while self._engine.busy or not self._stop.is_set():
            try:
                self._engine.settle(self._engine.hear(LOOK_S), None)
                if self._engine.busy:
                    self._engine.tend()
            except (LedgerBusy, RedisError) as error:
                # What the database did not take for a lease's time runs again, or is told as unknown.
                log().warning("requests not settled", error=f"{type(error).__name__}: {error}")


def main(index: int, parent: int) -> None:
    """Read the request streams."""
    read(index, parent, REQUESTS, Reading, "exec intake")
