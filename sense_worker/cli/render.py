"""What a command prints: tables and cards for people, or the versioned JSON contract.

JSON, version 1: a listing is `{"v": 1, "items": […]}`, a show or a change is `{"v": 1, …the row}`. Names are those of
`sense_worker.operator`; a field named `at` or `…_at` is a moment, RFC 3339 in UTC (`occurred_at`: as the adapter wrote
it), or null; bytes are hexadecimal. Fields may be added within a version, never renamed or removed. Only ASCII is
written, so that nothing a stranger sent can move a terminal's cursor; people's text goes through `printable` for the
same reason (C62).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_core.errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import Console

JSON_VERSION = 1
_STYLES = {
    "delivered": "green",
    "ok": "green",
    "passed": "green",
    "pending": "cyan",
    "delivering": "cyan",
    "held": "yellow",
    "retrying": "yellow",
    "paused": "yellow",
    "denied": "red",
    "refused": "red",
    "dead": "red",
    "bad": "red",
    "disabled": "red",
    "revoked": "red",
}


def plain(value: Any, name: str = "") -> Any:
    """Return `value` as JSON holds it: rows as objects, moments as RFC 3339 text, bytes as hexadecimal."""
    if _is_moment(name) and isinstance(value, int) and not isinstance(value, bool):
        return moment(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name), field.name) for field in fields if field.repr}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item, str(key)) for key, item in value.items()}
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    return value


def _is_moment(name: str) -> bool:
    return name == "at" or name.endswith("_at")


def moment(micros: int) -> str:
    """Return microseconds since the epoch as RFC 3339 in UTC."""
    at = datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=micros)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def print_json(value: Mapping[str, Any]) -> None:
    """Write one JSON document of the contract to standard output."""
    sys.stdout.write(json.dumps({"v": JSON_VERSION, **value}, indent=2, allow_nan=False) + "\n")


def shown(value: Any) -> str:
    """Return a field as one line of text for people: `-` for nothing, lists and objects with commas."""
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(shown(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{printable(str(name))} {shown(item)}" for name, item in value.items())
    return printable(str(value))


def cell(row: Mapping[str, Any], field: str) -> str:
    """Return one field of a plain row as text; a moment is cut to whole seconds."""
    value = row.get(field)
    if _is_moment(field) and isinstance(value, str) and value.endswith("Z"):
        return value[:19].replace("T", " ")
    return shown(value)


def console(*, err: bool = False) -> Console:
    """Return the console: the terminal's width, and beside a terminal no limit, so that `grep` sees whole lines."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    limited = stream.isatty() or "COLUMNS" in os.environ
    return Console(file=stream, width=None if limited else 10_000, markup=False, highlight=False, emoji=False)


def print_table(
    rows: Iterable[Any],
    columns: Mapping[str, str],
    *,
    as_json: bool,
    empty: str,
    worded: Mapping[str, Callable[[Any], str]] | None = None,
) -> None:
    """Print a listing. `columns` maps a heading to a field, `worded` a field to its words for people.

    In a terminal, or where COLUMNS is set, long cells are broken to fit; ids and moments never are.
    """
    items = [plain(row) for row in rows]
    if as_json:
        print_json({"items": items})
        return
    for field, words in (worded or {}).items():
        items = [{**item, field: words(item[field])} for item in items]
    out = console()
    if not items:
        out.print(empty)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading, field in columns.items():
        whole = field == "id" or field.endswith("_id") or _is_moment(field)
        table.add_column(heading, no_wrap=whole, overflow="fold")
    for item in items:
        table.add_row(*(styled(cell(item, field)) for field in columns.values()))
    with out.capture() as drawn:
        out.print(table)
    # A row is as long as its own cells: padded to the longest, one fault of 180 characters makes every line wrap.
    out.file.write("".join(f"{line.rstrip()}\n" for line in drawn.get().removesuffix("\n").split("\n")))


def print_cards(
    rows: Iterable[Any],
    heads: Callable[[Mapping[str, Any]], Sequence[str]],
    details: Callable[[Mapping[str, Any]], Iterable[str]],
    *,
    as_json: bool,
    empty: str,
) -> None:
    """Print a listing whose ids are too long for a column: a line of aligned cells, then indented lines."""
    items = [plain(row) for row in rows]
    if as_json:
        print_json({"items": items})
        return
    out = console()
    if not items:
        out.print(empty)
        return
    lines = [heads(item) for item in items]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for item, line in zip(items, lines, strict=True):
        out.print(_aligned(line, widths), soft_wrap=True)
        for detail in details(item):
            out.print(f"  {detail}", style="dim", soft_wrap=True)


def need_output() -> None:
    """Raise OSError where standard output is closed: called before what makes a secret that is shown once."""
    with contextlib.suppress(io.UnsupportedOperation):  # what holds output in memory is no stream of the system's
        os.write(sys.stdout.fileno(), b"")


def print_row(
    shown_row: Any,
    headline: str = "",
    *,
    as_json: bool,
    hide: Sequence[str] = (),
    worded: Mapping[str, Callable[[Any], str]] | None = None,
) -> None:
    """Print one row: a headline, then its fields by name; `worded` maps a field to its words for people."""
    item = plain(shown_row)
    if as_json:
        print_json(item)
        return
    item.update({field: words(item[field]) for field, words in (worded or {}).items()})
    out = console()
    if headline:
        out.print(printable(headline), style="bold", soft_wrap=True)
    names = [name for name in item if name not in hide]
    width = max((len(name) for name in names), default=0)
    for name in names:
        label = f"  {name.replace('_', ' '):<{width}}  "
        rows = item[name] if isinstance(item[name], list) and item[name] else None
        if rows is None or not isinstance(rows[0], dict):
            out.print(styled(label).append_text(styled(cell(item, name))), soft_wrap=True)
            continue
        for row in rows:  # a line each, under one label
            out.print(f"{label}{shown(row)}", soft_wrap=True)
            label = " " * len(label)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of text as they are, control characters escaped; a terminal breaks them, a file does not."""
    out = console()
    for text in lines:
        out.print(printable(text), soft_wrap=True)


def print_log(lines: Sequence[str]) -> None:
    """Print the end of a log to standard error."""
    for line in lines:
        sys.stderr.write(f"  | {printable(line)}\n")


def warn(text: str) -> None:
    """Print one warning line to standard error."""
    sys.stderr.write(f"warning: {printable(text)}\n")


def styled(text: str) -> Any:
    """Return text coloured where it is a state, or a refusal."""
    from rich.text import Text

    return Text(text, style=_STYLES.get(text.partition(":")[0].strip(), ""))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> Any:
    from rich.text import Text

    padded = [styled(text) + Text(" " * (width - len(text) + 2)) for text, width in zip(cells, widths, strict=True)]
    joined = Text().join(padded)
    joined.rstrip()
    return joined
