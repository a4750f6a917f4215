"""`init`, `up`, `worker`, `demo`, `status`, `health`, `doctor`, `version`: what runs, and how it fares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runtime_core.errors import SettingsError
from sense_worker.cli import failures, render
from sense_worker.cli.acting import operator, settings
from sense_worker.cli.values import Json, example

if TYPE_CHECKING:
    from sense_worker.settings import Settings

GitPack = Annotated[
    Path | None, typer.Option("--pack", metavar="PATH", help="The git pack; found by itself in a checkout.")
]


def register_start(app: typer.Typer, *, panel: str) -> None:
    """Add the commands that run something, in the order of the help."""
    app.command(rich_help_panel=panel, epilog=example("init"))(init)
    app.command(rich_help_panel=panel, epilog=example("up"))(up)
    app.command(rich_help_panel=panel, epilog=example("worker"))(worker)
    app.command(rich_help_panel=panel, epilog=example("demo"))(demo)
    app.command(rich_help_panel=panel, epilog=example("version"))(version)


def register_read(app: typer.Typer, *, panel: str) -> None:
    """Add the commands that tell how it fares."""
    app.command(rich_help_panel=panel, epilog=example("status --json"))(status)
    app.command(rich_help_panel=panel, epilog=example("health"))(health)
    app.command(rich_help_panel=panel, epilog=example("doctor"))(doctor)


def init(
    *,
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant to make.")] = "default",
    principal: Annotated[str, typer.Option("--principal", help="Its operator.")] = "operator",
    json: Json = False,
) -> None:
    """Make the home folder, the keys, the database, a tenant and its operator. A second run changes nothing."""
    from sense_worker.operator import Operator

    row = Operator.initialize(settings(), tenant=tenant, principal=principal)
    made = f"made {', '.join(row.created)}" if row.created else "all was there, nothing changed"
    render.print_row(row, f"tenant {tenant}: {made}", as_json=json, hide=("created",))


def up() -> None:
    """Run everything on this machine: a private server unless SENSE_REDIS_URL is set, and a worker. Ctrl-C stops it."""
    from sense_worker.up import run_up

    raise typer.Exit(run_up(settings()))


def worker(
    *,
    commands: Annotated[
        bool, typer.Option("--commands", help="Run queued commands (exec) instead of delivering events.")
    ] = False,
) -> None:
    """Run one worker against SENSE_REDIS_URL: its readers, its sweep and its pool. SIGTERM stops it in order.

    Events and commands have a worker each, so that neither holds the other up; `up` runs both.
    """
    from sense_worker.app import run_worker

    loaded = settings()
    _check_start(loaded)
    run_worker(loaded, commands=commands)


def _check_start(loaded: Settings) -> None:
    """Refuse what no restart mends, before a supervisor restarts it for ever. Raises SettingsError, LedgerBusy."""
    from sense_worker.storage.migrate import check_schema, each_database
    from sense_worker.vault import Vault

    if loaded.redis_url is None:
        raise SettingsError(
            "SENSE_REDIS_URL", "is not set", "set it, or run `sense-worker up` with a server of its own"
        )
    Vault.load(loaded)
    for database in each_database(loaded):
        check_schema(database)


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the home folder and the repository, and say where.")
    ] = False,
    pack: GitPack = None,
    json: Annotated[bool, typer.Option("--json", help="Print the story as one JSON object.")] = False,
) -> None:
    """Show it all at work in a temporary folder: commits, sinks, denials, queued commands, audit. About 20 s."""
    from sense_worker.cli.story import Story
    from sense_worker.demo import run_demo

    story = Story(silent=json)
    try:
        facts = run_demo(story.tell, render.print_log, pack=pack, keep=keep)
    except Exception as error:
        if json:
            render.print_json({"ok": False, "error": failures.line(error)})
        raise
    if json:
        render.print_json(render.plain(facts))
    else:
        story.end(facts["seconds"])


def status(*, json: Json = False) -> None:
    """Count deliveries by state and by lane, and what waits on the stream."""
    with operator() as acting:
        row, operates = acting.status(), acting.acting.operator
    if json:
        render.print_json(render.plain(row))
        return
    if operates and row.waiting is None:
        render.warn("what waits on the stream is not known: no Redis answers; `sense-worker health` says why")
    render.print_row(row, as_json=False, hide=("lanes",))
    if row.lanes:
        render.print_lines([""])
        columns = {"LANE": "sink", "DELIVERIES": "states"}
        columns |= {"HELD FOR": "held_for"} if any(lane.held_for for lane in row.lanes) else {}
        render.print_table(row.lanes, columns, as_json=False, empty="", worded={"held_for": "; ".join})


def health(
    *,
    events: Annotated[bool, typer.Option("--events", help="Only of `sense-worker worker`.")] = False,
    commands: Annotated[bool, typer.Option("--commands", help="Only of `sense-worker worker --commands`.")] = False,
    json: Json = False,
) -> None:
    """Judge by finished work whether this runs well. Exit 0 good, 1 bad."""
    from sense_worker import health as judging

    parts = [part for part, asked in ((judging.EVENTS, events), (judging.COMMANDS, commands)) if asked]
    row = judging.check_health(settings(), of=parts[0] if len(parts) == 1 else judging.ALL)
    if json:
        render.print_json(render.plain(row))
    else:
        verdicts = ({"verdict": "ok" if one.ok else "bad", "name": one.name, "text": one.text} for one in row.findings)
        render.print_table(verdicts, {"": "verdict", "WHAT": "name", "FOUND": "text"}, as_json=False, empty="")
    if not row.ok:
        raise typer.Exit(failures.FAILED)


def doctor(*, json: Json = False) -> None:
    """Tell what this host can do: sandbox, keyring, server, database, binaries. Exit 1 where something needed lacks."""
    from sense_worker.doctor import examine

    row = examine(settings())
    if json:
        render.print_json(render.plain(row))
    else:
        render.print_table(row.findings, {"": "state", "WHAT": "name", "FOUND": "text"}, as_json=False, empty="")
    if not row.ok:
        raise typer.Exit(failures.FAILED)


def version(*, json: Json = False) -> None:
    """Print the version of sense-worker and of what it is built on."""
    import platform
    from importlib.metadata import version as installed

    names = ("celery", "redis", "sqlalchemy", "pydantic")
    row = {
        "version": installed("sense-worker"),
        "python": platform.python_version(),
        **{name: installed(name) for name in names},
    }
    if json:
        render.print_json({name.replace("version", "sense_worker"): text for name, text in row.items()})
    else:
        render.print_lines([f"sense-worker {row['version']}", *(f"{name} {row[name]}" for name in ("python", *names))])
