"""What a receiver says goes into rows, audit and log, whatever characters it has: one line a decision (C62)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sense_worker.drain import Drain
from sinks.memory import Memory
from sinks.protocol import Delivered, Rejected, Retry, SinkBase
from sinks.raised import REASON_LIMIT
from sinks.registry import Registry
from tests.intake_bench import IntakeBench

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sense_worker.storage.engine import Database

STRINGS = json.loads((Path(__file__).parents[1] / "cases" / "C62-strings.json").read_text())
LANE = "t-red/remote"


class Remote(SinkBase):
    """A sink that is not local; it answers, or raises, as it is told to."""

    kind = "remote"

    def deliver(self, batch):
        outcomes = Memory.of("remote").take(batch)
        if outcomes == [Retry("raise")]:
            raise RuntimeError(Memory.of("remote").attempts[-1].subject)
        return outcomes


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """A recorder and a drain on each of the two databases, with ana granted and routed to that sink."""
    Memory.forget()
    registry = Registry()
    registry.register(Remote)
    bench = IntakeBench(tmp_path, database, registry, SENSE_RETRY_SCHEDULE_S="300", SENSE_RETRY_JITTER="0")
    bench.rows.sink("remote", "remote", audience="principal:ana")
    bench.rows.grant("ana")
    bench.rows.route("ana", sink="remote")
    yield bench
    bench.close()


@pytest.mark.case("C62")
@pytest.mark.parametrize("answer", [Retry, Rejected, Delivered], ids=lambda answer: answer.__name__)
def test_what_a_sink_answers_is_one_line_everywhere(bench, answer):
    """Each text of the fixture comes out of row, attempt and audit escaped, bounded, and as one record."""
    for number, text in enumerate(STRINGS, 1):
        Memory.of("remote").outcomes = [answer(text)]
        bench.record(bench.entry(message_id=f"m-{number}"))
        work = Drain(bench.ports).claim(LANE)
        Drain(bench.ports).hand_over(work.opened, work.batches[0], work.claimed_at)

    kept = bench.query("SELECT reason, receipt FROM sense_delivery UNION ALL SELECT reason, NULL FROM sense_attempt")
    said = [text for row in kept for text in row if text is not None]
    assert len(said) >= len(STRINGS)
    assert [text for text in said if not text.isprintable() or len(text) > REASON_LIMIT + len("rejected: ")] == []
    assert [line["action"] for line in bench.audited()] == ["sense.deliver"] * len(STRINGS)
    raw = bench.settings.audit_file.read_bytes()
    assert bytes(set(raw)).translate(None, bytes(range(0x20, 0x7F))) == b"\n"
    plain = [text for text in STRINGS if text.isprintable() and len(text) <= REASON_LIMIT]
    assert [text for text in plain if not any(text in one for one in said)] == []


@pytest.mark.case("C62")
def test_what_a_sink_raises_is_told_by_kind_and_place(bench):
    """An exception's text is in no row and in no line of the audit: it may hold anything."""
    for number, text in enumerate(STRINGS, 1):
        Memory.of("remote").outcomes = [Retry("raise")]
        subject = f"{text[:100]} marked".replace("\0", "")
        bench.record(bench.entry(message_id=f"m-{number}", subject=subject))
        work = Drain(bench.ports).claim(LANE)
        Drain(bench.ports).hand_over(work.opened, work.batches[0], work.claimed_at)

    reasons = {row[0] for row in bench.query("SELECT reason FROM sense_delivery")}
    assert [reason.partition(",")[0] for reason in reasons] == ["sink raised RuntimeError"]
    assert b"marked" not in bench.settings.audit_file.read_bytes()
    assert len(bench.audited()) == len(STRINGS)
