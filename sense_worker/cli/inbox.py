"""`inbox …`: what arrived for a principal, and what it has done with it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime_core.errors import UsageError
from runtime_core.event import is_moment
from sense_worker.cli import render
from sense_worker.cli.acting import operator
from sense_worker.cli.values import Json, Limit, duration, example, optional_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sense_worker.operator.inbox import InboxView

app = typer.Typer(no_args_is_help=True, help="What the inbox sink holds, and what has been done with it.")

_BODY = 300
"""Characters of a body that a list for people shows; a body has up to 256 KiB."""
_EXAMPLE_ID = "5c6ffbdd40d9556b73a21e63c3e0e904.rte_0123456789abcdef"
_STATES = "open (unseen, seen and read), unread (unseen and seen), unseen, seen, read, archived or snoozed."

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="The id of an item, or of an event: each item of it.")]
Principal = Annotated[str | None, typer.Option("--principal", help="Whose; an operator may name another than itself.")]
Shared = Annotated[
    str | None, typer.Option("--project", metavar="PROJECT", help="Only what is shared in this project.")
]
Cursor = Annotated[
    int | None,
    typer.Option("--after", metavar="CURSOR", min=0, help="What came after this `number`, the oldest first."),
]


@app.command("list", epilog=example("inbox list --state unread --collapse"))
def list_items(  # noqa: PLR0913 - options, all by name
    *,
    principal: Principal = None,
    project: Shared = None,
    state: Annotated[str, typer.Option("--state", help=_STATES)] = "open",
    pack: Annotated[str | None, typer.Option("--pack", metavar="PACK", help="Only of this pack.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Only about this subject.")] = None,
    collapse: Annotated[
        bool,
        typer.Option("--collapse", help="Only the newest of each subject of a pack and project, with their number."),
    ] = False,
    after: Cursor = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="CURSOR", min=0, help="What came before this `number`.")
    ] = None,
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """List what arrived in the inbox, the newest first. A CURSOR is the `number` of an item in the JSON."""
    with operator() as acting:
        rows = acting.list_inbox(
            principal=principal,
            project=project,
            state=state,
            pack=pack,
            subject=subject,
            collapse=collapse,
            after=after,
            before=before,
            limit=limit,
        )
    render.print_cards(rows, _head, _details, as_json=json, empty="the inbox is empty")


@app.command("counts", epilog=example("inbox counts"))
def count_items(*, principal: Principal = None, project: Shared = None, json: Json = False) -> None:
    """Count items by state: one's own, an operator those of the tenant."""
    with operator() as acting:
        row = acting.inbox_counts(principal=principal, project=project)
    render.print_row(row, as_json=json)


_CHANGES = (
    ("see", "see_items", "Make unseen items seen."),
    ("read", "read_items", "Make unseen and seen items read."),
    ("unread", "unread_items", "Make read items seen."),
    ("archive", "archive_items", "Put items away."),
    ("unarchive", "unarchive_items", "Take archived items back, as read."),
    ("wake", "wake_items", "End the snooze of items now."),
)
"""Commands that take ids and nothing else: name, method of the operator, help."""


def _change(method: str) -> Callable[..., None]:
    def change(ids: Ids, *, json: Json = False) -> None:
        with operator() as acting:
            rows = getattr(acting, method)(ids)
        _print_moved(rows, as_json=json)

    return change


for _name, _method, _help in _CHANGES:
    app.command(_name, help=_help, epilog=example(f"inbox {_name} {_EXAMPLE_ID}"))(_change(_method))


@app.command("snooze", epilog=example(f"inbox snooze {_EXAMPLE_ID} --for 12h"))
def snooze(
    ids: Ids,
    *,
    for_: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="How long: 90s, 15m, 12h, 30d.")] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="MOMENT", help="Or until when: 2026-06-01T09:00:00Z.")
    ] = None,
    json: Json = False,
) -> None:
    """Put items away for a time; then they come back as unseen and newest."""
    seconds, moment = optional_duration(for_, "--for"), _moment(until)
    if (seconds is None) == (moment is None):
        raise UsageError("inbox snooze", "has no end, or two", "give --for DURATION or --until MOMENT")
    with operator() as acting:
        rows = acting.snooze_items(ids, for_s=seconds, until=moment)
    _print_moved(rows, as_json=json)


@app.command("prune", epilog=example("inbox prune --older-than 90d"))
def prune(
    *,
    older_than: Annotated[str, typer.Option("--older-than", metavar="DURATION", help="Accepted longer ago: 90d.")],
    state: Annotated[str, typer.Option("--state", help=_STATES)] = "archived",
    json: Json = False,
) -> None:
    """Remove old items of all principals of the tenant, archived ones unless told otherwise; operators only."""
    seconds = duration(older_than, "--older-than")
    removed = 0
    with operator() as acting:
        while some := acting.prune_inbox(older_than_s=seconds, state=state):
            removed += some
    render.print_row({"removed": removed}, as_json=json)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    if not is_moment(text) or text[17:19] == "60":  # a datetime has no leap second
        raise UsageError("--until", f"{text!r} is no moment", "write it as 2026-06-01T09:00:00Z")
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError:
        raise UsageError("--until", f"{text!r} is no moment", "write it as 2026-06-01T09:00:00Z") from None


def _print_moved(rows: Sequence[InboxView], *, as_json: bool) -> None:
    render.print_cards(rows, _head, _details, as_json=as_json, empty="no items")


def _head(row: Mapping[str, Any]) -> Sequence[str]:
    return tuple(render.cell(row, name) for name in ("state", "ref", "principal", "subject", "accepted_at"))


def _details(row: Mapping[str, Any]) -> Iterable[str]:
    yield render.cell(row, "event_id")
    if row["snooze_ends_at"] is not None:
        yield f"until {render.cell(row, 'snooze_ends_at')}"
    if row["total"] > 1:
        yield f"the newest of {row['total']} about this subject"
    body = render.cell(row, "body")
    yield body if len(body) <= _BODY else f"{body[:_BODY]}... (whole in --json)"
