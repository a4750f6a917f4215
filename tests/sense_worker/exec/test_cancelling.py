"""A request that is cancelled before its start: who is answered, and what the audit says (DESIGN §8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runtime_core.envelope import ResultEnvelope

if TYPE_CHECKING:
    from tests.exec_bench import ExecBench


def test_a_cancelled_request_is_answered_by_its_name_and_audited(bench: ExecBench):
    """The envelope names pack and command, as every other does, and one line of the audit says who wanted it."""
    request = bench.ask("mail.write")
    bench.send(request)
    bench.send(bench.cancel(request))

    assert bench.answer(request) == ResultEnvelope(False, "mail", "mail.write", None, "cancelled")
    (line,) = [line for line in bench.audited() if line.get("reason") == "cancelled"]
    assert (line["action"], line["key"], line["ok"]) == ("exec", "mail.write", False)


@pytest.mark.parametrize("together", [True, False])
def test_those_under_its_key_are_cancelled_with_it(bench: ExecBench, together):
    """Requests under one idempotency key are one: each gets the answer, none is left waiting for ever."""
    requests = [bench.ask("mail.write", idempotency_key="k") for _ in range(3)]
    if together:
        bench.send(*requests)
    else:
        for request in requests:
            bench.send(request)
    bench.send(bench.cancel(requests[0]))
    bench.drain()

    assert {bench.answer(request).error for request in requests} == {"cancelled"}
    assert set(bench.rows_of()) == {"done"}
    assert bench.tool.ran == []


def test_one_that_waits_under_a_key_is_cancelled_alone(bench: ExecBench):
    """Who came later under a key may go without ending what came first."""
    first, later = (bench.ask("mail.write", idempotency_key="k") for _ in range(2))
    bench.send(first)
    bench.send(later)
    bench.send(bench.cancel(later))
    bench.drain()

    assert bench.answer(later).error == "cancelled"
    assert bench.answer(first).error != "cancelled"
    assert len(bench.tool.ran) == 1
