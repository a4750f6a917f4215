"""`check`: a policy tried before it is shipped, with no server, no database and no session."""

from __future__ import annotations

import sys
from json import dumps  # `json` is an option's name here
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime_core.errors import UsageError, printable
from sense_worker.cli import failures, render
from sense_worker.cli.values import Json, example

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sense_worker.scenario.packs import Listed
    from sense_worker.scenario.run import CaseResult

Files = Annotated[list[Path], typer.Argument(metavar="FILE…", help="Scenario files, YAML or JSON.")]


def register(app: typer.Typer, *, panel: str) -> None:
    """Add the commands, in the order of the help."""
    app.command(rich_help_panel=panel, epilog=example("check examples/packs/git/scenario.yaml"))(check)


def check(files: Files, *, json: Json = False) -> None:
    """Run scenario files through the real pipeline in memory; docs/scenarios.md teaches the form.

    Exit 0 when every case holds, 1 with a diff, 2 for a file that cannot be read.
    """
    checked = [_check(path) for path in files]
    if json:
        render.print_json({"ok": all(one["ok"] for one in checked), "files": checked})
    else:
        for one in checked:
            if "error" in one:
                sys.stderr.write(f"error: {one['error']}\n")
            else:
                render.print_lines(_told(one))
                for warning in one["warnings"]:
                    render.warn(warning)
    codes = [failures.MISUSED if "error" in one else 0 if one["ok"] else failures.FAILED for one in checked]
    if max(codes):
        raise typer.Exit(max(codes))


def _check(path: Path) -> dict[str, Any]:
    from sense_worker.scenario.doubts import doubts
    from sense_worker.scenario.read import load_file
    from sense_worker.scenario.run import run

    try:
        loaded = load_file(path)
        replaced: list[tuple[int, Listed]] = []
        results = run(loaded, path.parent, replaced)
        warnings = list(doubts(loaded, path.parent))
    except UsageError as error:
        return {"file": str(path), "ok": False, "error": str(error), "cases": []}
    refused = [_refused(one, f"packs[{at}]", None) for at, one in enumerate(loaded.listed) if one.error is not None]
    refused += [_refused(one, f"cases[{at}]", at) for at, one in replaced]
    cases = [_plain(one) for one in results]
    told = {"cases": cases, "packs_refused": refused, "warnings": warnings}
    return {"file": str(path), "ok": all(one["ok"] for one in cases), **told}


def _refused(one: Listed, place: str, case: int | None) -> dict[str, Any]:
    """Return a refused pack: its place in the file, and the index of its case where a `replace` step brought it."""
    return {"pack": one.pack_id, "refused": str(one.error), "place": place, "case": case}


def _plain(one: CaseResult) -> dict[str, Any]:
    decided = {name: step._asdict() for name, step in one.decided.items()}
    return {
        "name": one.name,
        "kind": one.kind,
        "ok": one.ok,
        "expected": dict(one.expected),
        "got": dict(one.got),
        "decided": decided,
    }


def _told(one: Mapping[str, Any]) -> Iterator[str]:
    cases: Sequence[Mapping[str, Any]] = one["cases"]
    for pack in one["packs_refused"]:
        name = pack["pack"] or pack["place"]
        if pack["case"] is None:
            yield f"      pack {name} is not installed: {pack['refused']}"
        else:
            yield f"      {pack['place']}: the pack {name} is not replaced, the one before stays: {pack['refused']}"
    for case in cases:
        yield f"{'ok  ' if case['ok'] else 'DIFF'}  {case['name']}"
        yield from _lines(case)
    held = sum(case["ok"] for case in cases)
    yield f"{one['file']}: {held} of {len(cases)} cases hold"


def _lines(case: Mapping[str, Any]) -> Iterable[str]:
    expected, got = case["expected"], case["got"]
    for name in [*got, *(name for name in expected if name not in got)]:
        decided = case["decided"].get(name)
        yield f"        {name}: {_shown(got, name)}{_by(decided)}"
        if not case["ok"] and not _same(case, name):
            yield f"          expected: {_shown(expected, name)}"


def _by(decided: Mapping[str, Any] | None) -> str:
    if decided is None:
        return ""
    clause = f" §{decided['clause']}" if decided["clause"] else ""
    detail = f": {decided['detail']}" if decided["detail"] else ""
    return f"  [{decided['step']}{clause}{detail}]"


def _same(case: Mapping[str, Any], name: str) -> bool:
    from sense_worker.scenario.run import holds

    expected, got = case["expected"], case["got"]
    if name not in expected:
        return case["kind"] not in ("sense", "again")
    return name in got and holds(expected[name], got[name])


def _shown(values: Mapping[str, Any], name: str) -> str:
    """Return a value as a scenario file writes it: text as it is, anything else as JSON."""
    if name not in values:
        return "nothing"
    value = values[name]
    return printable(value if isinstance(value, str) else dumps(value, ensure_ascii=False))
