"""A request becomes a row, runs once, and is answered (DESIGN §8)."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from runtime_core.errors import ExecRefused
from runtime_core.runtime import Ran
from sense_worker.exec.record import ExecRecorder
from sense_worker.exec.run import Cancellations
from sense_worker.storage import tables
from tests.exec_bench import Bell

if TYPE_CHECKING:
    from runtime_core.execution import Call
    from tests.exec_bench import ExecBench


@pytest.mark.spec("1.5.result", "9.6.2")
def test_a_read_is_run_answered_and_recorded(bench: ExecBench):
    """A request is answered with its result, its row is done, and the audit has the tuple of §9.6."""
    request = bench.ask(args={"text": "hello"})

    bench.send(request)
    bench.drain()

    assert bench.answer(request).plain() == {
        "ok": True,
        "pack_id": "mail",
        "verb_key": "mail.read",
        "result": {"text": "hello"},
    }
    assert bench.rows_of() == ["done"]
    (line,) = bench.audited()
    named = {name: line[name] for name in ("action", "ok", "principal", "tenant", "pack_id", "key", "operation")}
    assert named == {
        "action": "exec",
        "ok": True,
        "principal": "ana",
        "tenant": "t-red",
        "pack_id": "mail",
        "key": "mail.read",
        "operation": "read",
    }


@pytest.mark.spec("9.7.envelope", "9.7.write")
def test_a_denial_is_an_envelope(bench: ExecBench):
    """A missing grant answers an envelope with `ok` false and the exact text; nothing ran."""
    bench.rows.revoke("ana-verb.exec.write")
    request = bench.ask("mail.write")

    bench.send(request)
    bench.drain()

    assert bench.answer(request).error == "denied: missing verb.exec.write for mail.write"
    assert bench.tool.ran == []


@pytest.mark.spec("4.5.3")
@pytest.mark.case("C19")
def test_a_gated_write_wants_its_confirmation(bench: ExecBench):
    """Without the boolean a gated write is refused before anything ran; with it, it runs."""
    plain, confirmed = bench.ask("mail.gated"), bench.ask("mail.gated", {"confirm": True})

    bench.send(plain, confirmed)
    bench.drain()

    assert bench.answer(plain).error == "confirm required"
    assert bench.answer(confirmed).ok
    assert bench.tool.ran == ["mail.gated"]


@pytest.mark.spec("9.6.1")
def test_a_write_has_its_line_before_its_effect(bench: ExecBench):
    """When a write's adapter is entered, the audit has its `begin` line, and its row says that it may have run."""
    seen: list[object] = []

    def look(_call: object) -> Ran:
        seen.append([line["action"] for line in bench.audited()])
        seen.append([bool(one) for one in bench.rows_of("write")])
        return Ran({})

    bench.tool.does["mail.write"] = look
    bench.send(bench.ask("mail.write"))
    bench.drain()

    assert seen == [["exec.begin"], [True]]
    assert [line["action"] for line in bench.audited()] == ["exec.begin", "exec.end"]


@pytest.mark.case("C36")
def test_a_write_whose_process_died_is_never_run_again(bench: ExecBench):
    """A write that was under way when its process died ends with its outcome unknown; it is not run a second time."""
    request = bench.ask("mail.write")
    bench.send(request)
    assert bench.runner(Cancellations())._may_begin(bench.claim())
    bench.lapse()

    bench.drain()

    assert bench.answer(request).error == "interrupted: outcome unknown"
    assert bench.tool.ran == []
    assert bench.rows_of() == ["done"]


@pytest.mark.case("C36")
def test_a_read_whose_process_died_runs_again(bench: ExecBench):
    """A read that was claimed by a process that died is run by the next, and answered once."""
    request = bench.ask()
    bench.send(request)
    bench.claim()
    bench.lapse()

    bench.drain()

    assert bench.answer(request).ok
    assert bench.tool.ran == ["mail.read"]


def test_a_process_that_lost_its_lease_begins_no_write(bench: ExecBench):
    """A process that was away for longer than its lease finds out before the effect, and leaves it to the other."""
    request = bench.ask("mail.write")
    bench.send(request)
    claimed = bench.claim()
    bench.lapse()
    bench.drain()

    assert not bench.runner(Cancellations())._may_begin(claimed)
    assert bench.tool.ran == ["mail.write"]
    assert bench.answer(request).ok


def test_the_same_entry_twice_is_one_request(bench: ExecBench):
    """A redelivered entry makes no second row, and is answered again once the result is there."""
    request = bench.ask()
    entry = bench.entry(request)
    assert bench.record(entry) == {"accepted": 1}
    assert bench.record(entry) == {"redelivered": 1}
    bench.drain()
    bench.redis.delete(request.reply_at)

    assert bench.record(entry) == {"redelivered": 1}

    assert bench.tool.ran == ["mail.read"]
    assert bench.answer(request).ok


@pytest.mark.parametrize("when", ["waiting", "done", "together"])
def test_one_idempotency_key_is_one_run(bench: ExecBench, when):
    """A second request under the key gets the result of the first, whether that waits, is done, or came with it."""
    first, second = (bench.ask("mail.write", {"text": "x"}, idempotency_key="k") for _ in range(2))
    if when == "together":
        bench.send(first, second)
    else:
        bench.send(first)
        if when == "done":
            bench.drain()
        bench.send(second)
    bench.drain()

    assert bench.tool.ran == ["mail.write"]
    assert bench.answer(first) == bench.answer(second)
    assert bench.answer(second).result == {"text": "x"}


def test_one_idempotency_key_is_not_for_another_request(bench: ExecBench):
    """Another body under the key is refused; the first is not touched."""
    first = bench.ask("mail.write", {"text": "x"}, idempotency_key="k")
    other = bench.ask("mail.write", {"text": "y"}, idempotency_key="k")

    bench.send(first, other)
    bench.drain()

    with pytest.raises(ExecRefused, match="refused: conflict"):
        bench.answer(other)
    assert bench.answer(first).ok
    assert bench.tool.ran == ["mail.write"]


@pytest.mark.parametrize("how", ["denied", "unconfirmed", "too late", "cancelled"])
def test_a_key_is_not_used_up_by_what_never_began(bench: ExecBench, how):
    """What was denied, not confirmed, not started or cancelled ran nothing: the next under its key is judged anew."""
    key = {"idempotency_key": "k"}
    first = bench.ask("mail.gated", timeout_s=0.001, **key) if how == "too late" else bench.ask("mail.gated", **key)
    if how == "denied":
        bench.rows.change(tables.GrantRow, {"id": "ana-verb.exec.write"}, expires_at=1)
    bench.send(first)
    if how == "cancelled":
        bench.send(bench.cancel(first))
    time.sleep(0.002)
    bench.drain()
    bench.rows.change(tables.GrantRow, {"id": "ana-verb.exec.write"}, expires_at=None)

    second, third = (bench.ask("mail.gated", {"text": "x", "confirm": True}, **key) for _ in range(2))
    bench.send(second)
    bench.drain()
    bench.send(third)

    assert not bench.answer(first).ok
    assert bench.answer(second).result == bench.answer(third).result == {"text": "x"}
    assert bench.tool.ran == ["mail.gated"]


def test_a_key_is_used_up_by_a_login_that_nobody_could_keep(bench: ExecBench):
    """A connect command ran, and its hub is not there: told as a refusal, and not run again under the key."""
    bench.grant("ana", "pack.connect")
    bench.tool.does["mail.login"] = lambda _: Ran({"identity": "ana@mail", "secret": {"token": "t"}})
    first, second = (bench.ask("mail.login", idempotency_key="k") for _ in range(2))
    for request in (first, second):
        bench.send(request)
        bench.drain()

    assert bench.answer(first) == bench.answer(second)
    assert bench.answer(first).error.startswith("binding unavailable")
    assert bench.tool.ran == ["mail.login"]


def test_a_key_is_used_up_by_what_ran_and_failed(bench: ExecBench):
    """A failure of the adapter is a result: the same key answers it again, and runs nothing."""
    bench.tool.does["mail.write"] = lambda _: Ran(error="exited 1")
    first, second = (bench.ask("mail.write", idempotency_key="k") for _ in range(2))
    for request in (first, second):
        bench.send(request)
        bench.drain()

    assert bench.answer(first) == bench.answer(second)
    assert bench.tool.ran == ["mail.write"]


def test_an_idempotency_key_is_its_principals_own(bench: ExecBench):
    """Two principals may use the same key for different things."""
    bench.rows.principal("bob")
    bench.rows.activation("a-bob", "bob")
    bob = bench.hold("ses-bob")
    bench.grant("bob", "verb.exec.write")
    mine, his = bench.ask("mail.write", idempotency_key="k"), bench.ask("mail.write", idempotency_key="k", held=bob)

    bench.send(mine, his)
    bench.drain()

    assert bench.tool.ran == ["mail.write", "mail.write"]


def test_what_nobody_waits_for_is_not_started(bench: ExecBench):
    """A request whose time is over when its turn comes is answered so, and does not run."""
    request = bench.ask("mail.write", timeout_s=0.001)
    bench.send(request)

    bench.drain()

    assert bench.answer(request).error == "deadline passed"
    assert bench.tool.ran == []


def test_a_request_is_cancelled_before_its_start(bench: ExecBench):
    """A cancelled request that has not started never does, and its client is told."""
    request = bench.ask("mail.write")
    bench.send(request)
    bench.send(bench.cancel(request))

    bench.drain()

    assert bench.answer(request).error == "cancelled"
    assert bench.tool.ran == []


def test_a_wish_to_cancel_may_come_first(bench: ExecBench):
    """Where another reader has the request still in hand, the wish to cancel it is remembered."""
    request = bench.ask("mail.write")
    bench.send(bench.cancel(request))
    bench.send(request)

    bench.drain()

    assert bench.answer(request).error == "cancelled"
    assert bench.tool.ran == []


@pytest.mark.parametrize(
    ("verb", "force", "ended"), [("read", False, True), ("write", False, False), ("write", True, True)]
)
def test_what_runs_is_cancelled_if_it_may_be(bench: ExecBench, verb, force, ended):
    """A running read is ended, a running write only by force."""
    request = bench.ask(f"mail.{verb}")
    started, found = threading.Event(), []

    def wait(call: Call) -> Ran:
        started.set()
        event = bench.event_of(call.facts.request_id)
        found.append(event.wait(2.0 if ended else 0.6))
        return Ran({}, "cancelled" if found[-1] else None)

    bench.tool.does[f"mail.{verb}"] = wait
    bench.send(request)
    drain = bench.a_drain()
    thread = threading.Thread(target=drain.run, args=("exec.interactive", Bell(), 0.01))
    thread.start()
    started.wait(10)
    bench.send(bench.cancel(request, force=force))
    thread.join(20)

    assert found == [ended]
    assert bench.answer(request).ok is not ended


@pytest.mark.spec("9.1.2")
@pytest.mark.parametrize("fault", ["session", "principal", "activation"])
def test_who_does_not_stand_is_told_so(bench: ExecBench, fault):
    """A revoked session, a disabled principal and a revoked activation are told by the texts of the table."""
    request = bench.ask()
    bench.send(request)
    changes = {
        "session": (tables.SessionRow, {"id": "ses-ana"}, {"revoked_at": 5}, "denied: session revoked"),
        "principal": (tables.PrincipalRow, {"id": "ana"}, {"disabled_at": 5}, "denied: principal disabled"),
        "activation": (tables.ActivationRow, {"id": "a-ana"}, {"revoked_at": 5}, "pack not activated: mail"),
    }
    table, key, values, text = changes[fault]
    bench.rows.change(table, key, **values)

    bench.drain()

    assert bench.answer(request).error == text
    assert bench.tool.ran == []


@pytest.mark.case("C13")
def test_the_tenant_is_the_sessions_own(bench: ExecBench):
    """A request that names another tenant, in its envelope or by its stream, gets nothing there."""
    envelope = bench.ask(args={"tenant": "t-blue", "principal": "eve"})
    other_stream = bench.entry(bench.ask())._replace(tenant="t-blue", stream="sense:t-blue:exec")

    bench.send(envelope)
    assert bench.record(other_stream) == {"unknown_credential": 1}
    bench.drain()

    assert bench.answer(envelope).ok
    assert {line["tenant"] for line in bench.audited() if line["action"] == "exec"} == {"t-red"}


def test_nothing_that_was_asked_or_answered_stands_in_clear(bench: ExecBench):
    """Args and results appear in no row, audit line, reply or log of the ledger."""
    canary = "canary-4711"
    request = bench.ask("mail.write", {"text": canary}, idempotency_key="k")
    bench.send(request)
    before = bench.rows_of("sealed")
    bench.drain()

    everything = [
        *before,
        *bench.rows_of("reply"),
        *bench.rows_of("error"),
        bench.settings.audit_file.read_bytes(),
        *bench.redis.lrange(request.reply_at, 0, -1),
        *(value if isinstance(value, bytes) else value.encode() for value in request.fields.values()),
    ]
    assert bench.answer(request).result == {"text": canary}
    assert [
        one for one in everything if one and canary.encode() in (one if isinstance(one, bytes) else one.encode())
    ] == []
    assert bench.rows_of("sealed") == [None]


def test_a_result_too_large_is_told_as_one(bench: ExecBench):
    """A result over a mebibyte is not answered; the text says the limit."""
    bench.tool.does["mail.read"] = lambda _: Ran("x" * (1024 * 1024))
    request = bench.ask()
    bench.send(request)

    bench.drain()

    assert bench.answer(request).plain()["error"] == "output over 1048576 bytes"
    assert "result" not in bench.answer(request).plain()


def test_what_an_adapter_raises_stays_inside(bench: ExecBench):
    """An exception of an adapter is an error of that read alone, told without its text."""

    def burst(_call: object) -> Ran:
        raise RuntimeError("canary")

    bench.tool.does["mail.read"] = burst
    burst_one, other = bench.ask(), bench.ask("mail.write")
    bench.send(burst_one, other)

    bench.drain()

    assert bench.answer(burst_one).error == "failed: internal"
    assert bench.answer(other).ok


def test_a_write_that_bursts_has_an_unknown_outcome(bench: ExecBench):
    """An exception in the middle of a write may have had its effect: its row is left to lapse, and then told so."""

    def burst(_call: object) -> Ran:
        raise RuntimeError

    bench.tool.does["mail.write"] = burst
    request = bench.ask("mail.write")
    bench.send(request)
    bench.drain()
    assert bench.answer(request) is None
    bench.lapse()

    bench.drain()

    assert bench.answer(request).error == "interrupted: outcome unknown"
    assert bench.tool.ran == ["mail.write"]


def test_sixteen_at_once_are_all_answered(bench: ExecBench):
    """More requests than a drain runs at a time are all answered, each with its own result."""
    requests = [bench.ask(args={"text": str(number)}) for number in range(16)]
    bench.send(*requests)

    bench.drain(width=4)

    assert [bench.answer(one).result for one in requests] == [{"text": str(number)} for number in range(16)]


def test_an_interactive_read_starts_where_it_was_recorded(bench: ExecBench):
    """A reader with room runs the read itself: no lane is rung; a write, bulk work, and what has no room is left."""
    engine = bench.engine(width=1)
    bench.recorder = ExecRecorder(bench.ports, bench.relaxed, bench.vault, bench.redis, 60.0, engine)
    read, more, write = bench.ask(args={"text": "x"}), bench.ask(), bench.ask("mail.write")
    bulk = bench.ask(lane="bulk")

    (recorded,) = bench.recorder.record([bench.entry(one) for one in (read, more, write, bulk)], int(time.time() * 1e6))
    while engine.busy:
        engine.settle(engine.hear(0.1), None)

    assert recorded.ring == {"exec.interactive", "exec.bulk"}
    assert bench.tool.ran == ["mail.read"]
    assert bench.answer(read).result == {"text": "x"}
    assert sorted(bench.rows_of()) == ["done", "pending", "pending", "pending"]


def test_a_reader_that_dies_leaves_its_reads_to_their_lease(bench: ExecBench, monkeypatch):
    """A read that was born under a reader's lease runs again when that reader is gone."""
    engine = bench.engine()
    monkeypatch.setattr(engine, "start", lambda *_, **__: None)  # the process dies between the commit and the run
    bench.recorder = ExecRecorder(bench.ports, bench.relaxed, bench.vault, bench.redis, 60.0, engine)
    request = bench.ask()
    bench.send(request)
    bench.drain()
    assert bench.answer(request) is None
    bench.lapse()

    bench.drain()

    assert bench.answer(request).ok
