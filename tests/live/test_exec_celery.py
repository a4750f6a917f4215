"""Execute by way of Celery: a host's own app sends sealed requests, against a real worker for commands (DESIGN §8)."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

from runtime_core.envelope import ResultEnvelope
from runtime_core.errors import ExecRefused, ExecTimeout, UsageError
from sense_worker.client import CeleryCall, HeldSession, celery_call, seal_for_celery
from tests.live.exec_worlds import ExecWorld, quick_on_one_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(180)


database_url = quick_on_one_kind


@pytest.fixture
def world(tmp_path, redis_url, database) -> Iterator[ExecWorld]:
    """A world with a worker for commands, whose results are kept for ten minutes."""
    made = ExecWorld(tmp_path, redis_url, database, SENSE_EXEC_RESULT_S="600")
    try:
        made.commands()
        yield made
    finally:
        made.close()


@pytest.fixture
def web(world) -> Iterator[Celery]:
    """A host's app: it knows the broker and the name of a task, and nothing of this project."""
    url = world.settings.broker_url
    app = Celery("web", broker=url, backend=url, set_as_current=False)
    app.conf.update(task_serializer="json", accept_content=["json"], broker_connection_retry_on_startup=True)
    with closing(app):
        yield app


def sent(app: Celery, call: CeleryCall):
    return app.send_task(call.task, kwargs=call.kwargs, queue=call.queue, retry=False)


def test_a_call_comes_back_through_the_result_backend(world, web):
    """A host's Celery app gets the envelope that a client gets, and nothing it sends or gets is in clear."""
    call = seal_for_celery(world.held, "tool", "tool.say", {"text": "canary-in"}, timeout_s=60)
    assert json.loads(json.dumps(call.kwargs)) == call.kwargs
    answer = sent(web, call)
    envelope = call.opened(answer.get(timeout=60))
    assert envelope == ResultEnvelope(True, "tool", "tool.say", {"stdout": "canary-in", "stderr": ""})
    # Another process of the host, which has the arguments and the session, opens it too.
    assert celery_call(world.held, call.kwargs).opened(answer.get(timeout=60)) == envelope
    with world.client() as client:
        kept = client.get(f"celery-task-meta-{answer.id}")
        assert b"canary-in" not in kept
        assert 0 < client.ttl(f"celery-task-meta-{answer.id}") <= 600
    denied = seal_for_celery(world.held, "tool", "tool.none")
    assert denied.opened(sent(web, denied).get(timeout=60)).error == "unknown command: tool.none"
    assert world.asked("SELECT count(*) FROM sense_exec") == [(2,)]


@pytest.mark.long
def test_more_calls_than_slots_do_not_stand_in_each_others_way(world, web):
    """A pool full of waiting calls drains what they wait for: writes and the bulk lane end, each run once."""
    calls = [seal_for_celery(world.held, "tool", "tool.put", timeout_s=60) for _ in range(8)]
    calls += [seal_for_celery(world.held, "tool", "tool.say", {"text": f"{n}"}, lane="bulk") for n in range(8)]
    answers = [sent(web, call) for call in calls]
    found = [call.opened(answer.get(timeout=90)) for call, answer in zip(calls, answers, strict=True)]
    assert [one.ok for one in found] == [True] * 16
    assert [one.result["stdout"] for one in found[8:]] == [f"{n}" for n in range(8)]
    assert world.runs() == ["put"] * 8


@pytest.mark.long
def test_a_call_meets_the_same_door(world, web):
    """A repeated call is one request, one that fails its door is told its word, and a stranger is not answered."""
    call = seal_for_celery(world.held, "tool", "tool.put", timeout_s=60)
    assert [call.opened(sent(web, call).get(timeout=60)).ok for _ in range(2)] == [True, True]
    assert world.runs() == ["put"]
    refused = seal_for_celery(world.held, "NO ID", "tool.say")
    with pytest.raises(ExecRefused, match="refused: malformed"):
        refused.opened(sent(web, refused).get(timeout=60))
    stranger = seal_for_celery(HeldSession("t-red", "ses-none", "secret"), "tool", "tool.put", timeout_s=0.5)
    with pytest.raises(ExecTimeout):
        stranger.opened(sent(web, stranger).get(timeout=60))
    no_call = web.send_task(call.task, kwargs={"tenant": "t-red"}, queue=call.queue)
    with pytest.raises(Exception, match="must hold v, c, i, t, s and b"):
        no_call.get(timeout=60)
    assert world.runs() == ["put"]


def test_what_is_no_call_is_refused():
    """Arguments out of form, and an answer that is no base64, raise UsageError."""
    call = seal_for_celery(HeldSession("t-red", "ses-1", "secret"), "tool", "tool.put")
    entry = call.kwargs["entry"]
    wrong: list[dict[str, Any]] = [
        {"tenant": 1},
        {"timeout_s": "1"},
        {"timeout_s": True},
        {"entry": None},
        {"entry": entry | {"b": "é"}},
    ]
    for change in wrong:
        with pytest.raises(UsageError):
            celery_call(call.request.held, call.kwargs | change)
    with pytest.raises(UsageError):
        call.opened("*")
    assert "secret" not in repr(call.request.held)
