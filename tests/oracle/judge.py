"""The oracle: a second, naive reading of the chapters and of DESIGN §3 to §8 and §10. It imports nothing it judges."""

from typing import Any

from tests.oracle.execute import available, execute, install
from tests.oracle.sense import again, announce
from tests.oracle.state import apply_step, begin


def expected(scenario: dict[str, Any]) -> list[dict[str, Any]]:
    """What each case of a scenario must show, in order.

    sense, again: `{route: outcome}`, `{"refused": WORD}` or `{"repeat": True}`; exec: ok, error, minted, ran, steps;
    install: ok, error; available: its report; step: `{}`. An error that ends in `…` is a beginning.
    """
    state = begin(scenario)
    results: list[dict[str, Any]] = []
    for number, case in enumerate(scenario["cases"]):
        name = case.get("name", f"case {number}")
        if "sense" in case:
            results.append(announce(state, name, case["sense"]))
        elif "again" in case:
            results.append(again(state, case["again"]))
        elif "exec" in case:
            results.append(execute(state, case["exec"]))
        elif "install" in case:
            results.append(install(state, case["install"]))
        elif "available" in case:
            results.append(available(state, case["available"]))
        else:
            apply_step(state, case["step"])
            results.append({})
    return results


def expected_packs(scenario: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """For each pack of the scenario by id: state (installed, surface, policy or lint) and the set of lint kinds."""
    offered = begin(scenario)["offered"]
    return {pack_id: {"state": pack["state"], "kinds": pack["kinds"]} for pack_id, pack in offered.items()}
