"""The pipeline agrees with the oracle, text for text, on random worlds."""

from __future__ import annotations

import json

import pytest

from runtime_core import errors, pipeline
from tests.oracle.agreement import compare, shrink
from tests.oracle.worlds import world

WORLDS = 2_000
DECISIONS = 100_000
EVERYTHING = ("sense", "install", "step", "exec", "available")


def told(seed: int, kinds: tuple[str, ...]) -> str:
    """Return the smallest part of a world that shows the difference, and both answers."""
    small = shrink(world(seed, kinds=kinds))
    return f"seed {seed}: {compare(small)[0]}\n{json.dumps(small, indent=1)}"


@pytest.mark.spec("9.5.order", "9.5.no-skip", "9.4.4", "4.3.personal", "4.3.brain", "4.3.local")
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in (1, 2, 3))])
def test_the_pipeline_decides_as_the_oracle(part: int) -> None:
    """A hundred thousand decisions over two thousand worlds, a quarter each time, agree in text and outcome."""
    decisions = 0
    for seed in range(part, WORLDS, 4):
        differences, compared = compare(world(seed))
        assert not differences, told(seed, ("sense", "install", "step"))
        decisions += compared
    assert decisions >= DECISIONS // 4


@pytest.mark.spec("9.5.order", "9.5.no-skip", "9.4.3", "9.8.mothership", "4.5.2", "4.5.3")
def test_commands_are_decided_as_by_the_oracle() -> None:
    """Commands, installs and reports agree with the oracle in text, order, `minted` and `ran`."""
    for seed in range(WORLDS, WORLDS + 150):
        differences, _ = compare(world(seed, kinds=EVERYTHING))
        assert not differences, told(seed, EVERYTHING)


def test_a_difference_is_shrunk_to_what_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that forgets one gate is found out, and the world that shows it has a handful of rows."""
    gates = tuple(gate for gate in pipeline.SENSE_GATES if gate is not pipeline.require_land)
    monkeypatch.setattr(pipeline, "SENSE_GATES", gates)

    seed = next(seed for seed in range(200) if compare(world(seed))[0])
    small = shrink(world(seed))

    assert compare(small)[0]
    assert len(small["cases"]) <= 3
    assert len(small["routes"]) == 1
    texts = json.dumps(compare(small)[0])
    assert any(one.template in texts for one in (errors.LAND_PERSONAL, errors.LAND_LOCAL, errors.SINK_OUTSIDE_PROJECT))
