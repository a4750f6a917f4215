"""`deliveries …`, `dead …`, `explain`: what became of which event, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sense_worker.cli import explained, render
from sense_worker.cli.acting import operator
from sense_worker.cli.values import Json, Limit, example

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

deliveries = typer.Typer(no_args_is_help=True, help="One event for one route, and its state.")
dead = typer.Typer(no_args_is_help=True, help="Stream entries refused at intake.")

_STATES = "pending, delivering, delivered, retrying, dead, denied, held or cancelled."


def register(app: typer.Typer, *, panel: str) -> None:
    """Add the command of this file to the application."""
    call = "explain 5c6ffbdd40d9556b73a21e63c3e0e904"
    app.command(rich_help_panel=panel, epilog=example(call))(explain)


@deliveries.command("list", epilog=example("deliveries list --state denied --limit 20"))
def list_deliveries(
    *,
    state: Annotated[str | None, typer.Option("--state", help=_STATES)] = None,
    event: Annotated[str | None, typer.Option("--event", metavar="EVENT_ID")] = None,
    route: Annotated[str | None, typer.Option("--route", metavar="ROUTE")] = None,
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """List deliveries, the newest first: one's own, an operator those of the tenant."""
    with operator() as acting:
        rows = acting.list_deliveries(state=state, event=event, route=route, limit=limit)
    render.print_cards(rows, _delivery_head, _delivery_details, as_json=json, empty="no deliveries")


@deliveries.command("show", epilog=example("deliveries show 5c6ffbdd40d9556b73a21e63c3e0e904.rte_0123456789abcdef"))
def show_delivery(
    delivery_id: Annotated[str, typer.Argument(metavar="DELIVERY_ID")],
    *,
    json: Json = False,
) -> None:
    """Show one delivery; `explain` tells its steps and attempts."""
    with operator() as acting:
        row = acting.show_delivery(delivery_id)
    render.print_row(row, as_json=json)


@dead.command("list", epilog=example("dead list"))
def list_dead(*, limit: Limit = 50, json: Json = False) -> None:
    """List stream entries refused at intake, the newest first."""
    with operator() as acting:
        rows = acting.list_dead(limit=limit)
    columns = {"ENTRY": "stream_id", "WORD": "word", "AT": "at", "DETAIL": "detail"}
    render.print_table(rows, columns, as_json=json, empty="no dead entries")


@dead.command("show", epilog=example("dead show 1767225600000-0"))
def show_dead(
    stream_id: Annotated[str, typer.Argument(metavar="ENTRY", help="The id of the stream entry.")],
    *,
    json: Json = False,
) -> None:
    """Show one refused entry with its fields, as text where they are UTF-8, and raw (base64 of their netstrings)."""
    with operator() as acting:
        row = acting.show_dead(stream_id)
    render.print_row(row, as_json=json, hide=("text",))
    if not json and row.text:
        render.print_lines(["", *row.text])


def explain(
    about: Annotated[str, typer.Argument(metavar="ID", help="An event id, a delivery id, or the id of a dead entry.")],
    *,
    json: Json = False,
) -> None:
    """Tell why an event arrived or did not: every step, the exact text, the grant or clause that decided."""
    with operator() as acting:
        row = render.plain(acting.explain(about))
    if json:
        render.print_json(row)
    else:
        render.print_lines(explained.told(row))


def _delivery_head(row: Mapping[str, Any]) -> Sequence[str]:
    cells = (render.cell(row, name) for name in ("state", "ref", "owner", "sink", "created_at"))
    return tuple(cells)


def _delivery_details(row: Mapping[str, Any]) -> Iterable[str]:
    yield render.cell(row, "id")
    if row.get("reason"):
        yield render.cell(row, "reason")
