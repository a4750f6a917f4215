from __future__ import annotations

import io
import sys

import pytest

from sinks.console import Console
from sinks.protocol import Delivered, NoOptions, Rejected, Retry
from tests.sinks.deliveries import delivery


@pytest.fixture
def sink() -> Console:
    return Console("look", NoOptions())


def test_one_line_a_delivery(sink: Console, capsys: pytest.CaptureFixture[str]):
    """Each delivery is a line of standard output, in order."""
    sink.open()
    assert sink.deliver([delivery(1), delivery(2)]) == [Delivered(), Delivered()]
    sink.close()
    first, second = capsys.readouterr().out.splitlines()
    assert '{"number":1}' in first
    assert '{"number":2}' in second


def test_each_line_is_one_write(sink: Console, monkeypatch: pytest.MonkeyPatch):
    """A log proxy in the place of standard output gets one write a line and makes one record of it."""
    writes: list[str] = []
    proxy = io.StringIO()
    monkeypatch.setattr(proxy, "write", writes.append)
    monkeypatch.setattr(sys, "stdout", proxy)
    sink.deliver([delivery(1), delivery(2)])
    assert [line.count("\n") for line in writes] == [1, 1]


@pytest.mark.case("C62")
def test_an_ascii_terminal_takes_any_text(sink: Console, monkeypatch: pytest.MonkeyPatch):
    """Text of any script is escaped, so that a terminal without it raises nothing and obeys nothing."""
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding="ascii", errors="strict"))
    outcome = sink.deliver([delivery(1, subject="日本\x1b[2J\x9b2J", data={"é\n": "\x7f😀"})])
    assert outcome == [Delivered()]
    assert output.getvalue()[:-1].decode("ascii").isprintable()


def test_a_full_output_is_a_retry(sink: Console, monkeypatch: pytest.MonkeyPatch):
    """What cannot be printed is tried again."""
    with open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123 - a device, unbuffered
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=True))
        outcome = sink.deliver([delivery(1)])
    assert outcome == [Retry("standard output: No space left on device")]


def test_a_closed_output_is_a_retry(sink: Console, monkeypatch: pytest.MonkeyPatch):
    """A closed standard output is named as the reason."""
    output = io.StringIO()
    output.close()
    monkeypatch.setattr(sys, "stdout", output)
    assert sink.deliver([delivery(1)]) == [Retry("standard output: I/O operation on closed file")]


def test_a_body_that_is_no_event_dies_alone(sink: Console):
    """A delivery that cannot become a line is rejected; its neighbour is printed."""
    outcomes = sink.deliver([delivery(1, body=b"[]"), delivery(2)])
    reason = "the event does not become a line: the body is no JSON object with an object `data`"
    assert outcomes == [Rejected(reason), Delivered()]
