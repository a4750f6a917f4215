from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sinks import memory
from sinks.memory import Memory
from sinks.protocol import Delivered, NoOptions, Outcome, Rejected, Retry
from tests.sinks.deliveries import delivery

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    Memory.forget()


def test_it_keeps_what_it_is_given():
    """Deliveries are kept in order and whole, with the sizes of their batches."""
    sink = Memory("m", NoOptions())
    batch = [delivery(1, subject="日本 😀"), delivery(2)]
    assert sink.deliver(batch) == [Delivered(), Delivered()]
    sink.deliver([delivery(3)])
    assert Memory.of("m").deliveries == [*batch, delivery(3)]
    assert Memory.of("m").batches == [2, 1]


def test_sinks_of_one_name_share_a_recorder():
    """Whoever built the sink, its recorder is found by its name; another name has its own."""
    Memory("m", NoOptions()).deliver([delivery(1)])
    Memory("m", NoOptions()).deliver([delivery(2)])
    Memory("n", NoOptions()).deliver([delivery(3)])
    assert Memory.of("m").deliveries == [delivery(1), delivery(2)]
    assert Memory.of("n").deliveries == [delivery(3)]


def test_scripted_outcomes_are_answered_in_order():
    """The script is used up one outcome a delivery; only what was Delivered counts as delivered."""
    sink = Memory("m", NoOptions())
    script: list[Outcome] = [Retry("not now", after=3.0), Delivered("seen"), Rejected("never", stop=True)]
    sink.recorder.outcomes[:] = script
    batch = [delivery(n) for n in range(4)]
    assert sink.deliver(batch) == [*script, Delivered()]
    assert sink.recorder.attempts == batch
    assert sink.recorder.deliveries == [batch[1], batch[3]]
    assert sink.recorder.outcomes == []


def test_a_scripted_exception_is_raised_for_the_batch():
    """An exception in the script stands for the whole batch: attempted, and nothing of it delivered."""
    sink = Memory("m", NoOptions())
    sink.recorder.outcomes[:] = [Delivered(), ConnectionError("away"), Retry("not now")]
    with pytest.raises(ConnectionError, match="away"):
        sink.deliver([delivery(1), delivery(2)])
    assert (sink.recorder.attempts, sink.recorder.deliveries) == ([delivery(1), delivery(2)], [])
    assert sink.deliver([delivery(1)]) == [Retry("not now")]


def test_opening_and_closing_are_counted():
    """A recorder knows how often its sinks were opened and closed."""
    first, second = Memory("m", NoOptions()), Memory("m", NoOptions())
    first.open()
    second.open()
    first.close()
    assert (first.recorder.opened, first.recorder.closed) == (2, 1)


def test_it_does_not_fill_the_machine(monkeypatch: pytest.MonkeyPatch):
    """Only the newest deliveries are kept."""
    monkeypatch.setattr(memory, "KEPT", 3)
    sink = Memory("m", NoOptions())
    sink.deliver([delivery(n) for n in range(5)])
    assert sink.recorder.deliveries == [delivery(2), delivery(3), delivery(4)]
    assert sink.recorder.attempts == sink.recorder.deliveries


def test_forgetting_starts_anew():
    """After `forget` a name has a fresh recorder."""
    Memory("m", NoOptions()).deliver([delivery(1)])
    Memory.forget()
    assert Memory.of("m").deliveries == []
