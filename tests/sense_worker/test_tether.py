"""What dies with its parent, on a real kernel."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from sense_worker.tether import tethered

PARENT = """
import subprocess, sys
from sense_worker.tether import tethered
child = subprocess.Popen(tethered(["sleep", "600"]), stdout=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels send no signal on a parent's death")
def test_a_child_dies_when_its_parent_is_killed() -> None:
    """SIGKILL of the parent ends the tethered child."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        watch = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    try:
        ended, _, _ = select.select([watch], [], [], 30)  # a pidfd is readable when its process has ended
    finally:
        os.close(watch)

    assert ended == [watch]


def test_the_exit_code_is_the_program_s() -> None:
    """The program takes the tether's place: its exit code, its standard streams."""
    done = subprocess.run(tethered(["sh", "-c", "echo out; exit 7"]), capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "")


def test_a_missing_program_is_named() -> None:
    """A program that cannot be started gives 127 and one line."""
    done = subprocess.run(tethered(["/nowhere/at-all"]), capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (127, "/nowhere/at-all: No such file or directory\n")
