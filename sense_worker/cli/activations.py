"""`activate`, `activations`, `rotate` and `deactivate`: packs on sessions (§1.6.activate)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sense_worker.cli import render
from sense_worker.cli.acting import operator
from sense_worker.cli.values import Json, Overlap, Project, example, overlap

Workspace = Annotated[Path | None, typer.Option("--workspace", metavar="DIR", help="The folder of land local.")]


def register(app: typer.Typer, *, panel: str) -> None:
    """Add the commands of this file to the application."""
    app.command(rich_help_panel=panel, epilog=example("activate git --workspace ."))(activate)
    app.command("activations", rich_help_panel=panel, epilog=example("activations --json"))(list_activations)
    app.command(rich_help_panel=panel, epilog=example("rotate act_0123456789abcdef --overlap 15m"))(rotate)
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


def list_activations(*, json: Json = False) -> None:
    """List the activations that were not deactivated: one's own, an operator those of the tenant."""
    with operator() as acting:
        rows = acting.list_activations()
    columns = {"ACTIVATION": "id", "PRINCIPAL": "principal", "PACK": "pack_id", "PROJECT": "project"}
    columns |= {"WORKSPACE": "workspace", "SESSION": "session_id", "IT": "session", "FILE": "file"}
    render.print_table(rows, columns, as_json=json, empty="no activations; `sense-worker activate PACK`")


def rotate(
    activation_id: Annotated[str, typer.Argument(metavar="ACTIVATION")], *, keep: Overlap = None, json: Json = False
) -> None:
    """Give an activation a new secret; a running Publisher reads it from the activation's file by itself."""
    seconds = overlap(keep)
    with operator() as acting:
        row = acting.rotate_activation(activation_id, overlap_s=seconds)
    render.print_row(row, f"rotated {activation_id}; {ending(row.overlap_ends_at)}", as_json=json)


def ending(overlap_ends_at: int | None) -> str:
    """Return what becomes of the secret before."""
    if overlap_ends_at is None:
        return "the secret before is dead"
    return f"the secret before is good until {render.moment(overlap_ends_at)[:19]}Z"


def deactivate(activation_id: Annotated[str, typer.Argument(metavar="ACTIVATION")], *, json: Json = False) -> None:
    """End an activation: what it announced is not delivered from now on."""
    with operator() as acting:
        row = acting.deactivate(activation_id)
    render.print_row(row, f"deactivated {activation_id}", as_json=json)
