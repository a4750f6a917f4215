"""CPU time of process trees, from /proc: user and system, children that ended included."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def tree(root: int) -> list[int]:
    """Return the process and all that descend from it now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = _stat(int(entry.name))
            if stat:
                children.setdefault(int(stat[1]), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def seconds(root: int) -> float:
    """Return the CPU seconds of a process tree so far."""
    total = 0.0
    for pid in tree(root):
        stat = _stat(pid)
        if stat:
            total += sum(int(stat[at]) for at in (11, 12, 13, 14)) / TICKS
    return total


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on, so that index 1 is the parent; empty when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
