"""`publish`: a small adapter by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from runtime_core.errors import NotFound
from sense_worker.cli import render
from sense_worker.cli.acting import settings
from sense_worker.cli.values import Json, example, json_object

if TYPE_CHECKING:
    from sense_worker.settings import Settings

_ACTIVATION_ID = re.compile(r"act_[0-9a-f]{16}", re.ASCII)


def register(app: typer.Typer, *, panel: str) -> None:
    """Add the command of this file to the application."""
    call = 'publish note.written --data \'{"text": "hello"}\' --activation act_0123456789abcdef'
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
        str | None,
        typer.Option("--id", metavar="ID", help="The same id and body again are the same event. Default: a new id."),
    ] = None,
    occurred_at: Annotated[
        str | None, typer.Option("--occurred-at", metavar="RFC3339", help="With a zone. Default: now, so another body.")
    ] = None,
    confirm: Annotated[
        Literal["accepted", "ledger"], typer.Option("--confirm", help="ledger: wait until the event is in the ledger.")
    ] = "accepted",
    json: Json = False,
) -> None:
    """Publish one trigger event, signed with an activation's secret. Done means: the stream has it."""
    from sense_worker.publisher import Publisher
    from sense_worker.up_file import discover_redis_url

    payload = json_object(data, "--data")
    loaded = settings()
    ledger = loaded.database_url if confirm == "ledger" else None
    with Publisher(
        _activation_file(activation, loaded),
        redis_url=discover_redis_url(loaded),
        stream_limit=loaded.stream_limit,
        database_url=ledger,
    ) as publisher:
        row = publisher.publish(ref, payload, subject=subject, occurred_at=occurred_at, id=message_id, confirm=confirm)
    render.print_row(row, f"published; `sense-worker explain {row.event_id}` tells what becomes of it", as_json=json)


def _activation_file(given: str | None, loaded: Settings) -> Path | None:
    """Return the file meant by an id or a path; None leaves it to SENSE_ACTIVATION_FILE. Raises NotFound."""
    if given is None:
        return loaded.activation_file
    if not _ACTIVATION_ID.fullmatch(given):
        return Path(given).expanduser()
    file = loaded.home / "activations" / f"{given}.json"
    if not file.is_file():
        raise NotFound(f"--activation {given}", f"there is no {file}", "`sense-worker activate PACK` writes one")
    return file
