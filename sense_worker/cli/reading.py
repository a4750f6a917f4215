"""`deliveries …`, `dead …`, `explain`: what became of which event, and why."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sense_worker.cli import explained, render
from sense_worker.cli.acting import operator
from sense_worker.cli.failures import FAILED
from sense_worker.cli.values import Json, Limit, example

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sense_worker.operator.replay import ReplayView

deliveries = typer.Typer(no_args_is_help=True, help="One event for one route, and its state.")
dead = typer.Typer(no_args_is_help=True, help="Stream entries refused at intake.")

_STATES = "pending, delivering, delivered, retrying, dead, denied, held or cancelled."


def register(app: typer.Typer, *, panel: str) -> None:
    """Add the command of this file to the application."""
    call = "explain 5c6ffbdd40d9556b73a21e63c3e0e904"
    app.command(rich_help_panel=panel, epilog=example(call))(explain)


@deliveries.command("list", epilog=example("deliveries list --sink hook --state held"))
def list_deliveries(
    *,
    state: Annotated[str | None, typer.Option("--state", help=_STATES)] = None,
    event: Annotated[str | None, typer.Option("--event", metavar="EVENT_ID")] = None,
    route: Annotated[str | None, typer.Option("--route", metavar="ROUTE")] = None,
    sink: Annotated[str | None, typer.Option("--sink", metavar="SINK")] = None,
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """List deliveries, the newest first: one's own, an operator those of the tenant."""
    with operator() as acting:
        rows = acting.list_deliveries(state=state, event=event, route=route, sink=sink, limit=limit)
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


@deliveries.command("replay", epilog=example("deliveries replay --sink hook"))
def replay(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[DELIVERY_ID]...", show_default=False)] = None,
    *,
    route: Annotated[str | None, typer.Option("--route", metavar="ROUTE", help="All of this route.")] = None,
    sink: Annotated[str | None, typer.Option("--sink", metavar="SINK", help="All of this sink.")] = None,
    state: Annotated[str, typer.Option("--state", help="With --route and --sink: dead or denied.")] = "dead",
    json: Json = False,
) -> None:
    """Give dead or denied deliveries another chance, each under the full check; exit 1 where one is not replayed.

    An operator's command. What its owner may not have now stays as it is, and the reason is told.
    """
    with operator() as acting:
        rows = acting.replay(ids or (), route=route, sink=sink, state=state, told=_progress())
    left = [row for row in rows if row.outcome != "replayed"]
    if json or left:
        render.print_cards(rows if json else left, _replay_head, _replay_details, as_json=json, empty="")
    if not json:
        counts = Counter(row.outcome for row in rows)
        render.print_lines([", ".join(f"{count} {word}" for word, count in counts.items()) or "nothing to replay"])
    if left:
        raise typer.Exit(FAILED)


def _progress() -> Callable[[Sequence[ReplayView]], None]:
    """Return what counts pages on a terminal's standard error, where there are more than one."""
    done = 0

    def told(page: Sequence[ReplayView]) -> None:
        nonlocal done
        if done and sys.stderr.isatty():
            sys.stderr.write(f"{done + len(page)} deliveries\n")
        done += len(page)

    return told


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


def _replay_head(row: Mapping[str, Any]) -> Sequence[str]:
    return tuple(render.cell(row, name) for name in ("outcome", "owner", "sink"))


def _replay_details(row: Mapping[str, Any]) -> Iterable[str]:
    yield render.cell(row, "id")
    if row["reason"]:
        yield render.cell(row, "reason")


def _delivery_details(row: Mapping[str, Any]) -> Iterable[str]:
    yield render.cell(row, "id")
    if row.get("reason"):
        yield render.cell(row, "reason")
