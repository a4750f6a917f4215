"""`sink …`: where trigger events can go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sense_worker.cli import render, sink_new
from sense_worker.cli.acting import operator
from sense_worker.cli.activations import ending
from sense_worker.cli.failures import FAILED
from sense_worker.cli.values import Json, Option, OptionsJson, Overlap, SinkName, example, options, overlap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sense_worker.operator.views import SinkView

app = typer.Typer(no_args_is_help=True, help="Where trigger events can go.")
sink_new.register(app)

_TOLD_BELOW = ("fault", "note")
_KINDS = "inbox, webhook, redis_stream, notify, jsonl, console, memory, or a plugin's."


@app.command("add", epilog=example("sink add ana-log jsonl --option path=/var/log/ana.jsonl --audience principal:ana"))
def add_sink(
    name: SinkName,
    kind: Annotated[str, typer.Argument(metavar="KIND", help=_KINDS)],
    *,
    option: Option = None,
    options_json: OptionsJson = None,
    audience: Annotated[
        str, typer.Option("--audience", help="Whose data it may hold: tenant, project:NAME or principal:NAME.")
    ] = "tenant",
    json: Json = False,
) -> None:
    """Add a sink to the tenant. One that signs gets a secret where none is given, which is shown this once."""
    render.need_output()
    with operator() as acting:
        given = options(option or (), options_json, acting.masked_options(kind))
        row = acting.add_sink(name, kind, options=given, audience=audience)
    _print_with_secret(row, f"sink {name}", row.secret, as_json=json)
    if not json:
        _warn([row])


@app.command("list", epilog=example("sink list"))
def list_sinks(*, json: Json = False) -> None:
    """List the sinks of the tenant; FAULT is what keeps one from being used by this shell's settings and packages.

    Workers may have others: what they hold and why is in `status`.
    """
    with operator() as acting:
        rows = acting.list_sinks()
    columns = {"SINK": "name", "KIND": "kind", "AUDIENCE": "audience", "PAUSED": "paused_at", "DISABLED": "disabled_at"}
    columns |= {"FAULT": "fault"} if any(row.fault for row in rows) else {}
    render.print_table(rows, columns, as_json=json, empty="no sinks")
    if not json:
        _warn(row for row in rows if not row.fault)


@app.command("show", epilog=example("sink show ana-hook"))
def show_sink(name: SinkName, *, json: Json = False) -> None:
    """Show a sink with its options; secrets are masked, of an address all but the host."""
    with operator() as acting:
        row = acting.show_sink(name)
    render.print_row(row, f"sink {name}", as_json=json)


@app.command("set", epilog=example("sink set ana-hook --option payload=full --option in_flight:=16"))
def set_sink(name: SinkName, *, option: Option = None, options_json: OptionsJson = None, json: Json = False) -> None:
    """Change options of a sink; NAME:=null takes one back to its default."""
    with operator() as acting:
        secrets = acting.masked_options(acting.show_sink(name).kind)
        row = acting.set_sink(name, options(option or (), options_json, secrets))
    render.print_row(row, f"set {name}", as_json=json, hide=_TOLD_BELOW)
    if not json:
        _warn([row])


@app.command("rotate", epilog=example("sink rotate ana-hook --overlap 12h"))
def rotate_sink(name: SinkName, *, keep: Overlap = None, json: Json = False) -> None:
    """Give a sink that signs a new secret, shown this once; the one before signs too while the overlap lasts."""
    seconds = overlap(keep)
    render.need_output()
    with operator() as acting:
        row = acting.rotate_sink(name, overlap_s=seconds)
    _print_with_secret(row, f"rotated {name}; {ending(row.overlap_ends_at)}", row.secret, as_json=json)


@app.command("test", epilog=example("sink test ana-hook"))
def try_sink(name: SinkName, *, json: Json = False) -> None:
    """Send one made-up delivery by this shell's settings and say what came of it; exit 1 where it did not arrive."""
    with operator() as acting:
        row = acting.test_sink(name)
    render.print_row(row, f"{name}: {row.outcome}", as_json=json, hide=("note",))
    if row.note and not json:
        render.warn(f"{name}: {row.note}")
    if row.outcome != "delivered":
        raise typer.Exit(FAILED)


@app.command("pause", epilog=example("sink pause ana-log"))
def pause_sink(name: SinkName, *, json: Json = False) -> None:
    """Pause a sink: its deliveries are held, not lost and not denied."""
    with operator() as acting:
        row = acting.pause_sink(name)
    render.print_row(row, f"paused {name}", as_json=json, hide=_TOLD_BELOW)


@app.command("resume", epilog=example("sink resume ana-log"))
def resume_sink(name: SinkName, *, json: Json = False) -> None:
    """Resume a paused or disabled sink; held deliveries are attempted, authorized anew."""
    with operator() as acting:
        row = acting.resume_sink(name)
    render.print_row(row, f"resumed {name}", as_json=json, hide=_TOLD_BELOW)


@app.command("remove", epilog=example("sink remove ana-log"))
def remove_sink(name: SinkName, *, json: Json = False) -> None:
    """Remove a sink that no route names; its unfinished deliveries are held until one of that name exists again."""
    with operator() as acting:
        row = acting.remove_sink(name)
    render.print_row(row, f"removed {name}", as_json=json, hide=_TOLD_BELOW)


def _warn(rows: Iterable[SinkView]) -> None:
    """Print what is to be known of sinks as they are seen from here: their faults, and what allows them."""
    for row in rows:
        if row.fault:
            render.warn(f"{row.name}: {row.fault}; a worker that lacks it too holds what is for this sink")
        elif row.note:
            render.warn(f"{row.name}: {row.note}")


def _print_with_secret(row: Any, headline: str, secret: str | None, *, as_json: bool) -> None:
    """Print a row, and a secret that nobody can ask for again."""
    told = {} if secret is None else {"secret": secret}
    render.print_row({**render.plain(row), **told}, headline, as_json=as_json, hide=_TOLD_BELOW)
    if told and not as_json:
        render.warn("the secret is shown this once: give it to the receiver now")
