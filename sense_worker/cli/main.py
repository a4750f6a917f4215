"""The entry point: assembles the groups, runs one command, turns its failure into one line and an exit code."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import io
import itertools
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from sense_worker.cli import (
    activations,
    auditing,
    checking,
    commands,
    failures,
    grants,
    inbox,
    packs,
    principals,
    publishing,
    reading,
    routes,
    running,
    schemas,
    sinks,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="sense-worker",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_START, _SETUP, _RUN, _CHECK, _READ = "Start", "Set up", "Run", "Check", "Read"


@dataclass
class Invocation:
    """What the global options said; readable also after the command failed."""

    debug: bool = False


def _version(*, asked: bool) -> None:
    if asked:
        running.version()
        raise typer.Exit


@app.callback(epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong arguments or settings, 130 interrupted.")
def options(
    context: typer.Context,
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version, like `version`.")
    ] = False,
) -> None:
    """Background runtime for HCP packs: trigger events to sinks, every attempt authorized, every outcome explained.

    A command that changes something acts as the session in SENSE_SESSION_FILE (default: the operator's).
    """
    if isinstance(context.obj, Invocation):
        context.obj.debug = debug


# The help lists panels, and commands in them, in this order; commands before groups.
running.register_start(app, panel=_START)
activations.register(app, panel=_SETUP)
publishing.register(app, panel=_SETUP)
commands.register(app, panel=_RUN)
checking.register(app, panel=_CHECK)
schemas.register(app, panel=_CHECK)
running.register_read(app, panel=_READ)
reading.register(app, panel=_READ)
for name, group, panel in (
    ("pack", packs.app, _SETUP),
    ("principal", principals.principal, _SETUP),
    ("session", principals.session, _SETUP),
    ("project", principals.project, _SETUP),
    ("grant", grants.app, _SETUP),
    ("sink", sinks.app, _SETUP),
    ("route", routes.app, _SETUP),
    ("deliveries", reading.deliveries, _READ),
    ("inbox", inbox.app, _READ),
    ("dead", reading.dead, _READ),
    ("audit", auditing.app, _READ),
):
    app.add_typer(group, name=name, rich_help_panel=panel)


@functools.cache
def command(*names: str) -> Any:
    """Return the parser of the whole command line, or of the named command of a group alone; built once a process.

    A name that is none gets the whole of its level, which says so. To build all 71 takes 60 ms of CPU, of the 350 ms
    that a listing takes.
    """
    return typer.main.get_command(_part(app, names))


def _part(whole: typer.Typer, names: Sequence[str]) -> typer.Typer:
    """Return a level of the command line with the named command or group alone, itself cut down by further names."""
    if not names:
        return whole
    part = copy.copy(whole)
    part.registered_commands = [one for one in whole.registered_commands if _name(one) == names[0]]
    part.registered_groups = [copy.copy(one) for one in whole.registered_groups if one.name == names[0]]
    for group in part.registered_groups:
        group.typer_instance = group.typer_instance and _part(group.typer_instance, names[1:])
    return part if part.registered_commands or part.registered_groups else whole


def _name(one: typer.models.CommandInfo) -> str:
    return one.name or typer.main.get_command_name(one.callback.__name__ if one.callback else "")


def _names(arguments: Sequence[str]) -> list[str]:
    """Return the group and the command that a command line begins with, as far as it does."""
    given = itertools.dropwhile(lambda argument: argument == "--debug", arguments)
    names = list(itertools.takewhile(lambda argument: not argument.startswith("-"), given))
    return names[: 2 if any(group.name in names[:1] for group in app.registered_groups) else 1]


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; failures are one line on standard error."""
    invocation = Invocation()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = command(*_names(arguments)).main(
            args=arguments, prog_name="sense-worker", standalone_mode=False, obj=invocation
        )
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return failures.FAILED
    except KeyboardInterrupt:
        return failures.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost door of the process
        if isinstance(error, OSError) and error.filename is None and error.errno in failures.OF_A_WRITE:
            _drop_output()  # on a full disk it would fail again, at exit
        with contextlib.suppress(OSError):
            return failures.report(error, debug=invocation.debug)
        return failures.exit_code(error)
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """Run the command line of this process; the console script."""
    # What a command loads stays, and the collector's default of 700 walks it again and again: a tenth of its CPU.
    gc.set_threshold(50_000, 20, 20)
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character gets its escape
    sys.exit(run())


def _open_closed() -> None:
    """Put the null device where a standard stream is closed: the first file that is opened would take its place.

    It cannot be written to in the place of standard output: what a command prints may be a secret that is shown once.
    """
    names = ("stdin", "stdout", "stderr")
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) < len(names):
        os.set_inheritable(descriptor, True)
        if names[descriptor] == "stderr":
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    os.close(descriptor)
    for number, name in enumerate(names):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def _drop_output() -> None:
    """Nobody takes what standard output is given: what is still buffered goes nowhere, silently, also at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


if __name__ == "__main__":
    main()
