"""The FastAPI example, end to end: uvicorn on loopback, a real Redis, a real worker for commands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sense_worker.operator import Operator
from sense_worker.tether import tethered
from tests.live.exec_worlds import ExecWorld, quick_on_one_kind
from tests.live.worlds import until

httpx = pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(180)
WEBAPP = Path(__file__).parents[2] / "examples/webapp/app.py"
PASSWORDS = {"ana": "open sesame", "bob": "a word of bob's"}


database_url = quick_on_one_kind


@pytest.fixture
def world(tmp_path, redis_url, database) -> Iterator[ExecWorld]:
    """A world whose operator is in t-red, with bob, who is granted nothing."""
    made = ExecWorld(tmp_path, redis_url, database)
    try:
        made.rows.principal("bob")
        made.rows.principal("host", operator=True)
        held = made.session("ses-the-host", "host")
        file = {"v": 1, "tenant": held.tenant, "principal": "host", "session_id": held.session_id}
        place = tmp_path / "operator.session"
        place.touch(0o600)
        place.write_text(json.dumps(file | {"secret": held.secret}))
        yield made
    finally:
        made.close()


@pytest.fixture
def address(world, tmp_path) -> Iterator[str]:
    """The address at which the web app answers; it ends with the test."""
    logins = tmp_path / "logins.json"
    logins.write_text(json.dumps(PASSWORDS))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        names = {"WEBAPP_LOGINS": str(logins), "WEBAPP_PACKS": "tool"}
        passed = {name: value for name, value in os.environ.items() if not name.startswith("SENSE_")}
        argv = [sys.executable, "-m", "uvicorn", "--factory", "app:from_environment", "--fd", str(listening.fileno())]
        with (tmp_path / "web.log").open("wb") as log:
            process = subprocess.Popen(
                tethered(argv),
                env={**passed, **world.env, **names},
                cwd=WEBAPP.parent,
                pass_fds=[listening.fileno()],
                stdout=log,
                stderr=log,
            )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)
    assert b"open sesame" not in (tmp_path / "web.log").read_bytes()


@contextmanager
def logged_in(address: str, name: str) -> Iterator[Any]:
    with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        entered = client.post("/login", json={"name": name, "password": PASSWORDS[name]})
        assert (entered.status_code, entered.content) == (204, b"")
        assert all(word in entered.headers["set-cookie"] for word in ("HttpOnly", "SameSite=strict", "Max-Age=900"))
        yield client


def test_who_logs_in_runs_commands(world, address):
    """A login gets a short session, runs what its principal may, answered by envelopes under fitting statuses."""
    world.commands()
    with logged_in(address, "ana") as ana, logged_in(address, "bob") as bob:
        said = ana.post("/exec/tool/tool.say", json={"args": {"text": "hello"}})
        envelope = {"ok": True, "pack_id": "tool", "verb_key": "tool.say", "result": {"stdout": "hello", "stderr": ""}}
        assert (said.status_code, said.json()) == (200, envelope)
        asked: dict[tuple[Any, str], tuple[str, dict[str, Any], int]] = {
            (ana, "not there"): ("tool/tool.none", {}, 404),
            (ana, "no such pack"): ("git/git.log", {}, 404),
            (ana, "wrong args"): ("tool/tool.say", {"args": {"text": 1}}, 422),
            (ana, "no request"): ("tool/tool.say", {"user": "bob"}, 422),
            (ana, "no timeout"): ("tool/tool.say", {"timeout_s": 0}, 422),
            (ana, "its own failure"): ("tool/tool.fail", {}, 502),
            (ana, "no id"): ("NO/tool.say", {}, 400),
            (bob, "granted nothing"): ("tool/tool.say", {"args": {"text": "x"}}, 403),
        }
        for (who, what), (path, body, status) in asked.items():
            answer = who.post(f"/exec/{path}", json=body)
            assert (what, answer.status_code) == (what, status), answer.text
        sessions = world.query("SELECT id, principal, expires_at - created_at FROM sense_session WHERE created_at > 1")
        assert {(principal, lasts) for _, principal, lasts in sessions} == {("ana", 900_000_000), ("bob", 900_000_000)}


@pytest.mark.long
def test_a_request_is_submitted_asked_for_and_cancelled(world, address):
    """Who does not wait is told where to ask, alone may ask there, and may cancel."""
    world.commands()
    with logged_in(address, "ana") as ana, logged_in(address, "bob") as bob:
        begun = ana.post("/exec/tool/tool.wait", json={"wait": False})
        place = begun.headers["location"]
        assert begun.status_code == 202
        assert bob.get(place).status_code == 404
        assert bob.delete(place).status_code == 404
        until(lambda: world.runs() == ["wait"])
        assert ana.get(place).status_code == 202
        assert ana.delete(place).status_code == 202
        until(lambda: ana.get(place).status_code == 409)
        assert ana.get(place).json()["error"] == "cancelled"


@pytest.mark.long
def test_a_key_runs_once(world, address):
    """A form sent twice under one key is one write; another under it is a conflict."""
    world.commands()
    with logged_in(address, "ana") as ana:
        twice = [ana.post("/exec/tool/tool.put", json={"idempotency_key": "k"}) for _ in range(2)]
        assert [answer.status_code for answer in twice] == [200, 200]
        assert ana.post("/exec/tool/tool.hold", json={"idempotency_key": "k"}).status_code == 409
    assert world.runs() == ["put"]


@pytest.mark.long
def test_who_is_not_logged_in_runs_nothing(world, address):
    """Without a login, with a wrong password, and after a logout, there is a 401, and the session is revoked."""
    with logged_in(address, "ana") as ana:
        with httpx.Client(base_url=address, trust_env=False) as stranger:
            assert stranger.post("/exec/tool/tool.put", json={}).status_code == 401
            for given in ({"name": "ana", "password": "wrong"}, {"name": "eve", "password": ""}):
                assert stranger.post("/login", json=given).status_code == 401
            assert stranger.get("/requests/x", headers={"Cookie": "login=guess"}).status_code == 401
        cookie = dict(ana.cookies)
        assert ana.post("/logout").status_code == 204
        ana.cookies.update(cookie)
        assert ana.post("/exec/tool/tool.put", json={}).status_code == 401
    revoked = world.query("SELECT count(*) FROM sense_session WHERE created_at > 1 AND revoked_at IS NOT NULL")
    assert revoked == [(1,)]


@pytest.mark.long
def test_without_a_worker_or_for_a_session_that_ended_it_says_so(world, address):
    """Nobody who reads is a 503 to be tried again; a session that the operator revoked is a 401."""
    with logged_in(address, "ana") as ana:
        nobody = ana.post("/exec/tool/tool.put", json={})
        assert (nobody.status_code, nobody.headers["retry-after"]) == (503, "1")
        world.commands()
        ((session_id,),) = world.query("SELECT id FROM sense_session WHERE created_at > 1")
        with Operator.open(world.settings, session_file=world.home / "operator.session") as operator:
            operator.revoke_session(session_id)
        answer = ana.post("/exec/tool/tool.put", json={})
        assert (answer.status_code, answer.json()["error"]) == (401, "denied: session revoked")
    assert world.runs() == []
