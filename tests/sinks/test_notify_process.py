"""Apprise in its own process, against receivers on loopback: what arrives, what is refused, what becomes of it."""

from __future__ import annotations

import email
import gzip
import json
import os
import select
import socket
import subprocess
import sys
import time
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from runtime_core.egress import Egress, NotReached
from sinks.notify_process import NoAnswer, NotifyProcess
from sinks.notify_text import MARK, characters, units
from sinks.notify_watch import Watch
from sinks.protocol import Host, Rejected
from sinks.registry import Registry
from tests.guard.sitecustomize import NOTES
from tests.sinks.deliveries import delivery
from tests.sinks.receivers import ADDRESS, Answer, Hanging, HttpReceiver, MailReceiver

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 30.0
SWELLING = gzip.compress(bytes(64 * 1_048_576))
HOST = Host((ip_network(f"{ADDRESS}/32"),), ("json", "slack"))
PIECE = "e\u0301\U0001f469\u200d\U0001f469\u200d\U0001f466\U0001f1e9\U0001f1ea<&>word "
LONG = (PIECE * (10_000 // len(PIECE) + 1))[:10_000]


def answer_of(path: str, body: bytes) -> Answer:
    """Refuse for its length what a service with a limit of its own would; else answer the status in the path."""
    limit = {"/hooks/short": 4_000, "/hooks/a/b": 1_000}.get(path)
    if limit is not None:
        text = json.loads(body)["text"]
        return Answer(200 if units(text) <= limit else 400)
    status = path.rpartition("/")[2]
    if status == "swelling":
        return Answer(200, SWELLING, Content_Encoding="gzip")
    if status == "302":
        return Answer(302, Location="/elsewhere")
    return Answer(int(status) if status.isdigit() else 200, Retry_After="7")


class Place(NamedTuple):
    """One process with many addresses, and the receivers behind them."""

    process: NotifyProcess
    http: HttpReceiver
    mail: MailReceiver
    hanging: Hanging
    shown: dict[str, str | None]
    names: list[str]

    def send(self, name: str, title: str = "t", body: str = "b") -> Any:
        self.process.say({"at": self.names.index(name), "title": title, "body": body})
        return self.process.answer(time.monotonic() + WAIT_S)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """What the operator allows is the address of the receivers alone: every other of loopback is an internal one."""
    with HttpReceiver(answer_of) as http, MailReceiver() as mail, Hanging() as hanging:
        json_at = f"json://{ADDRESS}:{http.port}"
        urls = {
            "ok": f"{json_at}/ok",
            "swelling": f"{json_at}/swelling",
            "404": f"{json_at}/404",
            "429": f"{json_at}/429",
            "503": f"{json_at}/503",
            "302": f"{json_at}/302?redirect=yes",
            "refused": "json://127.0.0.2:1/",
            "hanging": f"json://{ADDRESS}:{hanging.port}/?rto=0.2",
            "localhost": f"json://localhost:{http.port}/",
            "mail": f"mailto://{ADDRESS}:{mail.port}/?from=sense@h.test&to=ana@h.test&smtp={ADDRESS}",
            "no mail": f"mailto://{ADDRESS}:{mail.port}/?from=sense@h.test&to=nobody@h.test&smtp={ADDRESS}",
            "internal mail": "mailto://localhost:25/?from=a@h.test&to=b@h.test&smtp=localhost",
            "short": f"mmost://{ADDRESS}:{http.port}/short",
            "shorter": f"rocket://a/b@{ADDRESS}:{http.port}/?avatar=no",
            "token": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general",
            "wrong": "slack://wrong",
        }
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("HTTP_PROXY", "http://127.0.0.1:1")
            environment.setenv("ALL_PROXY", "http://127.0.0.1:1")
            process = NotifyProcess(list(urls.values()), [f"{ADDRESS}/32"])
        shown = process.answer(time.monotonic() + WAIT_S)["shown"]
        yield Place(process, http, mail, hanging, dict(zip(urls, shown, strict=True)), list(urls))
        process.end()


def test_what_is_shown_is_the_host_where_it_is_one(place):
    """A token that stands in a host's place is not shown; an address of no service is known before it is used."""
    assert place.shown["ok"] == f"json://{ADDRESS}:{place.http.port}"
    assert place.shown["mail"] == f"mailto://{ADDRESS}:{place.mail.port}"
    assert (place.shown["token"], place.shown["wrong"]) == ("slack", None)


@pytest.mark.case("C42")
@pytest.mark.parametrize(
    ("name", "why", "never", "after"),
    [
        ("404", "answered 404", True, ["7"]),
        ("429", "answered 429", False, ["7"]),
        ("503", "answered 503", False, ["7"]),
        ("302", "answered 302", False, []),
        ("refused", "is not reached: Connection refused", False, []),
        ("hanging", "gave no answer in time", False, []),
        ("no mail", "answered 550", True, []),
    ],
)
def test_a_failure_is_told_with_its_cause(place, name, why, never, after):
    """Status or cause, whether another try may help, how long the receiver asks to wait; no redirect is followed."""
    before = len(place.http.requests)
    assert place.send(name) == {"sent": False, "why": why, "never": never, "after": after}
    assert [path for path, _ in place.http.requests[before:] if path == "/elsewhere"] == []


@pytest.mark.case("C53")
def test_of_what_is_raised_the_class_is_told():
    """Where nothing was seen on the network, an exception's text stays where it is."""
    watch = Watch(Egress((), "SENSE_SINK_NETWORKS"))
    assert watch.failure(RuntimeError("MARK")) == {
        "sent": False,
        "why": "did not take it, and Apprise does not say why: RuntimeError",
        "never": False,
        "after": (),
    }


def test_a_proxy_of_the_environment_is_not_used(place):
    """It would connect in our place to whatever it is told: the guard sees the proxy's address alone."""
    assert place.send("ok") == {"sent": True}


@pytest.mark.case("C49")
def test_an_answer_that_swells_is_not_unpacked_beyond_the_limit(place):
    """64 MiB in 64 KiB: the status counts, and the process grows by a few MiB at most."""
    place.send("ok")
    before = _peak_kib(place.process)
    assert place.send("swelling") == {"sent": True}
    assert _peak_kib(place.process) - before < 16_384


def _peak_kib(process: NotifyProcess) -> int:
    status = Path(f"/proc/{process._process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.case("C46")
@pytest.mark.case("C47")
@pytest.mark.parametrize("name", ["localhost", "internal mail"])
def test_an_internal_address_is_refused_before_it_is_connected_to(place, name):
    """A host that leads to an internal address gets no connection, over HTTP as over SMTP."""
    before = len(place.http.requests), len(place.mail.requests)
    why = "not reached: its address is internal; the operator may name its network in SENSE_SINK_NETWORKS"
    assert place.send(name) == {"sent": False, "why": why, "never": False, "after": []}
    assert (len(place.http.requests), len(place.mail.requests)) == before


@pytest.mark.case("C46")
@pytest.mark.parametrize(
    "answers", [["93.184.215.14", "10.0.0.5"], ["10.0.0.5", "93.184.215.14"], ["::1"], ["::ffff:127.0.0.1"]], ids=str
)
def test_a_name_with_an_internal_address_is_refused_as_a_whole(answers):
    """A look-up with one internal answer among public ones gives none."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 443)) for one in answers]
    look_up = Watch(Egress((), "SENSE_SINK_NETWORKS"))._looked_up(lambda *args: found)
    with pytest.raises(NotReached, match="internal"):
        look_up("hook.test", 443)


@pytest.mark.case("C46")
@pytest.mark.parametrize(
    ("event", "place", "why"),
    [
        ("socket.connect", ("10.0.0.5", 25), "its address is internal"),
        ("socket.sendto", ("10.0.0.5", 53), "its address is internal"),
        ("socket.sendmsg", ("::1", 53, 0, 0), "its address is internal"),
        ("socket.connect", ("hook.test", 443), "its name was not looked up here"),
        ("socket.connect", "/run/dbus/socket", "a socket of this machine"),
        ("socket.connect", b"/dev/log", "a socket of this machine"),
    ],
    ids=str,
)
def test_every_socket_is_asked_where_it_goes(event, place, why):
    """Whatever library makes it, and however it came by the address: the second answer of a name counts."""
    watch = Watch(Egress((), "SENSE_SINK_NETWORKS"))
    with pytest.raises(NotReached, match=why):
        watch._connecting(event, (None, place))
    watch._connecting(event, (None, ("93.184.215.14", 443)))
    watch._connecting("open", ("/etc/hosts",))


def test_mail_arrives(place):
    """One mail with title and text; what a stranger wrote makes no header."""
    assert place.send("mail", "commit by ana", "Grüße\nBcc: all") == {"sent": True}
    mail = email.message_from_bytes(place.mail.requests[-1])
    parts = [part.get_payload(decode=True) for part in mail.walk() if not part.is_multipart()]
    assert str(email.header.make_header(email.header.decode_header(mail["Subject"]))) == "commit by ana"
    assert "Grüße" in b"".join(parts).decode()
    assert mail["Bcc"] is None


@pytest.mark.case("C54")
@pytest.mark.parametrize(("name", "limit"), [("short", 4_000), ("shorter", 1_000)])
def test_a_long_message_arrives_shortened(place, name, limit):
    """10,000 characters with emoji and marks arrive within the limit, between whole characters, with a mark."""
    assert place.send(name, "title", LONG) == {"sent": True}
    text = json.loads(place.http.requests[-1][1])["text"]
    assert limit - 60 < units(text) <= limit
    assert text.endswith(MARK)
    plain = text.removesuffix(MARK).replace("\\", "")  # what Markdown needs counts, and is not read
    kept = list(characters(plain[plain.index("e\u0301") :]))
    assert kept == list(characters(LONG))[: len(kept)]


@pytest.mark.case("C42")
@pytest.mark.case("C54")
def test_a_refusal_for_good_is_not_tried_again(place):
    """The sink as a whole: 400 ends a delivery at once, and says by whom; the others have it."""
    at = f"{ADDRESS}:{place.http.port}"
    sink = Registry(HOST).build("notify", "people", {"urls": [f"json://{at}/400?MARK=MARK", f"json://{at}/ok"]})
    sink.open()
    before = len(place.http.requests)
    try:
        outcome = sink.deliver([delivery(1)])
    finally:
        sink.close()
    assert outcome == [Rejected(f"json://{at} (urls.0) answered 400")]
    sent = [json.loads(body) for _, body in place.http.requests[before:]]
    assert [(one["title"], one["message"]) for one in sent] == [("git: commit.created main", '{"number":1}')] * 2


@pytest.mark.case("C48")
def test_what_hangs_is_ended_in_the_middle_of_a_send(place):
    """A receiver that says nothing for longer than is waited for: the wait ends in time, and so does the process."""
    process = NotifyProcess([f"json://{ADDRESS}:{place.hanging.port}/?rto=30"], [f"{ADDRESS}/32"])
    process.answer(time.monotonic() + WAIT_S)
    connections = place.hanging.connections
    process.say({"at": 0, "title": "t", "body": "b"})
    begun = time.monotonic()
    with pytest.raises(NoAnswer, match="gave no answer in time"):
        process.answer(begun + 0.3)
    process.end()
    assert time.monotonic() - begun < 5
    assert place.hanging.connections == connections + 1
    assert process._process.poll() == -9


@pytest.mark.long
def test_the_guard_of_the_tests_holds_here_too(tmp_path, monkeypatch):
    """Were an address off this machine allowed, this process would be refused before it connects all the same."""
    notes = tmp_path / "notes"
    monkeypatch.setenv(NOTES, str(notes))
    process = NotifyProcess(["json://192.0.2.1:9/?cto=1"], ["192.0.2.0/24"])
    process.say({"at": 0, "title": "t", "body": "b"})
    process.answer(time.monotonic() + WAIT_S)
    answer = process.answer(time.monotonic() + WAIT_S)
    process.end()
    assert answer["sent"] is False
    assert "192.0.2.1" in notes.read_text()


def test_it_ends_with_its_worker():
    """A worker that is killed leaves no process behind."""
    program = (
        "import time; from sinks.notify_process import NoAnswer, NotifyProcess; "
        "process = NotifyProcess(['json://127.0.0.1:1/'], []); "
        "print(process._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        child = os.pidfd_open(int(worker.stdout.readline()))
        worker.kill()
        ready = select.select([child], [], [], WAIT_S)[0]
        os.close(child)
    assert ready == [child]
