"""`sink …`: where trigger events can go."""

from __future__ import annotations

from typing import Annotated

import typer

from sense_worker.cli import render
from sense_worker.cli.acting import operator
from sense_worker.cli.values import Json, Option, OptionsJson, SinkName, example, options

app = typer.Typer(no_args_is_help=True, help="Where trigger events can go.")


@app.command("add", epilog=example("sink add ana-log jsonl --option path=/var/log/ana.jsonl --audience principal:ana"))
def add_sink(
    name: SinkName,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="inbox, jsonl, console, memory, or a plugin's.")],
    *,
    option: Option = None,
    options_json: OptionsJson = None,
    audience: Annotated[
        str, typer.Option("--audience", help="Whose data it may hold: tenant, project:NAME or principal:NAME.")
    ] = "tenant",
    json: Json = False,
) -> None:
    """Add a sink to the tenant."""
    given = options(option or (), options_json)
    with operator() as acting:
        row = acting.add_sink(name, kind, options=given, audience=audience)
    render.print_row(row, f"sink {name}", as_json=json)


@app.command("list", epilog=example("sink list"))
def list_sinks(*, json: Json = False) -> None:
    """List the sinks of the tenant, with what keeps a kind from being used here."""
    with operator() as acting:
        rows = acting.list_sinks()
    columns = {"SINK": "name", "KIND": "kind", "AUDIENCE": "audience", "PAUSED": "paused_at", "DISABLED": "disabled_at"}
    columns |= {"FAULT": "fault"} if any(row.fault for row in rows) else {}
    render.print_table(rows, columns, as_json=json, empty="no sinks")


@app.command("pause", epilog=example("sink pause ana-log"))
def pause_sink(name: SinkName, *, json: Json = False) -> None:
    """Pause a sink: its deliveries are held, not lost and not denied."""
    with operator() as acting:
        row = acting.pause_sink(name)
    render.print_row(row, f"paused {name}", as_json=json)


@app.command("resume", epilog=example("sink resume ana-log"))
def resume_sink(name: SinkName, *, json: Json = False) -> None:
    """Resume a paused or disabled sink; held deliveries are attempted, authorized anew."""
    with operator() as acting:
        row = acting.resume_sink(name)
    render.print_row(row, f"resumed {name}", as_json=json)


@app.command("remove", epilog=example("sink remove ana-log"))
def remove_sink(name: SinkName, *, json: Json = False) -> None:
    """Remove a sink that no route names; its unfinished deliveries are held until one of that name exists again."""
    with operator() as acting:
        row = acting.remove_sink(name)
    render.print_row(row, f"removed {name}", as_json=json)
