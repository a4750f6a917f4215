"""`notify`: what is refused when it is added, and what several addresses make of one delivery."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.errors import UsageError
from sinks import notify
from sinks.notify_process import NoAnswer
from sinks.protocol import Delivered, Host, Rejected, Retry
from sinks.registry import Registry
from tests.sinks.deliveries import delivery

if TYPE_CHECKING:
    from collections.abc import Iterator

TWO = ["slack://MARK-a/MARK-b/MARK-c", "json://user:MARK-pass@hook.test/MARK-path"]
SERVICES = Host(services=("slack", "json"))


class Process:
    """Stands for Apprise's process; answers for each address what `answers` holds for it, in order."""

    made: list[Process]
    answers: dict[int, list[Any]]
    shown: tuple[str | None, ...] | list[str | None] = ("slack", "json://hook.test")

    def __init__(self, urls: list[str], networks: list[str]) -> None:
        self.made.append(self)
        self.pid = os.getpid()
        self.given = urls, networks
        self.said: list[dict[str, Any]] = []
        self.ended = False
        self._ready = False

    def say(self, what: dict[str, Any]) -> None:
        self.said.append(what)

    def answer(self, until: float) -> Any:
        if not self._ready:
            self._ready = True
            return {"shown": self.shown}
        answer = self.answers[self.said[-1]["at"]].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> None:
        self.ended = True


TAKEN = {"sent": True}


def failed(why: str, *, never: bool = False, after: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"sent": False, "why": why, "never": never, "after": after}


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> type[Process]:
    """Every process that is started, newest last."""
    monkeypatch.setattr(Process, "made", [], raising=False)
    monkeypatch.setattr(Process, "answers", {}, raising=False)
    monkeypatch.setattr(notify, "NotifyProcess", Process)
    return Process


@pytest.fixture
def sink(processes: type[Process]) -> Iterator[Any]:
    """A sink with two addresses."""
    sink = built(urls=TWO)
    sink.open()
    yield sink
    sink.close()


def built(host: Host = SERVICES, **options: Any) -> Any:
    return Registry(host).build("notify", "people", options)


def refused(host: Host = SERVICES, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        built(host, **options)
    assert "MARK" not in str(caught.value)
    return str(caught.value)


def attempts(processes: type[Process]) -> list[int]:
    return [said["at"] for process in processes.made for said in process.said]


def test_no_service_is_enabled_by_default():
    """The refusal names the service and the setting; the list is by schema, and each has to be on it."""
    assert refused(Host(), urls=TWO) == (
        "options.urls.0: the service slack is not enabled "
        "(the host's operator may name it in SENSE_NOTIFY_SERVICES=slack)"
    )
    assert refused(Host(services=("slack", "jsons")), urls=TWO).startswith("options.urls.1: the service json is not")


@pytest.mark.parametrize("url", ["syslog://", "dbus://", "gnome://", "macosx://", "windows://", "file:///MARK"])
def test_a_service_with_local_effects_is_none_unless_listed(url):
    """Nothing about a service makes it enabled but the list."""
    text = refused(urls=[url])
    assert "is not enabled" in text or "must be an Apprise address" in text


@pytest.mark.case("C47")
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.0.0.5:8080", "[::1]", "[::ffff:10.0.0.5]", "169.254.169.254", "localhost", "a.localhost."]
)
def test_an_internal_address_is_refused_when_it_is_added(host):
    """An address that is written out is refused before anything is looked up, unless its network is named."""
    url = f"json://user:MARK-pass@{host}/MARK"
    text = refused(urls=[url])
    assert text == (
        "options.urls.0: json is not reached: its address is internal; "
        "the operator may name its network in SENSE_SINK_NETWORKS"
    )
    built(Host(tuple(map(ip_network, ("0.0.0.0/0", "::/0"))), ("json",)), urls=[url])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "options.urls: field required"),
        ({"urls": []}, "options.urls: tuple should have at least 1 item"),
        ({"urls": ["MARK"]}, "options.urls.0: must be an Apprise address, service://…"),
        ({"urls": ["json://MARK\n"]}, "options.urls.0: must be an Apprise address"),
        ({"urls": ["json://MARK" + "x" * 2048]}, "options.urls.0: must be an Apprise address"),
        ({"urls": TWO * 11}, "options.urls: tuple should have at most 20 items"),
        ({"urls": TWO, "title": "{data.x}"}, "options.title: has a single brace"),
        ({"urls": TWO, "attach": "/etc/passwd"}, "options.attach: extra inputs are not permitted"),
    ],
)
def test_options_are_checked(options, reason):
    """Each mistake is refused by name, without a value."""
    assert refused(**options).startswith(reason)


@pytest.mark.case("C52")
def test_without_apprise_the_kind_is_there_and_says_what_it_wants(monkeypatch, processes):
    """Its options are checked all the same, and it may be added; opening names the extra."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    lacks = "sink kind notify: needs Apprise (pip install 'sense-worker[notify]')"
    Registry(SERVICES).try_out("notify", "people", {"urls": TWO})
    assert Registry(SERVICES).fault("notify", {"urls": TWO}) == lacks
    with pytest.raises(UsageError) as caught:
        built(urls=TWO).open()
    assert str(caught.value) == lacks
    assert processes.made == []


@pytest.mark.case("C52")
def test_the_kinds_are_listed_without_their_libraries():
    """Neither the list of kinds nor the options' check imports what a kind delivers with."""
    program = (
        "import sys; from sinks.registry import Registry; from sinks.protocol import Host; "
        "registry = Registry(Host(services=('json',))); "
        "registry.build('notify', 's', {'urls': ['json://hook.test']}); "
        "registry.build('redis_stream', 's', {'url': 'redis://h', 'stream': 'a'}); "
        "print(sorted({'apprise', 'requests', 'redis'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_address_of_no_service_is_refused_when_it_is_added(processes, monkeypatch):
    """Apprise is asked for what it takes each address, in a process that is ended again; nothing is sent."""
    monkeypatch.setattr(Process, "shown", ["slack", None])
    with pytest.raises(UsageError) as caught:
        Registry(SERVICES).try_out("notify", "people", {"urls": TWO})
    assert str(caught.value) == "options.urls.1: is no address of json to Apprise"
    assert [process.ended for process in processes.made] == [True]
    assert attempts(processes) == []


def test_an_address_that_became_none_waits_for_a_repair(sink, processes, monkeypatch):
    """After an upgrade of Apprise, say: the delivery is tried again, and tells which address."""
    monkeypatch.setattr(Process, "shown", ["slack", None])
    processes.answers = {0: [TAKEN]}
    assert sink.deliver([delivery(1)]) == [Retry("json (urls.1) is no address of this service to Apprise")]


def test_a_message_is_made_of_the_templates(processes):
    """Title and body are filled, the title is one line; every address is told the same."""
    sink = built(urls=TWO, title="{ref}\n{subject}", body="{{{principal}}} {data}")
    processes.answers = {0: [TAKEN], 1: [TAKEN]}
    outcome = sink.deliver([delivery(1)])
    assert outcome == [Delivered("slack (urls.0), json://hook.test (urls.1)")]
    message = {"title": "commit.created main", "body": '{ana} {"number":1}'}
    assert processes.made[0].said == [{"at": 0, **message}, {"at": 1, **message}]


def test_who_has_taken_it_is_not_told_again(sink, processes):
    """A retry reaches those alone who have not taken it; delivered once all have."""
    processes.answers = {0: [TAKEN], 1: [failed("answered 503", after=("7",)), TAKEN]}
    first = sink.deliver([delivery(1)])
    second = sink.deliver([delivery(1, attempt=2)])
    assert first == [Retry("json://hook.test (urls.1) answered 503", 7.0)]
    assert second == [Delivered("slack (urls.0), json://hook.test (urls.1)")]
    assert attempts(processes) == [0, 1, 1]


def test_an_address_that_refuses_for_good_ends_it_when_the_others_are_done(sink, processes):
    """It is not asked again; in the end the delivery is dead, and names it."""
    processes.answers = {0: [failed("answered 404", never=True)], 1: [failed("answered 500"), TAKEN]}
    outcomes = [*sink.deliver([delivery(1)]), *sink.deliver([delivery(1, attempt=2)])]
    assert outcomes == [
        Retry("slack (urls.0) answered 404; json://hook.test (urls.1) answered 500"),
        Rejected("slack (urls.0) answered 404"),
    ]
    assert attempts(processes) == [0, 1, 1]


def test_a_replay_begins_anew(sink, processes):
    """Once all have taken a delivery, nothing of it is remembered."""
    processes.answers = {0: [TAKEN, TAKEN], 1: [TAKEN, TAKEN]}
    sink.deliver([delivery(1)])
    sink.deliver([delivery(1)])
    assert attempts(processes) == [0, 1, 0, 1]


def test_what_is_remembered_is_bounded(sink, processes, monkeypatch):
    """Beyond the bound the oldest are forgotten: they are sent again, never lost."""
    monkeypatch.setattr(notify, "REMEMBERED", 2)
    processes.answers = {0: [TAKEN] * 4, 1: [failed("answered 500")] * 3 + [TAKEN] * 2}
    for number in (1, 2, 3):
        sink.deliver([delivery(number)])
    sink.deliver([delivery(1), delivery(2)])
    assert attempts(processes) == [0, 1] * 3 + [0, 1] + [1]


def test_what_hangs_is_ended_and_the_next_address_gets_a_new_process(sink, processes):
    """The hanging one is a Retry that names it; the other is told by a fresh process."""
    processes.answers = {0: [NoAnswer("gave no answer in time")], 1: [TAKEN]}
    outcome = sink.deliver([delivery(1)])
    assert outcome == [Retry("slack (urls.0) gave no answer in time")]
    assert [process.ended for process in processes.made] == [True, False]
    assert attempts(processes) == [0, 1]


def test_no_address_is_tried_beyond_the_time_of_a_call(sink, processes, monkeypatch):
    """What is left over is a Retry, not tried, so that the call ends within its deadline."""
    monkeypatch.setattr(notify, "CALL_S", 0.0)
    assert sink.deliver([delivery(1)]) == [
        Retry("slack (urls.0) was not tried: the others took 0 s; json (urls.1) was not tried: the others took 0 s")
    ]
    assert attempts(processes) == []


def test_a_body_that_is_no_event_is_rejected(sink):
    """There is no message to make of it."""
    reason = "the event does not become a message: the body is no JSON object with an object `data`"
    assert sink.deliver([delivery(1, body=b"[]")]) == [Rejected(reason)]


def test_a_child_starts_a_process_of_its_own(sink, processes):
    """After a fork the parent's process is not spoken to (C56)."""
    processes.answers = {0: [TAKEN], 1: [TAKEN]}
    processes.made[0].pid = -1  # as a child would find it
    sink.deliver([delivery(1)])
    assert len(processes.made) == 2
    assert (len(processes.made[0].said), processes.made[0].ended) == (0, False)
