"""`route …`: who wants which trigger events in which sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime_core.errors import UsageError
from sense_worker.cli import render
from sense_worker.cli.acting import operator
from sense_worker.cli.values import Expires, Json, Limit, Option, Project, SinkName, example, optional_duration, options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RouteId = Annotated[str | None, typer.Argument(metavar="ROUTE", help="One that stands.", show_default=False)]
Owner = Annotated[str | None, typer.Option("--owner", metavar="PRINCIPAL", help="An operator may name another.")]
Filter = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="CEL",
        help="Only events for which this is true; over ref, subject, data, occurred_at: 'data.branch == \"main\"'.",
    ),
]

app = typer.Typer(no_args_is_help=True, help="Which trigger events a principal wants in which sink.")


@app.command("add", epilog=example("route add git commit.created inbox --filter 'data.branch == \"main\"'"))
def add_route(  # noqa: PLR0913 - one option an argument
    pack: Annotated[str, typer.Argument(metavar="PACK")],
    ref: Annotated[str, typer.Argument(metavar="REF", help="A trigger of the pack, or * for all.")],
    sink_name: SinkName,
    *,
    project: Project = None,
    owner: Owner = None,
    option: Option = None,
    condition: Filter = None,
    expires: Expires = None,
    json: Json = False,
) -> None:
    """Route a trigger of a pack to a sink for its owner; sense.enable is asked at every attempt, not here."""
    given = options(option or (), None)
    seconds = optional_duration(expires, "--expires")
    with operator() as acting:
        settings: dict[str, Any] = {"project": project, "owner": owner, "expires_in_s": seconds, "filter": condition}
        row = acting.add_route(pack, ref, sink_name, options=given, **settings)
    render.print_row(row, f"route of {row.owner}: {pack} {ref} -> {sink_name}", as_json=json, hide=("warnings",))
    if not json:
        for warning in row.warnings:
            render.warn(warning)


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
        "FILTER": "filter",
        "EXPIRES": "expires_at",
    }
    render.print_table(rows, columns, as_json=json, empty="no routes; `sense-worker route add PACK REF SINK`")


@app.command("remove", epilog=example("route remove rte_0123456789abcdef"))
def remove_route(route_id: Annotated[str, typer.Argument(metavar="ROUTE")], *, json: Json = False) -> None:
    """Remove a route; what it has not delivered yet is cancelled."""
    with operator() as acting:
        row = acting.remove_route(route_id)
    render.print_row(row, f"removed {route_id}", as_json=json, hide=("warnings",))


@app.command("test", epilog=example("route test --pack git --ref commit.created --filter 'data.branch == \"main\"'"))
def try_route(
    route_id: RouteId = None,
    *,
    pack: Annotated[str | None, typer.Option("--pack", metavar="PACK", help="In place of ROUTE.")] = None,
    ref: Annotated[str | None, typer.Option("--ref", metavar="REF", help="A trigger of it, or * for all.")] = None,
    project: Project = None,
    owner: Owner = None,
    condition: Filter = None,
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """Tell which recorded events a route would match, and why not the others; nothing is delivered or changed.

    ROUTE, or --pack and --ref for one that is not made yet. With ROUTE a --filter stands in the place of its own.
    """
    with operator() as acting:
        if route_id is not None:
            if pack or ref or project or owner:
                raise UsageError("route test", "ROUTE says pack, ref, project and owner", "give one or the other")
            rows = acting.try_route(route_id, filter=condition, limit=limit)
        elif pack is None or ref is None:
            raise UsageError("route test", "no route to test", "name a ROUTE, or --pack and --ref")
        else:
            rows = acting.try_new_route(pack, ref, project=project, owner=owner, filter=condition, limit=limit)
    render.print_cards(rows, _trial_head, _trial_details, as_json=json, empty="no recorded events of this trigger")
    if rows and not json:
        render.print_lines(["", f"{sum(row.matches for row in rows)} of {len(rows)} match"])


def _trial_head(row: Mapping[str, Any]) -> Sequence[str]:
    word = "matches" if row["matches"] else "no match"
    return (word, *(render.cell(row, name) for name in ("ref", "subject", "publisher", "accepted_at")))


def _trial_details(row: Mapping[str, Any]) -> Iterable[str]:
    yield render.cell(row, "event_id")
    if row["reason"]:
        yield render.cell(row, "reason")
