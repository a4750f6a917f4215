"""Every door takes whatever comes: 10,000 generated inputs each here, 1,000,000 each in the long tier.

Each door runs in a process of its own, so that a crash of a library written in C or Rust, a hang or a bomb names the
seed of its input instead of ending the tests. `python -m tests.fuzz DOOR SEED` runs that input again by itself.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.door import Door, run
from tests.fuzz.doors import MODULES, door_named

ROOT = Path(__file__).parents[2]
QUICK, LONG = 10_000, 1_000_000
HANG_S = 60
"""One input takes about a millisecond; this is no measure of speed but of a door that never answers."""
DOORS = pytest.mark.parametrize("name", MODULES)


class Hang(Exception):
    """An input that is judged for over HANG_S seconds."""


def fuzzed(name: str, count: int, progress: Path) -> dict[str, Any]:
    """Run inputs 0 to `count` through a door in a process of its own; fails with what it says of the first bad one."""
    progress.write_bytes(bytes(16))
    argv = [sys.executable, "-m", "tests.fuzz", name, "0", str(count)]
    env = {**os.environ, "SENSE_FUZZ_PROGRESS": str(progress), "TMPDIR": str(progress.parent)}
    with subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            told, wrong = _watched(child, progress)
        except Hang as hang:
            pytest.fail(f"{name}: {hang}; again: python -m tests.fuzz {name} {_at(progress)[1]}")
        finally:
            child.kill()
    if child.returncode:
        pytest.fail(f"{name}: exit {child.returncode} at seed {_at(progress)[1]}\n{wrong[-6000:]}")
    summary: dict[str, Any] = json.loads(told)
    sys.stdout.write(f"{told}\n")
    return summary


def _watched(child: subprocess.Popen[str], progress: Path) -> tuple[str, str]:
    seen = None
    while True:
        try:
            return child.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            if seen == (seen := _at(progress)):
                raise Hang(f"no answer within {HANG_S} s") from None


def _at(progress: Path) -> tuple[int, int]:
    """Return how many inputs were begun, and the seed of the last of them."""
    begun, seed = struct.unpack("=qq", progress.read_bytes())
    return begun, seed


def check_shares(name: str, summary: dict[str, Any], count: int) -> None:
    """A door that is only ever shown rubbish, or only good inputs, has not been tried."""
    outcomes = summary["outcomes"]
    accepted = sum(number for word, number in outcomes.items() if word in door_named(name).accepted)
    assert summary["inputs"] == count + len(door_named(name).known)
    assert accepted >= count / 50
    assert summary["inputs"] - accepted >= count / 50


@pytest.mark.spec("4.0.strict")
@DOORS
def test_a_door_survives_and_accepts_nothing_wrong(name: str, tmp_path: Path) -> None:
    """10,000 inputs end with no crash and no hang, and a naive second look agrees with all that is accepted."""
    check_shares(name, fuzzed(name, QUICK, tmp_path / "progress"), QUICK)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@DOORS
def test_a_door_survives_a_million(name: str, tmp_path: Path) -> None:
    """The same for 1,000,000 inputs."""
    check_shares(name, fuzzed(name, LONG, tmp_path / "progress"), LONG)


@DOORS
def test_a_seed_is_an_input(name: str) -> None:
    """The same seed makes the same input, whatever was made before: a failure can be run again by itself."""
    door = door_named(name)
    words = [run(door, range(5, 60))[0], *(run(door, range(seed, seed + 1))[0] for seed in range(5, 60))]
    assert words[0] == sum(words[1:], Counter())


def test_what_goes_wrong_is_told_with_its_seed() -> None:
    """A crash, an assertion and a panic each end the run at their seed, with the input."""

    class PanicException(BaseException):
        """What a Rust library raises."""

    for error in (KeyError("x"), AssertionError("accepted"), PanicException("panic"), RecursionError()):

        def judge(given: int, error: BaseException = error) -> str:
            if given % 7 == 3:
                raise error
            return "accepted"

        words, failure = run(Door("made", lambda rng: rng.randrange(100), judge), range(1, 1000))
        assert failure is not None
        assert words.total() == failure.seed - 1
        assert (int(failure.given) % 7, type(error).__name__ in failure.text) == (3, True)


def test_a_process_that_stands_still_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A door that does not answer is ended, and its seed named."""
    monkeypatch.setattr("tests.fuzz.test_fuzz.HANG_S", 0.2)
    progress = tmp_path / "progress"
    progress.write_bytes(struct.pack("=qq", 8, 7))
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        with pytest.raises(Hang):
            _watched(child, progress)
        child.kill()
