"""`sense-worker check`: what a thousand cases take beyond its start, which one case shows."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

SCENARIO = Path("examples/packs/git/scenario.yaml")
CASES = 1_000


def run(rounds: int) -> dict[str, Any]:
    """Return seconds of one case and of CASES cases, wall and CPU: the git pack's own scenario, over and over."""
    with tempfile.TemporaryDirectory() as folder:
        few, many = (_written(Path(folder), count) for count in (1, CASES))
        each = [{"one": _checked(few), "many": _checked(many)} for _ in range(rounds)]
    beyond = {
        what: round(statistics.median(one["many"][what] - one["one"][what] for one in each), 2)
        for what in ("wall_s", "cpu_s")
    }
    return {"cases": CASES, "rounds": each, "beyond_start": beyond}


def told(found: dict[str, Any]) -> Iterator[str]:
    """Return the result as lines for people."""
    start = statistics.median(one["one"]["wall_s"] for one in found["rounds"])
    beyond = found["beyond_start"]
    times = f"{beyond['wall_s']:g} s beyond a start of {start:g} s (CPU {beyond['cpu_s']:g} s)"
    yield f"check, {found['cases']:,} cases: {times}"


def _written(folder: Path, count: int) -> Path:
    scenario = yaml.safe_load(SCENARIO.read_text())
    cases = scenario["cases"]
    scenario["packs"] = [str(SCENARIO.parent.resolve())]
    scenario["cases"] = [cases[at % len(cases)] | {"name": f"case {at}"} for at in range(count)]
    file = folder / f"{count}.yaml"
    file.write_text(yaml.safe_dump(scenario, sort_keys=False))
    return file


def _checked(file: Path) -> dict[str, float]:
    before, begun = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "sense_worker.cli.main", "check", str(file)], check=True, capture_output=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"wall_s": round(time.perf_counter() - begun, 2), "cpu_s": round(cpu, 2)}
