"""The exec worker, and its reader, with a wrap adapter that does nothing: the way to it and back is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runtime_core.runtime import Ran
from sense_worker import app
from sense_worker.exec import child, process
from sense_worker.settings import Settings

if TYPE_CHECKING:
    from runtime_core.execution import Call
    from runtime_core.runtime import Runtime

build_runtime = process.build_runtime


class Nothing:
    """Answers at once."""

    def run(self, call: Call, runtime: Runtime) -> Ran:
        """Answer the command's own args."""
        del runtime
        return Ran(call.facts.envelope.own_args)


def with_nothing(*args: Any, **options: Any) -> Runtime:
    """Return the worker's own runtime, but for the adapter."""
    runtime = build_runtime(*args, **options)
    return runtime._replace(adapters={**runtime.adapters, "wrap": Nothing()})


def main(index: int, parent: int) -> None:
    """Read the request streams, with this adapter."""
    process.build_runtime = with_nothing
    child.main(index, parent)


if __name__ == "__main__":
    process.build_runtime = with_nothing
    app.EXEC_READER = "benchmarks.exec_worker"
    app.run_worker(Settings.load(), commands=True)
