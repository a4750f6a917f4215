r"""Logs: one line a record, whatever is in it (C62).

Our records and those of the standard library's loggers (Celery, redis) take one way out. Control characters appear
escaped, line breaks too, so no value forges a second line or speaks to a terminal. A traceback is told in one line:
the errors from the last to the first cause, and the frames. A log that cannot be written stops nothing.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO, cast

from runtime_core.errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from structlog.typing import FilteringBoundLogger

    from sense_worker.settings import Settings

VALUE_LIMIT = 4_096
"""Characters of one value that a line shows: more is told as a count, so that a stranger cannot flood the log."""
FRAME_LIMIT = 20
DEPTH_LIMIT = 4
INTEGER_BITS = 64
_WANTED: list[tuple[int, Callable[[dict[str, Any]], str], _Out]] = []
"""What the next record configures structlog with, if anything: at most one."""
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Send all records to `stream` (None: standard error) in `log_format` from `log_level` up; may be called again."""
    level = _LEVELS[settings.log_level]
    render = _as_json if settings.log_format == "json" else _as_text
    out = _Out(stream)
    _WANTED[:] = [(level, render, out)]
    if "structlog" in sys.modules:
        _take_up()
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Bridge)]:
        root.removeHandler(handler)
    root.addHandler(_Bridge(out, render))
    root.setLevel(level)
    logging.captureWarnings(capture=True)


def log(name: str = "sense") -> FilteringBoundLogger:
    """Return the logger called `name`; `log().info("what happened", key=value)` is one record."""
    _take_up()
    import structlog

    return cast("FilteringBoundLogger", structlog.get_logger(source=name))


def _take_up() -> None:
    """Configure structlog as was last asked for, or, where nobody did, so that nothing goes to standard output."""
    import structlog  # rich comes with it, 0.14 s of CPU: who has nothing to tell does not pay it

    if not _WANTED and not structlog.is_configured():
        # structlog's own default prints to standard output, where commands put their JSON.
        _WANTED.append((logging.WARNING, _as_text, _Out(None)))
    for wanted in _WANTED:
        _configure(*wanted)
    _WANTED.clear()


def _configure(level: int, render: Callable[[dict[str, Any]], str], out: _Out) -> None:
    import structlog

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            lambda _logger, _method, event: render(_record(event)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: out,
        cache_logger_on_first_use=False,
    )


class _Out:
    """Where structlog and the standard library write whole lines. Its methods are named after the levels."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        stream = self._stream or sys.stderr  # looked up late: a host or a test may have replaced it
        try:
            try:
                stream.write(line + "\n")
            except UnicodeEncodeError:
                stream.write(line.encode("ascii", "backslashreplace").decode() + "\n")
            stream.flush()
        except (OSError, ValueError):  # a full disk, a closed pipe: what must be recorded is in the audit
            return

    debug = info = warning = error = critical = msg


class _Bridge(logging.Handler):
    """Takes in the records of the standard library's loggers."""

    def __init__(self, out: _Out, render: Callable[[dict[str, Any]], str]) -> None:
        super().__init__()
        self._out = out
        self._render = render

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):  # arguments that do not fit: show them rather than lose the record
            text = f"{record.msg} {record.args!r}"
        event = {"event": text, "level": record.levelname.lower(), "source": record.name, "exc_info": record.exc_info}
        self._out.msg(self._render(_record(event)))


def _record(event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Return the fields in their order, every value plain and bounded."""
    error = _exception(event.pop("exc_info", None))
    event.pop("stack_info", None)
    record: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": event.pop("level", "info"),
        "event": _plain(str(event.pop("event", ""))),
    }
    record.update((name, _plain(value)) for name, value in event.items())
    if error is not None:
        record["error"] = _plain(_chain(error))
        record["frames"] = _plain(_frames(error))
    return record


def _exception(exc_info: object) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return cast("BaseException | None", exc_info[1])
    return sys.exc_info()[1] if exc_info else None


def _chain(error: BaseException) -> str:
    told, texts, current = set[int](), list[str](), error
    while current is not None and id(current) not in told:
        told.add(id(current))
        texts.append(f"{type(current).__name__}: {current}")
        current = cast(
            "BaseException", current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        )
    return " <- ".join(texts)


def _frames(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-FRAME_LIMIT:]
    return " > ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)


def _plain(value: object, depth: int = 0) -> Any:
    """Return `value` as JSON can carry it: no NaN, no bytes, nothing deep, nothing long."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):  # Python refuses to write out integers of thousands of digits
        return value if value.bit_length() <= INTEGER_BITS else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth < DEPTH_LIMIT and isinstance(value, dict):
        return {_short(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if depth < DEPTH_LIMIT and isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    return _short(value if isinstance(value, str) else str(value))


def _short(text: str) -> str:
    return text if len(text) <= VALUE_LIMIT else f"{text[:VALUE_LIMIT]}… ({len(text)} characters)"


def _as_json(record: object) -> str:
    return json.dumps(record, allow_nan=False, separators=(",", ":"))  # escapes all but visible ASCII


def _as_text(record: Mapping[str, Any]) -> str:
    fields = dict(record)
    head = f"{fields.pop('at')} {fields.pop('level'):<7} {printable(fields.pop('event'))}"
    return " ".join([head, *(f"{printable(name)}={_quoted(value)}" for name, value in fields.items())])


def _quoted(value: object) -> str:
    if not isinstance(value, str):
        return _as_json(value)
    if value and value.isprintable() and not set(value) & {" ", '"', "=", "\\"}:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(escaped)}"'
