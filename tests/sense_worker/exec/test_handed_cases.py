"""Handed cases on the way of a queued command: what looks like a confirmation, a foreign tenant, a slow command."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.errors import ExecRefused
from runtime_core.runtime import Ran
from sense_worker.exec.wire import Place, build_request
from tests.exec_bench import LANE, Bell
from tests.provision import Rows

if TYPE_CHECKING:
    from runtime_core.execution import Call
    from sense_worker.exec.asking import Request
    from tests.exec_bench import ExecBench

CASES = Path(__file__).parents[2] / "cases"
CONFIRMS = json.loads((CASES / "C19-confirm-args.json").read_text())
FOREIGN = json.loads((CASES / "C13-foreign-tenant-exec.json").read_text())
OPEN = {"cli": [], "args": {"type": "object"}}
LAND = {"privacy": {"land": "personal"}}


@pytest.fixture
def mail(bench: ExecBench) -> ExecBench:
    """The bench, its pack with the commands of the cases: a gated write and a read, both with open args."""
    verbs = {"mail.send": OPEN, "mail.list": OPEN}
    entries = {"mail.send": {"operation": "write", "confirm": True, **LAND}, "mail.list": {"operation": "read", **LAND}}
    surface = {"id": "mail", "version": "1.1.0", "adapter": "wrap", "binding": {"mode": "public", "hub": "none"}}
    bench.rows.pack({**surface, "verbs": verbs}, {"surface_id": "mail", "version": 1, "verbs": entries})
    return bench


def sealed(bench: ExecBench, envelope: dict[str, Any], **members: Any) -> Request:
    """Return a request of ana's with exactly this envelope, as a client of anybody's making may seal it."""
    request = bench.ask("mail.list")
    plain = {
        "v": 1,
        "session_id": bench.held.session_id,
        "message_id": request.message_id,
        "project_id": None,
        "timeout_ms": 30_000,
        "idempotency_key": None,
        "lane": "interactive",
        "envelope": envelope,
        **members,
    }
    place = (bench.held.session_id, request.message_id, str(int(time.time())))
    fields = build_request(bench.held.secret.encode(), *place, json.dumps(plain).encode())
    return request._replace(fields=fields, place=Place(*place))


def error_of(bench: ExecBench, request: Request) -> str | None:
    """Return what a request was answered with, also where its door refused it."""
    try:
        answer = bench.answer(request)
    except ExecRefused as refused:
        return str(refused)
    assert answer is not None
    return answer.error


@pytest.mark.case("C19")
@pytest.mark.spec("4.5.2", "4.5.3", "9.7.confirm")
def test_only_the_boolean_true_confirms_a_queued_write(mail: ExecBench):
    """Every value of the case, off the queue: `confirm required` and nothing ran, or its one run."""
    asked = [(one, sealed(mail, one["envelope"])) for one in CONFIRMS]
    mail.send(*(request for _, request in asked))
    mail.drain()

    assert len(asked) == 19
    assert mail.tool.ran == ["mail.send"] * sum(one["pass"] for one in CONFIRMS)
    for one, request in asked:
        error = error_of(mail, request)
        if "confirm" in one["envelope"]:
            assert "refused: unknown_field" in str(error)
        else:
            assert error == (None if one["pass"] else "confirm required")
    assert sum(line["action"] == "exec.begin" for line in mail.audited()) == len(mail.tool.ran)


@pytest.mark.case("C13")
@pytest.mark.spec("9.2.1", "4.3.2", "1.1.principal")
def test_a_foreign_tenant_in_a_request_has_no_effect(mail: ExecBench):
    """In args it is an arg; in envelope, request or stream field it is refused; nothing is read or written there."""
    blue = Rows(mail.database, mail.vault, "t-blue")
    blue.principal("p-blue")
    foreign = {"tenant": "t-blue", "tenant_id": "t-blue", "principal": "p-blue"}
    plain = {"pack_id": "mail", "verb_key": "mail.list", "args": {}}
    in_args = sealed(mail, FOREIGN)
    refused = [sealed(mail, {**plain, name: value}) for name, value in foreign.items()]
    refused += [sealed(mail, plain, **{name: value}) for name, value in foreign.items()]
    as_another = sealed(mail, plain, session_id="ses-t-blue-p-blue")
    named = mail.entry(sealed(mail, plain), tenant=b"t-blue")

    mail.send(in_args, *refused, as_another)
    mail.record(named)
    mail.drain()

    assert mail.answer(in_args).ok
    assert {"refused: unknown_field" in str(error_of(mail, one)) for one in refused} == {True}
    assert "refused: malformed" in str(error_of(mail, as_another))
    assert mail.tool.ran == ["mail.list"]
    assert [(line["tenant"], line["principal"]) for line in mail.audited() if line["ok"]] == [("t-red", "ana")]
    assert {line["tenant"] for line in mail.audited()} <= {"t-red", None}
    assert set(mail.rows_of("tenant")) == {"t-red"}


@pytest.mark.case("C03")
def test_a_slow_command_is_in_nobody_elses_hands(mail: ExecBench):
    """Eight together, two processes with two slots each, redelivered meanwhile: never two hold one, each runs once."""
    holding: Counter[str] = Counter()
    most: Counter[str] = Counter()
    lock, four, go_on = threading.Lock(), threading.Semaphore(0), threading.Event()

    def slow(call: Call) -> Ran:
        number = str(call.facts.envelope.own_args["n"])
        with lock:
            holding[number] += 1
            most[number] = max(most[number], holding[number])
        four.release()
        go_on.wait(30)
        with lock:
            holding[number] -= 1
        return Ran({"n": number})

    mail.tool.does = {"mail.list": slow, "mail.send": slow}
    keys = ["mail.list", "mail.send"] * 4
    requests = [mail.ask(key, {"n": number, "confirm": True}) for number, key in enumerate(keys)]
    entries = [mail.entry(one) for one in requests]
    mail.record(*entries)
    drains = [threading.Thread(target=mail.a_drain(2).run, args=(LANE, Bell(), 0.01)) for _ in range(2)]
    for drain in drains:
        drain.start()
    assert [four.acquire(timeout=30) for _ in range(4)] == [True] * 4
    again = mail.record(*entries)
    go_on.set()
    for drain in drains:
        drain.join(60)
    mail.drain()

    assert again == {"redelivered": 8}
    assert sorted(most.items()) == [(str(number), 1) for number in range(8)]
    assert sorted(mail.tool.ran) == sorted(keys)
    assert [mail.answer(one).result for one in requests] == [{"n": str(number)} for number in range(8)]
    assert set(mail.rows_of()) == {"done"}
    assert set(mail.rows_of("attempt")) == {1}
