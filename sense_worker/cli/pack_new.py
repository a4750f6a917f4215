"""`pack new`: a pack to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runtime_core.errors import UsageError
from runtime_core.event import NAME, PACK_ID
from sense_worker.cli import render
from sense_worker.cli.new_files import write_new
from sense_worker.cli.pack_template import FILES
from sense_worker.cli.values import Json, example


def register(app: typer.Typer) -> None:
    """Add the command to the group `pack`."""
    app.command("new", epilog=example("pack new lists"))(new_pack)


def new_pack(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pack's id: small letters, digits, ., - and _.")],
    *,
    path: Annotated[Path | None, typer.Option("--path", metavar="DIR", help="Where. Default: NAME, here.")] = None,
    json: Json = False,
) -> None:
    """Write a pack with a trigger, a read, a write that asks, and a scenario; docs/write-a-pack.md goes on from it."""
    if not PACK_ID.fullmatch(name) or not NAME.fullmatch(f"{name}.show"):
        raise UsageError("NAME", f"{name!r} is no pack's id", "write small letters, digits, ., - and _, like `lists`")
    folder = Path(name) if path is None else path
    row = {"pack_id": name, "path": str(folder.absolute()), "files": write_new(folder, FILES, {"pack": name})}
    render.print_row(row, f"pack {name} in {folder}", as_json=json, hide=("files", "pack_id"))
    if not json:
        render.print_lines([f"Next: `sense-worker pack lint {folder}`, `sense-worker check {folder}/scenario.yaml`."])
