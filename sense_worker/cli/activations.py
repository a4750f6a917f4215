"""`activate` and `deactivate`: a pack on the acting session (§1.6.activate)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sense_worker.cli import render
from sense_worker.cli.acting import operator
from sense_worker.cli.values import Json, Project, example

Workspace = Annotated[Path | None, typer.Option("--workspace", metavar="DIR", help="The folder of land local.")]


def register(app: typer.Typer, *, panel: str) -> None:
    """Add the commands of this file to the application."""
    app.command(rich_help_panel=panel, epilog=example("activate git --workspace ."))(activate)
    app.command(rich_help_panel=panel, epilog=example("deactivate act_0123456789abcdef"))(deactivate)


def activate(
    pack: Annotated[str, typer.Argument(metavar="PACK")],
    *,
    project: Project = None,
    workspace: Workspace = None,
    json: Json = False,
) -> None:
    """Put an installed pack on the acting session; writes the file that its adapter announces with."""
    folder = None if workspace is None else workspace.expanduser().absolute()
    with operator() as acting:
        row = acting.activate(pack, project=project, workspace=folder)
    render.print_row(row, f"activated {pack}; its adapter reads SENSE_ACTIVATION_FILE={row.file}", as_json=json)


def deactivate(activation_id: Annotated[str, typer.Argument(metavar="ACTIVATION")], *, json: Json = False) -> None:
    """End an activation: what it announced is not delivered from now on."""
    with operator() as acting:
        row = acting.deactivate(activation_id)
    render.print_row(row, f"deactivated {activation_id}", as_json=json)
