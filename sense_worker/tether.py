"""Start a program so that it does not outlive its parent, also when the parent is killed with SIGKILL.

Linux tells a process of its parent's death by a signal it asks for (prctl PR_SET_PDEATHSIG). `preexec_fn` would ask
in the forked child, where a threaded parent can deadlock; so this file is run as a program that asks and then becomes
the wanted one. It imports nothing of the project: it starts in about 20 ms. Elsewhere than on Linux it only starts.

The signal follows the *thread* that started the child: start tethered children from a thread that lives on.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_ARGUMENTS = "usage: tether.py SIGNAL PARENT_PID PROGRAM [ARGUMENT...]"


def tethered(argv: Sequence[str], on_death: signal.Signals = signal.SIGKILL) -> list[str]:
    """Return the argv that runs `argv` as a child of this process and sends it `on_death` when this process ends."""
    return [sys.executable, "-I", "-S", __file__, str(int(on_death)), str(os.getpid()), *argv]


def die_with_parent(on_death: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process `on_death` when the thread that started it ends; no effect off Linux."""
    if sys.platform != "linux":
        return
    import ctypes  # 8 ms that only Linux needs

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, on_death, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def main(arguments: Sequence[str]) -> int:
    """Become the program; answers 127 where it cannot be started, 128 + signal where the parent is gone already."""
    try:
        on_death, parent, program = int(arguments[0]), int(arguments[1]), arguments[2]
    except (IndexError, ValueError):
        sys.stderr.write(f"{_ARGUMENTS}\n")
        return 2
    die_with_parent(on_death)
    if os.getppid() != parent:
        return 128 + on_death
    try:
        os.execvp(program, list(arguments[2:]))  # noqa: S606 - argv by argv, no shell
    except OSError as error:
        sys.stderr.write(f"{program}: {error.strerror}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
