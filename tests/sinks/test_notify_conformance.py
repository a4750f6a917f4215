"""`notify` passes the conformance kit: each sink with a process of its own, and, quickly, with Apprise in this one."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import contextmanager
from ipaddress import ip_network
from typing import Any

import pytest

from runtime_core.egress import Egress
from sinks import notify
from sinks.conformance import Given, SinkConformance
from sinks.notify import Notify
from sinks.notify_target import target
from sinks.notify_watch import Watch
from sinks.protocol import Host
from tests.sinks.receivers import ADDRESS, Answer, HttpReceiver

PASSWORD = "pw-53c1a7e0"
HOST = Host((ip_network(f"{ADDRESS}/32"),), ("json",))


class InThisProcess:
    """Apprise without its process: the kit opens many sinks, and an import of 1 s for each would say no more."""

    def __init__(self, urls: list[str], networks: list[str]) -> None:
        self.pid = os.getpid()
        watch = Watch(Egress([ip_network(one) for one in networks], ""))
        self._targets = [target(url, watch) for url in urls]
        self._answers: list[dict[str, Any]] = [{"shown": [one and one.shown for one in self._targets]}]

    def say(self, what: dict[str, Any]) -> None:
        self._answers.append(self._targets[what["at"]].send(what["title"], what["body"]))

    def answer(self, until: float) -> dict[str, Any]:
        assert time.monotonic() < until
        return self._answers.pop(0)

    def end(self) -> None: ...


class NotifyKit(SinkConformance):
    """A receiver that takes JSON, at an address with a password."""

    __test__ = False

    @pytest.fixture(autouse=True)
    def _receiver(self):
        self.status = 200
        with HttpReceiver(lambda path, body: Answer(self.status)) as self.receiver:
            yield

    def make(self, tmp_path):
        """Tell the id; who is told twice knows it by that."""
        url = f"json://user:{PASSWORD}@{ADDRESS}:{self.receiver.port}/"
        return Given(
            Notify,
            {"urls": [url], "title": "{id}"},
            host=HOST,
            seen=lambda: [json.loads(body)["title"] for _, body in self.receiver.requests],
            repeats=True,
            away=self.away,
            rejected=lambda one: one._replace(body=b"no event"),
            secrets=(PASSWORD,),
        )

    @contextmanager
    def away(self):
        """Answer 503 and keep nothing."""
        kept, self.status = list(self.receiver.requests), 503
        yield
        self.receiver.requests[:], self.status = kept, 200


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestInThisProcess(NotifyKit):
    """All that does not hang on the process."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def _in_this_process(self, monkeypatch):
        monkeypatch.setattr(notify, "NotifyProcess", InThisProcess)
        monkeypatch.setattr(logging.getLogger("apprise"), "disabled", True)  # as its process has it: it logs passwords


@pytest.mark.long
class TestInItsOwnProcess(NotifyKit):
    """As it is shipped."""

    __test__ = True
