"""Values typed at a terminal: durations, `name=value` options, JSON given inline, in a file or on standard input."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime_core.errors import DoorError, UsageError
from runtime_core.event import BODY_LIMIT
from sense_worker.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)

Json = Annotated[bool, typer.Option("--json", help="Print JSON (a versioned contract) instead of text.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most this many, the newest.")]
Expires = Annotated[
    str | None, typer.Option("--expires", metavar="DURATION", help="Ends after this long: 90s, 15m, 12h, 30d.")
]
Overlap = Annotated[
    str | None,
    typer.Option(
        "--overlap",
        metavar="DURATION",
        help="How long the secret before stays good: 15m, 12h; 0 ends it now. Default: SENSE_ROTATE_OVERLAP_S.",
    ),
]
Project = Annotated[str | None, typer.Option("--project", metavar="PROJECT", help="A project of the tenant.")]
SinkName = Annotated[str, typer.Argument(metavar="SINK")]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="A text; NAME:=JSON for a number, true, a list; a secret also NAME=@FILE, NAME=- for stdin. Repeatable.",
    ),
]
OptionsJson = Annotated[
    str | None, typer.Option("--options-json", metavar="JSON", help="All options as one object, @FILE, or - for stdin.")
]


def example(arguments: str) -> str:
    """Return the help epilog that shows one call; a test runs every one of them through the parser."""
    return f"Example:  sense-worker {arguments}"


def duration(text: str, place: str) -> float:
    """Return the seconds of `90s`, `15m`, `12h` or `30d`; raises UsageError naming `place`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise UsageError(place, f"{text!r} is no duration", "write 90s, 15m, 12h or 30d")
    return float(int(match[1]) * _UNITS[match[2]])


def optional_duration(text: str | None, place: str) -> float | None:
    """Return the seconds of a duration, or None where none was given."""
    return None if text is None else duration(text, place)


def overlap(text: str | None) -> float | None:
    """Return the seconds of `--overlap`, 0 among them, or None where it was not given; raises UsageError."""
    return 0.0 if text is not None and text.strip() in ("0", "0s") else optional_duration(text, "--overlap")


def pairs(texts: Iterable[str], place: str, form: str = "NAME=VALUE") -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping; raises UsageError for one without `=`, a name given twice, odd bytes."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.removesuffix(":"):
            raise UsageError(place, f"{text!r} is not {form}", f"write {place} {form}")
        if any("\ud800" <= character <= "\udfff" for character in text):  # how argv holds a byte that is no text
            raise UsageError(place, f"{name!r} is not UTF-8", "write name and value as UTF-8")
        if name in found:
            raise UsageError(place, f"{name!r} is given twice", "give each name once")
        found[name] = value
    return found


def options(texts: Iterable[str], json_text: str | None, secrets: Collection[str] = ()) -> dict[str, Any]:
    """Return options from `--option` and `--options-json` together.

    `name=value` is text; `name:=json` is a JSON value (a number, true, a list). The text of one of `secrets` may stand
    elsewhere: `name=@FILE`, or `name=-` for standard input. Raises UsageError.
    """
    given = {} if json_text is None else json_object(json_text, "--options-json")
    for name, value in pairs(texts, "--option").items():
        plain = name.removesuffix(":")
        if plain in given:
            raise UsageError("--option", f"{plain!r} is given twice", "give each name once")
        if name != plain:
            given[plain] = json_value(value, f"--option {plain}")
        else:
            given[plain] = _secret(value, f"--option {plain}") if plain in secrets else value
    return given


def _secret(text: str, place: str) -> str:
    """Return a secret that stands in a file or on standard input; the line break at its end is not of it."""
    if text == "-":
        data = sys.stdin.buffer.read(BODY_LIMIT + 1)
    elif text.startswith("@"):
        data = read_file(Path(text[1:]), place)
    else:
        return text
    try:
        read = data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UsageError(place, "is not UTF-8", "write it as UTF-8") from None
    if not read or len(data) > BODY_LIMIT:
        raise UsageError(place, "is empty or over 256 KiB", "give the secret alone")
    return read


def json_object(text: str, place: str) -> dict[str, Any]:
    """Return the JSON object that `text` is, or names: `@FILE`, or `-` for standard input.

    As strict as every other door (DESIGN §4); raises UsageError naming the place in the document.
    """
    from runtime_core.strict_json import parse_object

    if text == "-":
        data = sys.stdin.buffer.read(BODY_LIMIT + 1)
    elif text.startswith("@"):
        data = read_file(Path(text[1:]), place)
    else:
        data = text.encode("utf-8", "surrogateescape")
    with _refused():
        return parse_object(data, limit=BODY_LIMIT, what=place)


def json_value(text: str, place: str) -> Any:
    """Return any JSON value, as strictly as `json_object`. Raises UsageError."""
    from runtime_core.strict_json import parse

    with _refused():
        return parse(text.encode("utf-8", "surrogateescape"), limit=BODY_LIMIT, what=place)


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except DoorError as error:
        raise UsageError(error.place, error.reason, error.way_out) from None


def read_file(path: Path, place: str) -> bytes:
    """Return the bytes of a regular file, one over the bound at most. Raises UsageError naming the option and file."""
    try:
        return read_regular(path.expanduser(), BODY_LIMIT)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: there is no home of that name; ValueError: NUL
        reason = getattr(error, "strerror", None) or error
        raise UsageError(place, f"{path}: {reason}", "name a readable file") from None
