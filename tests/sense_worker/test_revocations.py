"""Whatever is withdrawn, at whichever step of the pipeline: nothing is delivered later than DESIGN §6.4 allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from runtime_core.pipeline import SENSE_STEPS
from sense_worker.audit_check import check_audit
from tests.sense_worker.probe import EFFECT, Probe, effects_after
from tests.sense_worker.revoking import KINDS, PATHS, Road, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database

STEPS = [step.__name__ for step in SENSE_STEPS]


@pytest.fixture
def road(tmp_path: Path, database: Database, monkeypatch) -> Iterator[Road]:
    """The pipeline with a probe at every step, on both databases."""
    road = Road(tmp_path, database, monkeypatch)
    yield road
    road.close()


def steps(road: Road, path: str, *, late: bool) -> list[str]:
    """Return every step that an event passes on a path where nothing is withdrawn; it is delivered."""
    stage = road.stage(path)
    probe = Probe(road.until_it_waits, None, bool)
    stage.run(probe, late=late)
    assert stage.ending() == "delivered"
    return list(dict.fromkeys(probe.reached))


def withdraw(road: Road, path: str, kind: str, step: str, *, late: bool) -> None:
    """Let something be withdrawn at a step, and check all that follows from it."""
    stage, what = road.stage(path), KINDS[kind]
    probe = Probe(road.until_it_waits, step, lambda: what.act(stage))
    stage.run(probe, late=late)
    assert step in probe.reached

    assert effects_after(probe.trace, by_clock=what.action is None) == []
    names = [name for name, _ in probe.trace]
    wanted = 2 if path == "far again" else 1
    expected = {"delivered"} if names.count(EFFECT) == wanted else what.endings
    assert stage.ending() in expected
    check_audit_of(stage, what.action)

    again = Probe(road.until_it_waits, None, bool)
    stage.run(again, late=late)
    assert EFFECT not in [name for name, _ in again.trace]


def check_audit_of(stage: Stage, action: str | None) -> None:
    """The audit says what the ledger says: a delivery once, a denial with its text, the operator's change once."""
    lines, ending = stage.delivered_lines(), stage.ending()
    refused = [line["reason"] for line in stage.lines() if line["action"] == "sense.refuse"]
    assert refused == ([ending] if ending.startswith("refused: ") else [])
    last: list[tuple[bool, str | None]] = (
        [] if refused or ending in ("cancelled", "held", "none") else [(False, ending)]
    )
    last = [(True, None)] if ending == "delivered" else last
    first = [(False, "busy")] if stage.path == "far again" else []
    assert lines in ([*first, *last], last)
    changes = [(line["action"], line["ok"]) for line in stage.lines() if not line["action"].startswith("sense.")]
    assert changes == ([] if action is None else [(action, True)])


@pytest.mark.spec("9.5.no-skip")
@pytest.mark.spec("9.5.order")
def test_every_step_can_be_met_by_a_revocation(road):
    """An event's way has all of SENSE_STEPS in their order, at arrival or after a claim, and the stages around them."""
    seen = {(path, late): steps(road, path, late=late) for path in PATHS for late in (False, True)}

    for path, phase in (("near", "arrival"), ("far", "claim"), ("inbox later", "claim")):
        walked = [place.partition(": ")[2] for place in seen[path, False] if place.startswith(f"{phase}: ")]
        assert [step for step in walked if step in STEPS[:6]] == STEPS[:6]
    assert {"hand-over: deliver", "hand-over: audit", "hand-over: settle"} <= set(seen["far", False])
    assert "hand-over: read versions again" in seen["far", True]
    assert "hand-over: read versions again" not in seen["inbox", True]
    assert {"arrival: admit", "arrival: write", "arrival: commit"} <= set(seen["inbox", False])


@pytest.mark.spec("9.4.4")
@pytest.mark.spec("9.5.no-skip")
@pytest.mark.spec("9.6.3")
@pytest.mark.case("C15")
@pytest.mark.timeout(300)
def test_nothing_reaches_a_sink_after_it_was_withdrawn(road):
    """Any kind, at any step, to any kind of sink, in time or late: the rule, the ending and the audit hold."""
    known = {(path, late): steps(road, path, late=late) for path in PATHS for late in (False, True)}

    @settings(
        max_examples=20 if road.database.kind == "sqlite" else 8,
        deadline=None,
        phases=[Phase.reuse, Phase.generate],  # a case is four words: there is nothing to shrink
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.sampled_from(PATHS), st.sampled_from(sorted(KINDS)), st.booleans(), st.data())
    def holds(path: str, kind: str, late: bool, data: st.DataObject) -> None:
        withdraw(road, path, kind, data.draw(st.sampled_from(known[path, late]), "step"), late=late)

    holds()
    assert check_audit(road.bench.settings).problems == ()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.spec("9.5.no-skip")
@pytest.mark.parametrize("path", PATHS)
def test_nothing_reaches_a_sink_after_it_was_withdrawn_at_any_step_at_all(road, path):
    """The same, for every kind at every step: nothing is left to chance."""
    for late in (False, True):
        for step in steps(road, path, late=late):
            for kind in KINDS:
                withdraw(road, path, kind, step, late=late)
    assert check_audit(road.bench.settings).problems == ()
