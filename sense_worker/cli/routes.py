"""`route …`: who wants which trigger events in which sink."""

from __future__ import annotations

from typing import Annotated

import typer

from sense_worker.cli import render
from sense_worker.cli.acting import operator
from sense_worker.cli.values import Expires, Json, Option, Project, SinkName, example, optional_duration, options

app = typer.Typer(no_args_is_help=True, help="Which trigger events a principal wants in which sink.")


@app.command("add", epilog=example("route add git commit.created inbox"))
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


@app.command("list", epilog=example("route list"))
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


@app.command("remove", epilog=example("route remove rte_0123456789abcdef"))
def remove_route(route_id: Annotated[str, typer.Argument(metavar="ROUTE")], *, json: Json = False) -> None:
    """Remove a route; what it has not delivered yet is cancelled."""
    with operator() as acting:
        row = acting.remove_route(route_id)
    render.print_row(row, f"removed {route_id}", as_json=json)
