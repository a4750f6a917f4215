"""What is probably a typing error in a scenario and no fault of its form: told of, never refused (DESIGN §10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime_core.errors import UsageError
from runtime_core.event import ANY_REF
from runtime_core.grants import ANY_PACK
from sense_worker.scenario.model import GrantRow, PackSource, StepCase
from sense_worker.scenario.packs import read_listed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runtime_core.pack import Pack
    from sense_worker.scenario.read import Loaded


def doubts(loaded: Loaded, folder: Path) -> Iterator[str]:
    """Yield a line for each refused pack of which nothing is expected, and each key or ref that no pack declares."""
    scenario = loaded.scenario
    for at, one in enumerate(loaded.listed):
        if one.error is not None and one.pack_id not in {*scenario.rejected, *scenario.lint}:
            yield f"{loaded.place} packs[{at}]{f' {one.pack_id}' if one.pack_id else ''} is not installed: {one.error}"
    triggers, declared = _declared(loaded, folder)
    refused = {one.pack_id for one in loaded.listed if one.error is not None}
    for place, row in _grants(loaded):
        if row.keys is None or row.pack in refused or (row.pack == ANY_PACK and refused):
            continue  # nobody can know what a refused pack declares
        known = set().union(*declared.values()) if row.pack == ANY_PACK else declared.get(row.pack, set())
        where = "any pack of this scenario" if row.pack == ANY_PACK else row.pack
        for key in row.keys:
            if key not in known:
                yield f"{loaded.place} {place}/keys: {key!r} is declared by no command or trigger of {where}"
    for name, route in scenario.routes.items():
        if route.pack not in refused and route.ref not in {ANY_REF, *triggers.get(route.pack, ())}:
            yield f"{loaded.place} /routes/{name}/ref: {route.ref!r} is declared by no trigger of {route.pack}"


def _grants(loaded: Loaded) -> Iterator[tuple[str, GrantRow]]:
    for at, row in enumerate(loaded.scenario.grants):
        yield f"/grants/{at}", row
    for at, case in enumerate(loaded.scenario.cases):
        if isinstance(case, StepCase) and case.step.grant is not None:
            yield f"/cases/{at}/step/grant", case.step.grant


def _declared(loaded: Loaded, folder: Path) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the triggers, and the commands and triggers, of each pack; those of its replacements too."""
    good: dict[str, Pack] = {one.pack.pack_id: one.pack for one in loaded.listed if one.pack is not None}
    packs = [*good.values()]
    for case in loaded.scenario.cases:
        if isinstance(case, StepCase) and isinstance(case.step.replace, PackSource):
            try:
                one = read_listed(case.step.replace, folder, good)
            except UsageError:
                continue
            packs += [] if one.pack is None else [one.pack]
    triggers: dict[str, set[str]] = {}
    declared: dict[str, set[str]] = {}
    for pack in packs:
        triggers.setdefault(pack.pack_id, set()).update(pack.triggers)
        declared.setdefault(pack.pack_id, set()).update(pack.manifest.verbs, pack.triggers)
    return triggers, declared
