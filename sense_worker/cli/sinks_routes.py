"""`sink …` and `route …`: where trigger events can go, and who wants which of them there."""

from __future__ import annotations

from typing import Annotated

import typer

from sense_worker.cli import render
from sense_worker.cli.acting import operator
from sense_worker.cli.values import Expires, Json, Project, example, optional_duration, options

sink = typer.Typer(no_args_is_help=True, help="Where trigger events can go.")
route = typer.Typer(no_args_is_help=True, help="Which trigger events a principal wants in which sink.")

SinkName = Annotated[str, typer.Argument(metavar="SINK")]
Option = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="A text; NAME:=JSON for a number, true, a list. Repeatable."),
]
OptionsJson = Annotated[
    str | None, typer.Option("--options-json", metavar="JSON", help="All options as one object, @FILE, or - for stdin.")
]


@sink.command("add", epilog=example("sink add ana-log jsonl --option path=/var/log/ana.jsonl --audience principal:ana"))
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


@sink.command("list", epilog=example("sink list"))
def list_sinks(*, json: Json = False) -> None:
    """List the sinks of the tenant, with what keeps a kind from being used here."""
    with operator() as acting:
        rows = acting.list_sinks()
    columns = {"SINK": "name", "KIND": "kind", "AUDIENCE": "audience", "PAUSED": "paused_at", "DISABLED": "disabled_at"}
    columns |= {"FAULT": "fault"} if any(row.fault for row in rows) else {}
    render.print_table(rows, columns, as_json=json, empty="no sinks")


@sink.command("pause", epilog=example("sink pause ana-log"))
def pause_sink(name: SinkName, *, json: Json = False) -> None:
    """Pause a sink: its deliveries are held, not lost and not denied."""
    with operator() as acting:
        row = acting.pause_sink(name)
    render.print_row(row, f"paused {name}", as_json=json)


@sink.command("resume", epilog=example("sink resume ana-log"))
def resume_sink(name: SinkName, *, json: Json = False) -> None:
    """Resume a paused or disabled sink; held deliveries are attempted, authorized anew."""
    with operator() as acting:
        row = acting.resume_sink(name)
    render.print_row(row, f"resumed {name}", as_json=json)


@sink.command("remove", epilog=example("sink remove ana-log"))
def remove_sink(name: SinkName, *, json: Json = False) -> None:
    """Remove a sink that no route names; its unfinished deliveries are held until one of that name exists again."""
    with operator() as acting:
        row = acting.remove_sink(name)
    render.print_row(row, f"removed {name}", as_json=json)


@route.command("add", epilog=example("route add git commit.created inbox"))
def add_route(
    pack: Annotated[str, typer.Argument(metavar="PACK")],
    ref: Annotated[str, typer.Argument(metavar="REF", help="A trigger of the pack, or * for all.")],
    sink_name: SinkName,
    *,
    project: Project = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="PRINCIPAL", help="An operator may make it for another.")
    ] = None,
    option: Option = None,
    expires: Expires = None,
    json: Json = False,
) -> None:
    """Route a trigger of a pack to a sink for its owner; sense.enable is asked at every attempt, not here."""
    given = options(option or (), None)
    seconds = optional_duration(expires, "--expires")
    with operator() as acting:
        row = acting.add_route(pack, ref, sink_name, project=project, owner=owner, expires_in_s=seconds, options=given)
    render.print_row(row, f"route of {row.owner}: {pack} {ref} -> {sink_name}", as_json=json)


@route.command("list", epilog=example("route list"))
def list_routes(*, json: Json = False) -> None:
    """List routes: one's own, an operator those of the tenant."""
    with operator() as acting:
        rows = acting.list_routes()
    columns = {
        "ROUTE": "id",
        "OWNER": "owner",
        "PACK": "pack_id",
        "REF": "ref",
        "SINK": "sink",
        "PROJECT": "project",
        "EXPIRES": "expires_at",
    }
    render.print_table(rows, columns, as_json=json, empty="no routes; `sense-worker route add PACK REF SINK`")


@route.command("remove", epilog=example("route remove rte_0123456789abcdef"))
def remove_route(route_id: Annotated[str, typer.Argument(metavar="ROUTE")], *, json: Json = False) -> None:
    """Remove a route; what it has not delivered yet is cancelled."""
    with operator() as acting:
        row = acting.remove_route(route_id)
    render.print_row(row, f"removed {route_id}", as_json=json)
