"""`exec`, `connect`, `disconnect`, `availability`: a pack's commands as the acting session (§1.5, §1.6, §1.7.faces)."""

from __future__ import annotations

import json as json_text
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime_core.binaries import way_out_of
from runtime_core.errors import NotFound, UsageError, printable
from sense_worker.cli import arguments, render
from sense_worker.cli.acting import operator, settings
from sense_worker.cli.failures import FAILED
from sense_worker.cli.values import Json, Project, example

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runtime_core.envelope import ResultEnvelope
    from runtime_core.pack import Pack
    from sense_worker.invoker import Invoker

Pack_ = Annotated[str, typer.Argument(metavar="PACK", help="The id of an installed pack.")]
Args = Annotated[
    list[str] | None,
    typer.Option("--arg", metavar="NAME=VALUE", help="An arg, typed by the schema; NAME:=JSON for any value."),
]
ArgsJson = Annotated[
    str | None,
    typer.Option("--args-json", metavar="JSON", help="The args as one object; @FILE or - (standard input): secrets."),
]
Confirm = Annotated[bool, typer.Option("--confirm", help="Confirm a write that asks for it.")]
Apply = Annotated[bool, typer.Option("--apply", help="The same, in the word of tools that plan first.")]
_TOOL_OUTPUT = {"stdout", "stderr"}


def register(app: typer.Typer, *, panel: str) -> None:
    """Add the commands of this file to the application."""
    bare: dict[str, Any] = {"help_option_names": []}  # `exec` has a help of its own: that of the pack's command
    call = example("exec git git.log --arg limit=5")
    app.command("exec", rich_help_panel=panel, context_settings=bare, epilog=call)(exec_)
    app.command(rich_help_panel=panel, epilog=example("connect notes --args-json @login.json"))(connect)
    app.command(rich_help_panel=panel, epilog=example("disconnect notes"))(disconnect)
    app.command(rich_help_panel=panel, epilog=example("availability git"))(availability)


def exec_(  # noqa: PLR0913, PLR0917 - one option an argument
    context: typer.Context,
    pack: Annotated[str | None, typer.Argument(metavar="PACK", help="The id of an installed pack.")] = None,
    verb: Annotated[str | None, typer.Argument(metavar="VERB", help="The verb_key of one of its commands.")] = None,
    arg: Args = None,
    args_json: ArgsJson = None,
    confirm: Confirm = False,
    apply: Apply = False,
    project: Project = None,
    json: Json = False,
    help_: Annotated[bool, typer.Option("--help", "-h", help="Show the args of PACK VERB.")] = False,
) -> None:
    """Run a command of an activated pack, in this process, as the acting session. Exit 1: refused or failed."""
    if pack is None and help_:
        typer.echo(context.get_help(), nl=False)
        return
    if pack is None or (verb is None and not help_):
        raise UsageError("exec", "names no command", "sense-worker exec PACK VERB; `exec PACK --help` lists them")
    with _invoker() as invoker:
        if help_:
            render.print_lines(_help(invoker.pack(pack), verb))
            return
        gates = {"confirm": confirm, "apply": apply}
        args = arguments.with_gates(_args(invoker, pack, verb, arg, args_json), gates)
        answer = invoker.exec(pack, str(verb), args, project=project)
    _print_answer(answer, as_json=json)


def connect(
    pack: Pack_,
    verb: Annotated[str | None, typer.Option("--verb", metavar="VERB", help="Which, where it has several.")] = None,
    arg: Args = None,
    args_json: ArgsJson = None,
    confirm: Confirm = False,
    apply: Apply = False,
    project: Project = None,
    json: Json = False,
) -> None:
    """Run a pack's connect command: its credential is kept for the acting principal, and for the pack's family."""
    from sense_worker.invoker import connect_command

    with _invoker() as invoker:
        key = connect_command(invoker.pack(pack), verb)
        gates = {"confirm": confirm, "apply": apply}
        args = arguments.with_gates(_args(invoker, pack, key, arg, args_json), gates)
        answer = invoker.connect(pack, args, verb_key=key, project=project)
    _print_answer(answer, as_json=json)


def disconnect(pack: Pack_, *, json: Json = False) -> None:
    """Forget the acting principal's credential for a pack, and for its family, on this host."""
    with operator() as acting:
        row = acting.disconnect(pack)
    done = f"disconnected {pack}" if row.identity is not None else f"{pack} was not connected, nothing changed"
    render.print_row(row, done, as_json=json)


def availability(
    pack: Annotated[str | None, typer.Argument(metavar="PACK", help="One pack; default: all in force.")] = None,
    *,
    json: Json = False,
) -> None:
    """Tell what the acting session may use: installed, activated, connected, and each command with its reason."""
    with _invoker() as invoker:
        rows = invoker.availability(pack)
    if pack is not None and json:
        render.print_row(rows[0], as_json=True)
    else:
        render.print_cards(rows, _head, _commands, as_json=json, empty="no packs; `sense-worker pack install PATH`")


@contextmanager
def _invoker() -> Iterator[Invoker]:
    """Act as the session in SENSE_SESSION_FILE; what goes wrong meanwhile is told on standard error."""
    from sense_worker.invoker import Invoker
    from sense_worker.logs import configure

    loaded = settings()
    configure(loaded)
    with Invoker.open(loaded) as invoker:
        yield invoker


def _args(invoker: Invoker, pack: str, verb: str | None, arg: list[str] | None, text: str | None) -> dict[str, Any]:
    """Return the args; of a command that is not there they are untyped, for the pipeline refuses it by name."""
    from sense_worker.faces import cli_args

    try:
        found = invoker.pack(pack).manifest.verbs.get(str(verb))
    except NotFound:
        found = None
    return cli_args(arguments.command_args(arg or (), text, None if found is None else found.args.document))


def _help(pack: Pack, verb: str | None) -> Iterator[str]:
    if verb is None:
        return arguments.pack_help(pack)
    if verb not in pack.manifest.verbs:
        raise NotFound("command", f"{pack.pack_id} has no {verb!r}", f"see `sense-worker exec {pack.pack_id} --help`")
    return arguments.command_help(pack, verb)


def _print_answer(answer: ResultEnvelope, *, as_json: bool) -> None:
    """Print a result envelope; exits 1 where it is not ok."""
    if as_json:
        render.print_json(answer.plain())
    else:
        _print_result(answer.result)
        if not answer.ok:
            sys.stderr.write(f"error: {printable(_with_way_out(answer.error or 'failed'))}\n")
    if not answer.ok:
        raise typer.Exit(FAILED)


def _with_way_out(error: str) -> str:
    """Return an error as people see it: the text of the envelope, and beside it what helps where we know it."""
    way_out = way_out_of(error)
    return error if way_out is None else f"{error} ({way_out})"


def _print_result(result: Any) -> None:
    if isinstance(result, dict) and result.keys() == _TOOL_OUTPUT:
        render.print_lines(result["stdout"].splitlines())
        sys.stderr.writelines(f"{printable(line)}\n" for line in result["stderr"].splitlines())
    elif result is not None:
        sys.stdout.write(json_text.dumps(result, indent=2) + "\n")


def _head(row: Mapping[str, Any]) -> tuple[str, ...]:
    named = ("installed", "activated", "connected")
    return (row["pack_id"], *(name if row[name] else f"not {name}" for name in named))


def _commands(row: Mapping[str, Any]) -> Iterator[str]:
    for one in row["commands"]:
        yield f"{one['verb_key']}: {'executable' if one['executable'] else _with_way_out(one['reason'])}"
    if not row["commands"] and row["reason"]:
        yield row["reason"]
