"""`sink new`: a plugin package to begin with."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Annotated

import typer

from runtime_core.errors import UsageError
from sense_worker.cli import render
from sense_worker.cli.new_files import write_new
from sense_worker.cli.sink_template import FILES
from sense_worker.cli.values import Json, example


def register(app: typer.Typer) -> None:
    """Add the command to the group `sink`."""
    app.command("new", epilog=example("sink new pager"))(new_sink)


def new_sink(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The kind: small letters, digits and _.")],
    *,
    path: Annotated[
        Path | None, typer.Option("--path", metavar="DIR", help="Where to write it. Default: sense-sink-NAME, here.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a package with a sink of your own: it works, has its tests, and is there to be changed."""
    _check(name)
    package = f"sense-sink-{name.replace('_', '-')}"
    folder = Path(package) if path is None else path
    names = {
        "kind": name,
        "Class": "".join(part.capitalize() for part in name.split("_")),
        "module": f"sense_sink_{name}",
        "package": package,
    }
    row = {"kind": name, "package": package, "path": str(folder.absolute()), "files": write_new(folder, FILES, names)}
    render.print_row(row, f"package {package} in {folder}", as_json=json, hide=("files", "package", "kind"))
    if not json:
        render.print_lines([f"Next: pip install -e '{folder}[test]', then `pytest {folder}`; see its README.md."])


def _check(name: str) -> None:
    """Raise UsageError for a name that is no kind of one's own."""
    from sinks.declared import KIND
    from sinks.registry import BUILT_IN

    if not KIND.fullmatch(name) or name.endswith("_") or "__" in name or keyword.iskeyword(name):
        raise UsageError("NAME", f"{name!r} is no name for a kind", "write small letters, digits and _, like `pager`")
    if name in {kind.kind for kind in BUILT_IN}:
        raise UsageError("NAME", f"kind {name!r} is built in", "choose another name")
