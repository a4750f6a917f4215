"""What is secret on the way of a command stays where it belongs: looked for everywhere a run leaves anything."""

from __future__ import annotations

import threading
import traceback
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import redis
import sqlalchemy as sa
from celery import Celery

from runtime_core.errors import ExecRefused, ExecTimeout, UsageError
from sense_worker.client import seal_for_celery
from sense_worker.storage.engine import Database
from tests.live.exec_worlds import ExecWorld, quick_on_one_kind
from tests.live.worlds import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runtime_core.envelope import ResultEnvelope
    from sense_worker.client import RuntimeClient

TOOL = """#!/bin/sh
case "$1" in
  login) echo "canary-connect-noise $2" >&2
         printf '{"identity": "ana@service", "secret": "canary-material", "more": "canary-connect-more"}' ;;
  odd) echo "canary-connect-odd is no JSON" ;;
  show) echo "the token is $NOTES_TOKEN"; echo "$NOTES_TOKEN" >&2 ;;
  break) echo "$NOTES_TOKEN" >&2; exit 3 ;;
  add) echo "added" ;;
  wait) exec sleep 60 ;;
esac
"""
TEXT = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^[a-z-]*$"}}, "required": ["text"]}
VERBS: dict[str, tuple[str, dict[str, Any]]] = {
    "login": ("write", {"connect": True, "args": TEXT}),
    "odd": ("write", {"connect": True, "args": TEXT}),
    "show": ("read", {"args": TEXT}),
    "break": ("read", {"args": TEXT}),
    "wait": ("read", {"args": TEXT}),
    "add": ("write", {"args": TEXT}),
}
CANARIES = (
    *("canary-arg", "canary-password", "canary-material"),
    *("canary-connect-noise", "canary-connect-more", "canary-connect-odd"),
)

database_url = quick_on_one_kind


class Told:
    """All that Redis is told while it lasts, and at its end all that it holds."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, protocol=2, socket_timeout=120)  # a worker that starts says nothing
        self.commands: list[str] = []
        self._monitor = self._client.monitor()
        self._monitor.__enter__()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def everything(self) -> bytes:
        """End the listening; return what was said, and the keys with their values."""
        self._client.ping()
        until(lambda: any(" PING" in f" {one}" for one in self.commands[-50:]), what="the monitor's last command")
        self._ended.set()
        self._client.ping()
        self._thread.join(30)
        self._monitor.__exit__(None, None, None)
        held = [repr((key, self._value(key))) for key in self._client.scan_iter(count=1000)]
        self._client.close()
        return "\n".join([*self.commands, *held]).encode()

    def _listen(self) -> None:
        while not self._ended.is_set():
            self.commands.append(str(self._monitor.next_command()["command"]))

    def _value(self, key: bytes) -> Any:
        look = {
            b"string": lambda: self._client.get(key),
            b"list": lambda: self._client.lrange(key, 0, -1),
            b"stream": lambda: self._client.xrange(key),
            b"hash": lambda: self._client.hgetall(key),
            b"set": lambda: self._client.smembers(key),
            b"zset": lambda: self._client.zrange(key, 0, -1, withscores=True),
        }
        kind: Any = self._client.type(key)
        return look[kind]() if kind != b"none" else None


class CanaryWorld(ExecWorld):
    """Pack `tool`, bound to its user's credential in a file of this host, with a tool that tells all it knows."""

    def _tool(self) -> tuple[dict[str, Any], dict[str, Any]]:
        surface, policy = super()._tool()
        surface["binding"] = {"mode": "user", "hub": "local-credential", "env": {"NOTES_TOKEN": "secret"}}
        surface["verbs"] = {
            f"tool.{name}": {"summary": name, "cli": [str(self.home.parent / "tool"), name, "{text}"], **more}
            for name, (_, more) in VERBS.items()
        }
        policy["verbs"] = {
            f"tool.{name}": {"operation": operation, "privacy": {"land": "personal"}}
            for name, (operation, _) in VERBS.items()
        }
        return surface, policy

    def left(self) -> dict[str, bytes]:
        """Return every file under the home, and every row of both databases, by where they are."""
        found = {str(path): path.read_bytes() for path in self.home.rglob("*") if path.is_file()}
        for url in {self.env["SENSE_DATABASE_URL"], self.settings.requests_url}:
            database = Database(url)
            with database.read() as connection:
                names = sa.inspect(connection).get_table_names()
                rows = [(name, list(connection.execute(sa.text(f'SELECT * FROM "{name}"')))) for name in names]
            database.dispose()
            found[url] = repr(rows).encode()
            place = sa.engine.make_url(url).database or ""
            if url.startswith("sqlite"):  # what was deleted stands in its pages, too
                found |= {str(path): path.read_bytes() for path in self.home.parent.glob(f"{place.split('/')[-1]}*")}
        return found


@pytest.fixture
def world(tmp_path: Path, redis_url: str, database: Database) -> Iterator[CanaryWorld]:
    """A world on each kind of database; its tool stands beside the home."""
    home, tool = tmp_path / "home", tmp_path / "tool"
    home.mkdir()
    tool.write_text(TOOL)
    made = CanaryWorld(home, redis_url, database)
    made.allow("ana", "pack.connect")
    yield made
    made.close()


def run_all(world: CanaryWorld, client: RuntimeClient) -> dict[str, ResultEnvelope]:
    """Run commands of every kind of end, each with a canary in its args."""
    arg = {"text": "canary-arg"}
    found = {
        "not connected": client.exec("tool", "tool.show", arg),
        "odd": client.exec("tool", "tool.odd", {"text": "canary-password"}),
        "login": client.exec("tool", "tool.login", {"text": "canary-password"}),
        "invalid": client.exec("tool", "tool.show", {"text": "canary-arg NOT FIT"}),
        "unknown": client.exec("tool", "tool.nothing", arg),
    }
    for name in ("show", "break", "add"):
        found[name] = client.exec("tool", f"tool.{name}", arg, idempotency_key=f"key-{name}")
    found["timed out"] = client.submit("tool", "tool.wait", arg, timeout_s=2).result(wait_s=30)
    found["by Celery"] = by_celery(world, "tool.show", arg)
    cancelled = client.submit("tool", "tool.wait", arg)
    until(lambda: cancelled.status() == "accepted")
    cancelled.cancel()
    found["cancelled"] = cancelled.result()
    return found


def by_celery(world: CanaryWorld, verb: str, args: dict[str, Any]) -> ResultEnvelope:
    """Run a command as a host does that runs Celery."""
    url = world.settings.broker_url
    with closing(Celery("web", broker=url, backend=url, set_as_current=False)) as app:
        call = seal_for_celery(world.held, "tool", verb, args, timeout_s=60)
        return call.opened(app.send_task(call.task, kwargs=call.kwargs, queue=call.queue).get(timeout=60))


def raised(world: CanaryWorld) -> str:
    """Return the tracebacks of a client whose request cannot be asked for, is refused, or is not answered."""
    told, secret = [], {"text": "canary-arg"}  # by name: a traceback shows the line of the call
    with world.runtime() as client:
        with pytest.raises(ExecRefused) as turned:
            client.exec("NO ID", "tool.show", secret)
        told += traceback.format_exception(turned.value)
        for args, options in (({"text": "canary-arg", "n": float("nan")}, {}), ({"text": "canary-arg"}, {"lane": "x"})):
            with pytest.raises(UsageError) as refused:
                client.submit("tool", "tool.show", args, **options)  # type: ignore[arg-type]
            told += traceback.format_exception(refused.value)
        waiting = client.submit("tool", "tool.wait", {"text": "canary-arg"})
        with pytest.raises(ExecTimeout) as late:
            waiting.result(wait_s=0.05)
        told += [*traceback.format_exception(late.value), repr(waiting), repr(client), repr(world.held)]
        until(lambda: waiting.status() == "accepted")  # and it stays in its row, running
    return "".join(told)


@pytest.mark.timeout(300)
def test_no_canary_leaves_its_place(world):
    """Args, binding material, connect output and session secret appear in no log, line, key, row, result or error."""
    told = Told(str(world.settings.redis_url))
    world.commands(SENSE_LOG_LEVEL="debug")
    with world.runtime() as client:
        results = run_all(world, client)
    text_of_errors = raised(world)
    for worker in world.workers:
        worker.stop(90)

    shown = {"stdout": "the token is ***\n", "stderr": "***\n"}
    timed_out, invalid = results["timed out"].error or "", results["invalid"].error or ""
    assert (timed_out[:15], invalid[:19]) == ("timed out after", "invalid args: /text")
    assert {name: (one.error, one.result) for name, one in results.items()} == {
        "not connected": ("not connected: tool", None),
        "odd": ("the connect command answered no JSON", None),
        "login": (None, {"identity": "ana@service"}),
        "invalid": (invalid, None),
        "unknown": ("unknown command: tool.nothing", None),
        "show": (None, shown),
        "break": ("exited 3", {"stdout": "", "stderr": "***\n"}),
        "add": (None, {"stdout": "added\n", "stderr": ""}),
        "timed out": (timed_out, None),
        "by Celery": (None, shown),
        "cancelled": ("cancelled", None),
    }
    places = world.left() | {"redis": told.everything(), "errors": text_of_errors.encode()}
    places["results"] = repr([one.plain() for one in results.values()]).encode()
    whole = b"\n".join(places.values())
    for witness in (b"exec.begin", b"XADD sense:t-red:exec", b"tool.break", b"ana@service", b"exec intake reads"):
        assert witness in whole, "the search sees nothing"
    secrets = [*CANARIES, world.held.secret]
    leaks = [(secret[:20], place) for secret in secrets for place, held in places.items() if secret.encode() in held]
    assert leaks == []
