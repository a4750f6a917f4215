"""The reader of requests: a child of the exec worker (DESIGN §8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sense_worker.exec.record import ExecRecorder
from sense_worker.exec.wire import stream_of_exec
from sense_worker.intake.child import read, run
from sense_worker.intake.health import EXEC_HEALTH_KEY
from sense_worker.intake.stream import StreamKind
from sense_worker.vault import Vault
from sense_worker.wiring import redis_client

if TYPE_CHECKING:
    from sense_worker.ports import Ports
    from sense_worker.settings import Settings

REQUESTS = StreamKind(stream_of_exec, "sense:reclaim:exec", EXEC_HEALTH_KEY)


def recorder(settings: Settings, ports: Ports) -> ExecRecorder:
    """Return the recorder of this process."""
    return ExecRecorder(ports, Vault.load(settings), redis_client(settings), settings.exec_result_s)


def main(index: int, parent: int) -> None:
    """Read the request streams."""
    read(index, parent, REQUESTS, recorder, "exec intake")


if __name__ == "__main__":
    run(main)
