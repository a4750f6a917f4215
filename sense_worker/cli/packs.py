"""`pack new|lint|install|list|show|remove`; the first is in `pack_new`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sense_worker.cli import pack_new, render
from sense_worker.cli.acting import operator
from sense_worker.cli.failures import FAILED, MISUSED
from sense_worker.cli.values import Json, example, pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_core.errors import LintIssue
    from sense_worker.operator.views import PackView

app = typer.Typer(no_args_is_help=True, help="Write, check, install and look at packs.")
pack_new.register(app)

PackPath = Annotated[Path, typer.Argument(metavar="PATH", help="A folder, or a .zip, .tar, .tar.gz or .tgz.")]
_COMMANDS = {"COMMAND": "verb_key", "OPERATION": "operation", "LAND": "land", "CONFIRM": "confirm"}
_TRIGGERS = {"TRIGGER": "ref", "LAND": "land", "SUMMARY": "summary"}
_BELOW = ("kept", "commands", "triggers", "warnings")
"""What is no line of the row: told below it, or nothing to tell."""
PackId = Annotated[str, typer.Argument(metavar="PACK", help="The id of an installed pack.")]


@app.command(epilog=example("pack lint examples/packs/git"))
def lint(path: PackPath, *, json: Json = False) -> None:
    """Check a pack; needs no session, no database and no server. Exit 0 clean, 1 issues, 2 a file does not parse."""
    pack_id, issues, warnings = _lint(path)
    if json:
        items = [render.plain(issue) for issue in issues]
        render.print_json({"pack_id": pack_id, "clean": not issues, "items": items, "warnings": list(warnings)})
    else:
        but = f" but for {len(warnings)} warning{'s' if len(warnings) > 1 else ''}" if warnings else ""
        render.print_lines([str(issue) for issue in issues] or [f"{pack_id}: clean{but}"])
        for warning in warnings:
            render.warn(f"{pack_id}: {warning}")
    if issues:
        raise typer.Exit(FAILED if pack_id else MISUSED)


@app.command(epilog=example("pack install examples/packs/git --allow-bin git=/usr/bin/git"))
def install(
    path: PackPath,
    *,
    allow_bin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-bin", metavar="NAME=/PATH", help="A binary a wrap pack may run; repeatable. Default: those so far."
        ),
    ] = None,
    join_family: Annotated[
        str | None,
        typer.Option("--join-family", metavar="NAME", help="Let it use the credentials given to its family so far."),
    ] = None,
    json: Json = False,
) -> None:
    """Install a pack, or a new revision of it, in the acting session's tenant; needs pack.install."""
    allowed = None if allow_bin is None else pairs(allow_bin, "--allow-bin", "NAME=/ABSOLUTE/PATH")
    with operator() as acting:
        row = acting.install_pack(path, allow_bins=allowed, join_family=join_family)
    _print_pack(row, f"installed {row.pack_id}", as_json=json)


@app.command("list", epilog=example("pack list --json"))
def list_(*, json: Json = False) -> None:
    """List the packs in force."""
    with operator() as acting:
        rows = acting.list_packs()
    columns = {"PACK": "pack_id", "VERSION": "version", "PLANE": "plane", "GENERATION": "generation", "TITLE": "title"}
    render.print_table(rows, columns, as_json=json, empty="no packs; `sense-worker pack install PATH`")


@app.command(epilog=example("pack show git"))
def show(pack_id: PackId, *, json: Json = False) -> None:
    """Show the revision in force: digest, commands, triggers with their policy."""
    with operator() as acting:
        row = acting.show_pack(pack_id)
    _print_pack(row, as_json=json)


@app.command(epilog=example("pack remove git"))
def remove(pack_id: PackId, *, json: Json = False) -> None:
    """Take a pack out of force; its events and deliveries are kept. Needs pack.install."""
    with operator() as acting:
        row = acting.remove_pack(pack_id)
    render.print_row(row, f"removed {pack_id}", as_json=json, hide=_BELOW)


def _print_pack(row: PackView, headline: str = "", *, as_json: bool) -> None:
    """Print a revision: its fields, a table of its commands and one of its triggers; warnings on standard error."""
    hide = [name for name in _BELOW if name != "kept" or not row.kept]
    render.print_row(row, headline, as_json=as_json, hide=hide)
    if as_json:
        return
    for rows, columns in ((row.commands, _COMMANDS), (row.triggers, _TRIGGERS)):
        if rows:
            render.print_lines([""])
            render.print_table(rows, columns, as_json=False, empty="")
    for warning in row.warnings:
        render.warn(f"{row.pack_id}: {warning}")


def _lint(path: Path) -> tuple[str | None, Sequence[LintIssue], Sequence[str]]:
    """Return pack id, issues and warnings; no id where a file does not parse, which is then all there is to tell.

    Raises PackError or UsageError where a file cannot be read.
    """
    from runtime_core.archive import read_source
    from runtime_core.lint import warnings
    from runtime_core.manifest import parse_manifest
    from runtime_core.pack import lint_pack, parse_issues
    from runtime_core.policy import parse_policy

    files = read_source(path)
    unparsed = parse_issues(files)
    if unparsed:
        return None, unparsed, ()
    issues = lint_pack(*files)
    manifest = parse_manifest(files.surface)
    return manifest.id, issues, warnings(manifest, parse_policy(files.policy))
