"""Every built-in sink passes the conformance kit that authors use."""

from __future__ import annotations

import io
import json
import re
import secrets
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest

from sense_worker.storage.engine import Database
from sense_worker.storage.rows import Rows
from sinks.conformance import Given, SinkConformance
from sinks.console import Console
from sinks.inbox import Inbox
from sinks.jsonl import Jsonl
from sinks.memory import Memory
from sinks.protocol import Retry
from sinks.redis_stream import RedisStream
from sinks.registry import BUILT_IN
from sinks.webhook import Webhook
from tests.sinks.webhook_receiver import HOST, SECRET, Receiver, said

PASSWORD = "pw-81f2c0d4"
LIMIT = 200


def lines(file: Path) -> list[str]:
    """Return the ids in a file of JSON lines."""
    return [json.loads(line)["id"] for line in file.read_text().splitlines()] if file.exists() else []


@contextmanager
def in_its_place(file: Path):
    """Put a folder in the place of a file."""
    kept = file.rename(file.with_suffix(".kept")) if file.exists() else None
    file.mkdir(parents=True)
    yield
    file.rmdir()
    if kept is not None:
        kept.rename(file)


class TestJsonl(SinkConformance):
    """A file of the operator's."""

    def make(self, tmp_path):
        """Write into a file of its own; who reads tells repeats by the id."""
        file = tmp_path / "events.jsonl"
        return Given(
            Jsonl,
            {"path": str(file)},
            seen=lambda: lines(file),
            repeats=True,
            away=lambda: in_its_place(file),
            rejected=lambda one: one._replace(body=b"no event"),
        )


class TestJsonlInWorkspaces(SinkConformance):
    """A file in each workspace."""

    def make(self, tmp_path):
        """Write into the workspace of the delivery."""
        return Given(
            Jsonl,
            {"workspace": True},
            workspace=tmp_path,
            seen=lambda: lines(tmp_path / ".sense" / "events.jsonl"),
            repeats=True,
            away=lambda: in_its_place(tmp_path / ".sense" / "events.jsonl"),
            rejected=lambda one: one._replace(workspace=None),
        )


class TestConsole(SinkConformance):
    """Standard output."""

    def make(self, tmp_path):
        """Print; nothing can be read back."""
        return Given(Console, rejected=lambda one: one._replace(body=b"no event"), away=self.closed)

    @contextmanager
    def closed(self):
        """Print onto a standard output that is closed."""
        closed = io.StringIO()
        closed.close()
        with redirect_stdout(closed):
            yield


class TestMemory(SinkConformance):
    """A recorder of this process."""

    def make(self, tmp_path):
        """Keep; what a forked child keeps is the child's. It rejects nothing by itself, only by a script."""
        Memory.forget()
        recorder = Memory.of("conformance")
        return Given(
            Memory,
            seen=lambda: [one.id for one in recorder.deliveries],
            repeats=True,
            shared=False,
            away=lambda: self.scripted(recorder),
        )

    @contextmanager
    def scripted(self, recorder):
        """Say Retry by the script."""
        recorder.outcomes += [Retry("away")] * 10
        yield
        recorder.outcomes.clear()


class TestInbox(SinkConformance):
    """A table in the ledger's database, written in its transaction."""

    @pytest.fixture(autouse=True)
    def _ledger(self, sqlite_url):
        self.ledger = Database(sqlite_url)
        yield
        self.ledger.dispose()

    def make(self, tmp_path):
        """Write in a transaction of the ledger: it answers nothing by itself, so nothing can be away or rejected."""
        return Given(Inbox, seen=self.seen, rows=self.rows)

    @contextmanager
    def rows(self):
        """Write rows in a transaction of its own."""
        with self.ledger.write() as connection:
            yield Rows(connection, self.ledger.kind)

    def seen(self):
        """Read the table."""
        with self.ledger.read() as connection:
            found = Rows(connection, self.ledger.kind).query("SELECT event_id, route_id FROM inbox_item")
        return [f"{bytes(event).hex()}.{route}" for event, route in found]


class TestRedisStream(SinkConformance):
    """A stream in the host's Redis."""

    @pytest.fixture(autouse=True)
    def _server(self, redis_server, redis_url):
        self.server, self.url = redis_server, redis_url.replace("://", f"://app:{PASSWORD}@")
        with redis_server.client() as client:
            client.acl_setuser("app", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], categories=["+@all"])
            yield
            client.acl_deluser("app")

    def make(self, tmp_path):
        """Add to a stream of its own, with a password that must not show."""
        self.stream = f"app:{secrets.token_hex(4)}"
        options = {"url": self.url, "stream": self.stream, "limit": LIMIT}
        hooks = {"seen": self.seen, "away": self.full, "rejected": lambda one: one._replace(body=b"no event")}
        return Given(RedisStream, options, secrets=(PASSWORD,), **hooks)

    def seen(self):
        """Read the stream."""
        with self.server.client(decode_responses=True) as client:
            return [fields["id"] for _, fields in client.xrange(self.stream)]

    @contextmanager
    def full(self):
        """Fill the stream to its limit."""
        with self.server.client() as client:
            filled = [client.xadd(self.stream, {"id": "filler"}) for _ in range(LIMIT - client.xlen(self.stream))]
            yield
            client.xdel(self.stream, *filled)


class TestWebhook(SinkConformance):
    """A receiver on loopback, which tells repeats by `webhook-id`."""

    @pytest.fixture(autouse=True)
    def _receiver(self):
        with Receiver() as self.receiver:
            yield

    def make(self, tmp_path):
        """Send the whole event; the secret signs and goes nowhere."""
        return Given(
            Webhook,
            {"url": self.receiver.url, "secret": SECRET, "payload": "full", "total_s": 0.4, "connect_s": 0.4},
            host=HOST,
            seen=lambda: [one.headers["webhook-id"] for one in self.receiver.received],
            repeats=True,
            away=lambda: self.answering(said(503)),
            hanging=lambda: self.answering(lambda _: self.receiver.over.wait(5)),
            rejected=lambda one: one._replace(body=b"no event"),
            secrets=(SECRET, SECRET.removeprefix("whsec_")),
        )

    @contextmanager
    def answering(self, answer):
        """Answer so, and keep nothing of it."""
        kept, before = list(self.receiver.received), self.receiver.answer
        self.receiver.answer = lambda _: answer
        yield
        self.receiver.received[:], self.receiver.answer = kept, before


def test_every_built_in_kind_is_here():
    """A kind that ships is in the kit's care, here or in a file of its own."""
    files = [file.read_text() for file in Path(__file__).parent.glob("test_*conformance*.py")]
    cared = {name for text in files for name in re.findall(r"Given\(\s*(\w+)", text)}
    assert {kind.__name__ for kind in BUILT_IN} - cared == set()
