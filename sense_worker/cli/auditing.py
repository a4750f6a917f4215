"""`audit tail|verify`: the chained record of every decision on this host (§9.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sense_worker.cli import render
from sense_worker.cli.acting import settings
from sense_worker.cli.failures import FAILED
from sense_worker.cli.values import Json, example

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

app = typer.Typer(no_args_is_help=True, help="The chained record of every decision on this host.")


@app.command(epilog=example("audit tail --lines 50"))
def tail(
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000, help="How many, the newest last.")] = 20,
    json: Json = False,
) -> None:
    """Show the newest lines of the audit; needs no session, only the right to read the file."""
    from runtime_core.audit_files import tail as newest

    loaded = settings()
    rows = newest(loaded.audit_file, lines) if loaded.home.is_dir() else []
    render.print_cards(rows, _head, _details, as_json=json, empty=f"{loaded.audit_file}: no lines yet")


@app.command(epilog=example("audit verify"))
def verify(*, json: Json = False) -> None:
    """Check the whole chain against its key and its anchors; tells torn from changed from cut. Exit 0 whole, 1 not."""
    from sense_worker.audit_check import check_audit

    row = render.plain(check_audit(settings()))
    if json:
        render.print_json(row)
    else:
        render.print_lines(_told(row))
    if not row["ok"]:
        raise typer.Exit(FAILED)


def _told(row: Mapping[str, Any]) -> Iterator[str]:
    verdict = "whole" if row["ok"] else "NOT whole"
    lines, anchors = _counted(row["lines"], "line"), _counted(row["anchors"], "anchor")
    yield f"{row['file']}: {verdict}: {row['verified']} of {lines} verified, {anchors}"
    for problem in row["problems"]:
        yield f"{problem['kind']}: {problem['file']} line {problem['line']}: {problem['text']}"
    if row["omitted"]:
        yield f"and {row['omitted']} more"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _head(line: Mapping[str, Any]) -> tuple[str, ...]:
    verdict = "ok" if line.get("ok") else "refused"
    at = render.cell(line, "at")[:19].replace("T", " ")
    return (at, verdict, *(render.cell(line, name) for name in ("action", "tenant", "principal", "key")))


def _details(line: Mapping[str, Any]) -> Iterator[str]:
    if line.get("subject"):
        yield render.cell(line, "subject")
    if line.get("reason"):
        yield render.cell(line, "reason")
