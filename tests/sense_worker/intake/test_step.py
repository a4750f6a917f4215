"""The keeper of the processes beside the pool."""

from __future__ import annotations

import os
import subprocess
import sys

RACE = """
import os, subprocess, sys, threading, time
from sense_worker.intake import step

ends = time.monotonic() + 1.5

def keep():
    while time.monotonic() < ends:
        with step.STARTING:
            process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
        process.kill()
        process.wait()

keepers = [threading.Thread(target=keep) for _ in range(4)]
for keeper in keepers:
    keeper.start()
forked = []
while time.monotonic() < ends:
    forked.append(os.fork())
    if not forked[-1]:
        time.sleep(60)
        os._exit(0)
    time.sleep(0.005)
time.sleep(1)
print("stuck" if any(keeper.is_alive() for keeper in keepers) else "free")
for pid in forked:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
for keeper in keepers:
    keeper.join()
"""


def test_a_pool_process_forked_meanwhile_does_not_hold_a_keeper():
    """A fork between the pipe and the exec of a start would hold Popen for as long as the forked process lives."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", RACE], env=env, capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.splitlines() == ["free"]
