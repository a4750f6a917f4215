"""Run a world through the product and the oracle, and shrink a world on which they differ."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import strategies as st

from sense_worker.scenario.read import load
from sense_worker.scenario.run import holds, run
from tests.oracle.judge import expected, expected_packs

Difference = tuple[str, Any, Any]
"""A case's name, what the oracle expects, what the product gave."""

_ROWS = ("cases", "grants")
_NAMED = ("routes",)


def compare(world: dict[str, Any]) -> tuple[list[Difference], int]:
    """Return the differences, and how many decisions were compared: one a route, one for any other answer."""
    wanted = expected(world)
    told = {**world, "cases": [_telling(case, want) for case, want in zip(world["cases"], wanted, strict=True)]}
    loaded = load(told, "world", Path())
    results = [one for one in run(loaded, Path()) if one.kind != "pack"]
    answers = [want for case, want in zip(world["cases"], wanted, strict=True) if "step" not in case]
    differences: list[Difference] = []
    decisions = 0
    for one, want in zip(results, answers, strict=True):
        routes = one.kind in {"sense", "again"}
        decisions += len(want) if routes else 1
        same = want.keys() == one.got.keys() if routes else want.keys() <= one.got.keys()
        if not same or not holds(want, one.got):
            differences.append((one.name, want, dict(one.got)))
    return differences + _pack_differences(world, loaded), decisions


def shrink(world: dict[str, Any]) -> dict[str, Any]:
    """Return the smallest part of a world, by its cases, grants and routes, on which product and oracle differ."""
    sizes = [len(world[name]) for name in (*_ROWS, *_NAMED)]
    kept = st.tuples(*(st.sets(st.integers(0, size - 1), max_size=size) if size else st.just(set()) for size in sizes))
    whole = tuple(set(range(size)) for size in sizes)

    def differs(chosen: Any) -> bool:
        part = _part(world, chosen)
        try:
            return bool(compare(part)[0])
        except Exception:  # noqa: BLE001 - a part that is no scenario (a revoke without its grant) shows nothing
            return False

    # No deadline: on a busy machine an example that is slow once would be told in the place of the difference.
    settings = hypothesis.settings(max_examples=2_000, derandomize=True, database=None, deadline=None)
    try:
        return _part(world, hypothesis.find(kept, differs, settings=settings))
    except hypothesis.errors.NoSuchExample:
        return _part(world, _one_by_one(whole, differs))


def _one_by_one(chosen: tuple[set[int], ...], differs: Any) -> tuple[set[int], ...]:
    """Leave out row after row while the difference stays: for what no random part showed."""
    for part in chosen:
        for index in sorted(part, reverse=True):
            part.discard(index)
            if not differs(chosen):
                part.add(index)
    return chosen


def _part(world: dict[str, Any], chosen: Any) -> dict[str, Any]:
    part = copy.deepcopy(world)
    for name, indices in zip((*_ROWS, *_NAMED), chosen, strict=True):
        rows = world[name]
        if name in _ROWS:
            part[name] = [rows[index] for index in sorted(indices)]
        else:
            names = list(rows)
            part[name] = {names[index]: rows[names[index]] for index in sorted(indices)}
    return part


def _telling(case: dict[str, Any], want: dict[str, Any]) -> dict[str, Any]:
    return case if "step" in case else {**case, "expect": want}


def _pack_differences(world: dict[str, Any], loaded: Any) -> list[Difference]:
    want = {name: (one["state"], set(one["kinds"])) for name, one in expected_packs(world).items()}
    got = {one.pack_id: (one.state or "installed", set(one.kinds)) for one in loaded.listed}
    return [(f"pack {name}", want[name], got.get(name)) for name in want if want[name] != got.get(name)]
