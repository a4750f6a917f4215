from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from sense_worker.logs import VALUE_LIMIT, _Bridge, configure, log
from sense_worker.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

C62 = json.loads((Path(__file__).parents[1] / "cases" / "C62-strings.json").read_text())
FORMATS = ("console", "json")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave the process's loggers as they were."""
    root = logging.getLogger()
    level, config = root.level, structlog.get_config()
    yield
    logging.captureWarnings(capture=False)
    for handler in [handler for handler in root.handlers if isinstance(handler, _Bridge)]:
        root.removeHandler(handler)
    root.setLevel(level)
    structlog.configure(**config)


def opened(log_format: str = "json", **options: Any) -> io.StringIO:
    stream = io.StringIO()
    configure(Settings(log_format=log_format, **options), stream)
    root = logging.getLogger()
    root.handlers[:] = root.handlers[-1:]  # not the test runner's, which breaks on what is broken on purpose
    return stream


def records(stream: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_says_when_how_grave_what_and_who():
    """Fields stand in one order, then the event's own; nothing is shown below the level."""
    stream = opened()
    log("drain").info("delivered", delivery="d1", attempts=2, late=None, ok=True)
    log().debug("not shown")
    (record,) = records(stream)

    assert list(record) == ["at", "level", "event", "source", "delivery", "attempts", "late", "ok"]
    assert list(record.values())[1:] == ["info", "delivered", "drain", "d1", 2, None, True]
    assert record["at"].endswith("Z")


def test_the_console_form_is_read_by_people():
    """Bare words stand bare; what has a space, a quote or an equals sign is quoted."""
    stream = opened("console")
    log().bind(tenant="t-red").warning("held", why='sink "x" paused', n=1, empty="", eq="a=b")

    assert stream.getvalue().split(" ", 1)[1] == (
        'warning held source=sense tenant=t-red why="sink \\"x\\" paused" n=1 empty="" eq="a=b"\n'
    )


@pytest.mark.case("C62")
@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("value", C62, ids=[ascii(value)[:20] for value in C62])
def test_no_value_makes_a_second_record(log_format: str, value: str):
    """Each string of the fixture as event, value, nested value, key, error text and foreign record is one line."""
    stream = opened(log_format)
    log().info(value)
    log().info("event", value=value, nested=[{"in": value}])
    log().info("event", **{value: 1})
    log().error("event", exc_info=ValueError(value))
    logging.getLogger("celery").error("stderr: %s", value)
    logging.getLogger(value).error(value)
    lines = stream.getvalue().split("\n")

    assert len(lines) == 7
    assert all(line.isprintable() for line in lines)


@pytest.mark.case("C62")
@example("a\x7fb\x9b\u2028\ud800\u202e")
@given(st.text(alphabet=st.characters(), max_size=30))
def test_any_text_is_one_printable_line(value: str):
    """Whatever the text, both forms are one line without control characters; the JSON form says the same."""
    for log_format in FORMATS:
        stream = opened(log_format)
        log().info("event", value=value)
        (line, rest) = stream.getvalue().split("\n")
        assert (line.isprintable(), rest) == (True, "")
    assert json.loads(line)["value"] == value


def test_a_long_value_is_cut_and_counted():
    """A stranger's long text does not flood the log; how long it was is told."""
    stream = opened()
    log().info("x" * 100_000, value="y" * 100_000)
    (record,) = records(stream)

    assert record["event"] == "x" * VALUE_LIMIT + "… (100000 characters)"
    assert record["value"] == "y" * VALUE_LIMIT + "… (100000 characters)"


def test_every_kind_of_value_has_a_json_form():
    """No NaN, no bytes, no endless nesting reaches the log, and none of them breaks it."""
    stream = opened()
    loop: list[Any] = []
    loop.append(loop)
    log().info(
        "event", nan=float("nan"), inf=[-float("inf")], raw=b"\x00", path=Path("/x"), loop=loop, big=10**5_000, f=1.5
    )
    (record,) = records(stream)

    assert "NaN" not in stream.getvalue()
    assert (record["nan"], record["inf"], record["path"], record["f"]) == ("nan", ["-inf"], "/x", 1.5)
    assert record["big"] == "an integer of 16610 bits"
    assert record["raw"] == "b'\\x00'"


@pytest.mark.parametrize("log_format", FORMATS)
def test_an_error_is_one_line_with_its_causes_and_frames(log_format: str):
    """The chain of causes and the frames are in the record itself, not on lines of their own."""
    stream = opened(log_format)
    try:
        try:
            raise KeyError("inner\nline")
        except KeyError as inner:
            raise RuntimeError("outer") from inner
    except RuntimeError:
        log().exception("it failed")
        logging.getLogger("celery").exception("it failed too")
    lines = stream.getvalue().splitlines()

    assert len(lines) == 2
    for line in lines:
        assert "RuntimeError: outer <- KeyError: " in line
        assert "test_logs.py:" in line
        assert line.isprintable()


def test_a_circle_of_causes_ends():
    """Errors that name each other as their cause are told once each."""
    stream = opened()
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    log().error("event", exc_info=one)
    (record,) = records(stream)

    assert record["error"] == "ValueError: one <- ValueError: two"


def test_records_of_the_standard_library_take_the_same_way():
    """Celery's and redis' records, and warnings, come in the same form, with their own levels and names."""
    stream = opened()
    logging.getLogger("celery.worker").warning("consumer %s", "lost")
    logging.getLogger("redis").info("shown")
    logging.getLogger("redis").debug("not shown")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old\nway", DeprecationWarning, stacklevel=1)
    found = [(record["level"], record["source"]) for record in records(stream)]

    assert found == [("warning", "celery.worker"), ("info", "redis"), ("warning", "py.warnings")]
    assert records(stream)[0]["event"] == "consumer lost"


def test_arguments_that_do_not_fit_are_shown_not_lost():
    """A library's broken format string costs no record and no traceback."""
    stream = opened()
    logging.getLogger("lib").error("%d of %d", "x")  # noqa: PLE1206 - broken on purpose
    (record,) = records(stream)

    assert record["event"] == "%d of %d ('x',)"


def test_configured_again_it_replaces_itself():
    """A second call does not double the lines."""
    first, second = opened("console"), io.StringIO()
    configure(Settings(log_format="json", log_level="error"), second)
    log().error("once")
    log().warning("not shown")
    logging.getLogger("lib").error("once")

    assert first.getvalue() == ""
    assert [record["event"] for record in records(second)] == ["once", "once"]


def test_a_logger_made_before_the_configuration_follows_it():
    """Modules make their logger when they are imported."""
    early = log("early")
    opened().close()
    early.info("lost")
    stream = opened()
    early.info("late")

    assert [(record["source"], record["event"]) for record in records(stream)] == [("early", "late")]


class _Full(io.StringIO):
    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_stream_that_fails_stops_nothing():
    """A full disk or a closed stream under the log raises nothing in the worker."""
    closed = io.StringIO()
    closed.close()
    for stream in (_Full(), closed):
        configure(Settings(), stream)
        log().error("lost")
        logging.getLogger("lib").error("lost")


def test_a_stream_that_knows_only_ascii_gets_escapes():
    """Where the stream cannot write a character, it is escaped; the record is not lost."""
    raw = io.BytesIO()
    configure(Settings(), io.TextIOWrapper(raw, encoding="ascii"))
    log().error("caf\u00e9")

    assert raw.getvalue().endswith(b"caf\\xe9 source=sense\n")


def test_without_a_configuration_standard_output_stays_clean():
    """A host that only publishes gets warnings on standard error; its own output is not written to."""
    program = "from sense_worker.logs import log; log('x').warning('seen'); log().info('not seen')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == ""
    assert done.stderr.endswith("warning seen source=x\n")
