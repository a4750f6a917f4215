"""`audit tail|verify`: the chained record of every decision on this host (§9.6)."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sense_worker.cli import render
from sense_worker.cli.acting import settings
from sense_worker.cli.failures import FAILED
from sense_worker.cli.values import Json, example

app = typer.Typer(no_args_is_help=True, help="The chained record of every decision on this host.")


@app.command(epilog=example("audit tail --lines 50"))
def tail(
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000, help="How many, the newest last.")] = 20,
    json: Json = False,
) -> None:
    """Show the newest lines of the audit; needs no session, only the right to read the file."""
    raise NotImplementedError((lines, json))


@app.command(epilog=example("audit verify"))
def verify(*, json: Json = False) -> None:
    """Check the whole chain and its anchors; tells torn from changed from cut. Exit 0 whole, 1 not."""
    row: Any = (settings(), json, FAILED, render)
    raise NotImplementedError(row)
