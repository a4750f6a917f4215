"""`publish`: a small adapter by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from runtime_core.errors import NotFound, UsageError
from sense_worker.cli.acting import settings
from sense_worker.cli.values import Json, example, json_object

if TYPE_CHECKING:
    from sense_worker.settings import Settings

_ACTIVATION_ID = re.compile(r"act_[0-9a-f]{16}", re.ASCII)
_ACTIVATE = "name one: --activation ID or FILE, or set SENSE_ACTIVATION_FILE; `sense-worker activate PACK` makes one"


def register(app: typer.Typer, *, panel: str) -> None:
    """Add the command of this file to the application."""
    call = """publish commit.created --data '{"sha": "4b825dc", "branch": "main"}' --activation act_0123456789abcdef"""
    app.command(rich_help_panel=panel, epilog=example(call))(publish)


def publish(
    ref: Annotated[str, typer.Argument(metavar="REF", help="A trigger that the activation's pack declares.")],
    *,
    data: Annotated[str, typer.Option("--data", metavar="JSON", help="An object, @FILE, or - for stdin.")] = "{}",
    activation: Annotated[
        str | None, typer.Option("--activation", metavar="ID|FILE", help="Default: SENSE_ACTIVATION_FILE.")
    ] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="What it is about, at most 256 characters.")] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The same id again is the same event. Default: a new one.")
    ] = None,
    occurred_at: Annotated[
        str | None, typer.Option("--occurred-at", metavar="RFC3339", help="With a zone. Default: now.")
    ] = None,
    confirm: Annotated[
        Literal["ledger"] | None, typer.Option("--confirm", help="ledger: wait until the event is in the ledger.")
    ] = None,
    json: Json = False,
) -> None:
    """Publish one trigger event, signed with an activation's secret. Done means: it is on the stream."""
    payload = json_object(data, "--data")
    loaded = settings()
    file = _activation_file(activation, loaded)
    raise NotImplementedError((ref, payload, file, subject, message_id, occurred_at, confirm, json))


def _activation_file(given: str | None, loaded: Settings) -> Path:
    """Return the activation file meant by an id, a path, or SENSE_ACTIVATION_FILE; raises UsageError, NotFound."""
    if given is None:
        if loaded.activation_file is None:
            raise UsageError("--activation", "no activation is named", _ACTIVATE)
        return loaded.activation_file
    file = (
        loaded.home / "activations" / f"{given}.json" if _ACTIVATION_ID.fullmatch(given) else Path(given).expanduser()
    )
    if not file.is_file():
        raise NotFound("--activation", f"{file} is no activation file", _ACTIVATE)
    return file
