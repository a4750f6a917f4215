"""What a webhook connects to: public addresses and named networks, checked when added and at each connection."""

from __future__ import annotations

import socket
import threading
import time
from ipaddress import ip_network
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.egress import Egress, NotReached
from runtime_core.errors import UsageError
from sinks.protocol import NOTHING_ALLOWED, Delivered, Host, Retry
from tests.sinks.deliveries import delivery
from tests.sinks.webhook_receiver import HOST, Receiver, built, case, delivered, said

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTS: list[dict[str, Any]] = case("C47-addresses.json")
INTERNAL = "its address is internal; the operator may name its network in SENSE_SINK_NETWORKS"
PUBLIC = "1.1.1.1"


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sockets towards anything are made for addresses the guard let through; none of them connects: it is told here."""
    made: list[str] = []

    class Sockets(SimpleNamespace):
        def socket(self, family: int, *_: Any) -> socket.socket:
            made.append(socket.AddressFamily(family).name)
            raise OSError(111, "no test connects off loopback")

    monkeypatch.setattr("runtime_core.egress.socket", Sockets())
    return made


def answers(monkeypatch: pytest.MonkeyPatch, *found: list[str] | Exception | Callable[[], list[str]]) -> list[str]:
    """Let the name server answer these, one after the other and then the last for ever; returns the names asked."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        answer = found[min(len(asked), len(found)) - 1]
        if isinstance(answer, Exception):
            raise answer
        addresses = answer() if callable(answer) else answer
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))
            for one in addresses
        ]

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    return asked


def handed(url: str, host: Host = NOTHING_ALLOWED, **options: Any) -> Any:
    """Hand one delivery over under what a host allows."""
    sink = built(url, host, **options)
    sink.open()
    try:
        (outcome,) = sink.deliver([delivery()])
        return outcome
    finally:
        sink.close()


@pytest.mark.case("C47")
@pytest.mark.parametrize("one", HOSTS, ids=lambda one: one["host"])
class TestInternalAddresses:
    def test_as_a_literal(self, monkeypatch: pytest.MonkeyPatch, reached: list[str], one: dict[str, Any]):
        """An internal literal is refused when the sink is added; a public one is taken, and is what is connected to."""
        asked = answers(monkeypatch, [])
        url = f"https://{one['host']}/MARK"
        if one["allow"]:
            assert handed(url).reason.startswith(f"{one['host']} not reached: ")
            assert len(reached) == 1
        else:
            with pytest.raises(UsageError) as caught:
                built(url, NOTHING_ALLOWED)
            assert caught.value.place == "options.url"
            assert "SENSE_SINK_NETWORKS=" in caught.value.way_out
            assert "MARK" not in str(caught.value)
            assert reached == []
        assert asked == []

    def test_as_what_a_name_leads_to(self, monkeypatch: pytest.MonkeyPatch, reached: list[str], one: dict[str, Any]):
        """The same where a name leads there: refused when added, and again at the delivery, before any socket."""
        address = {"localhost": "127.0.0.1", "name.localhost": "::1"}.get(one["host"], one["host"].strip("[]"))
        answers(monkeypatch, [address.replace("%25", "%")])
        sink = built("https://hook.test/", NOTHING_ALLOWED)
        if one["allow"]:
            sink.probe()
        else:
            with pytest.raises(UsageError, match="its address is internal"):
                sink.probe()
        outcome = handed("https://hook.test/")
        assert isinstance(outcome, Retry)
        assert (outcome.reason == f"hook.test not reached: {INTERNAL}") == (not one["allow"])
        assert bool(reached) == one["allow"]

    def test_in_a_named_network(self, one: dict[str, Any]):
        """What the operator named is taken, in every spelling of an address in it."""
        everywhere = Host((ip_network("0.0.0.0/0"), ip_network("::/0")))
        assert built(f"https://{one['host']}/", everywhere).deadline_s


@pytest.mark.case("C47")
@pytest.mark.parametrize(
    ("named", "inside", "outside"),
    [
        ("10.1.0.0/16", "10.1.2.3", "10.2.0.1"),
        ("10.1.0.0/16", "::ffff:10.1.2.3", "::ffff:10.2.0.1"),
        ("100.64.1.0/24", "100.64.1.5", "100.64.2.5"),
        ("169.254.10.0/24", "169.254.10.1", "169.254.169.254"),
        ("127.1.0.0/16", "127.1.2.3", "127.0.0.1"),
        ("0.0.0.0/32", "0.0.0.0", "0.0.0.1"),
        ("239.1.0.0/16", "239.1.2.3", "239.2.0.1"),
        ("fd00:1::/32", "fd00:1::5", "fd00:2::5"),
    ],
)
class TestOneNamedRange:
    def test_as_a_literal(self, reached: list[str], named: str, inside: str, outside: str):
        """What lies in it is taken when added, and connected to; its neighbour of the same kind is refused."""
        host = Host((ip_network(named),))
        spelled = [f"https://[{one}]/" if ":" in one else f"https://{one}/" for one in (inside, outside)]
        with pytest.raises(UsageError, match="its address is internal"):
            built(spelled[1], host)
        assert reached == []
        outcome = handed(spelled[0], host)
        assert (isinstance(outcome, Retry), INTERNAL in outcome.reason, len(reached)) == (True, False, 1)

    def test_as_what_a_name_leads_to(
        self, monkeypatch: pytest.MonkeyPatch, reached: list[str], named: str, inside: str, outside: str
    ):
        """The same of a name: at the look when it is added, and again at the delivery, before any socket."""
        host = Host((ip_network(named),))
        answers(monkeypatch, [outside])
        with pytest.raises(UsageError, match="its address is internal"):
            built("https://hook.test/", host).probe()
        assert handed("https://hook.test/", host) == Retry(f"hook.test not reached: {INTERNAL}")
        assert reached == []
        answers(monkeypatch, [inside])
        built("https://hook.test/", host).probe()
        outcome = handed("https://hook.test/", host)
        assert (isinstance(outcome, Retry), INTERNAL in outcome.reason, len(reached)) == (True, False, 1)


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("127.0.0.1:18471", "127.0.0.0/8"),
        ("localhost", "127.0.0.0/8"),
        ("[::1]", "::1/128"),
        ("[::ffff:192.168.7.1]", "192.168.0.0/16"),
        ("172.20.0.5", "172.16.0.0/12"),
        ("169.254.169.254", "10.0.0.0/8"),
    ],
)
def test_the_example_holds_the_address_that_was_given(host: str, network: str):
    """What is shown as an example can be set as it is; metadata services are nobody's example."""
    with pytest.raises(UsageError) as caught:
        built(f"https://{host}/", NOTHING_ALLOWED)
    assert caught.value.way_out == f"such as SENSE_SINK_NETWORKS={network}"


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "1.1.1", "hook.0x7f", "127.0.0.1."]
)
def test_half_an_address_is_refused(reached: list[str], host: str):
    """What some resolvers take for an address and others for a name is neither."""
    with pytest.raises(UsageError, match=r"is neither a name nor an address in full|its address is internal"):
        built(f"https://{host}/", NOTHING_ALLOWED)
    assert reached == []


def test_plain_http_goes_into_named_networks_only(monkeypatch: pytest.MonkeyPatch, reached: list[str]):
    """Without a network it is refused when added; with one, a name that leads elsewhere is not connected to."""
    answers(monkeypatch, [PUBLIC])
    with pytest.raises(UsageError, match="plain http goes into the networks of SENSE_SINK_NETWORKS only"):
        built("http://hook.test/", NOTHING_ALLOWED)
    outcome = handed("http://hook.test/", HOST)
    assert outcome == Retry("hook.test not reached: plain http goes into the networks of SENSE_SINK_NETWORKS only")
    assert reached == []


@pytest.mark.case("C46")
@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.5", "::1", "fe80::1%eth0", "169.254.169.254"])
def test_no_socket_is_made_towards_what_was_not_let_through(reached: list[str], address: str):
    """The last look is at the address itself, whatever was checked before: no socket, and so no connection."""
    with pytest.raises(NotReached, match="its address is internal"):
        Egress((), "SENSE_SINK_NETWORKS").socket((socket.AF_INET, socket.SOCK_STREAM, 6, None, (address, 443)))
    assert reached == []


@pytest.mark.case("C46")
class TestNames:
    def test_public_when_added_and_loopback_when_delivered(self, monkeypatch: pytest.MonkeyPatch):
        """A name that was fine when it was looked at is looked at again; nothing arrives at the loopback listener."""
        asked = answers(monkeypatch, [PUBLIC], ["127.0.0.1"])
        with Receiver() as receiver:
            sink = built(f"https://hook.test:{receiver.port}/", NOTHING_ALLOWED)
            sink.probe()
            sink.open()
            (outcome,) = sink.deliver([delivery()])
            sink.close()
        assert outcome == Retry(f"hook.test:{receiver.port} not reached: {INTERNAL}")
        assert (asked, receiver.connections) == (["hook.test"] * 2, 0)

    @pytest.mark.parametrize("mixed", [[PUBLIC, "10.0.0.5"], ["10.0.0.5", PUBLIC], [PUBLIC, "::1"]])
    def test_a_mixed_answer_is_refused(self, monkeypatch: pytest.MonkeyPatch, reached: list[str], mixed: list[str]):
        """One internal address among public ones: none of them is connected to."""
        answers(monkeypatch, mixed)
        assert handed("https://hook.test/") == Retry(f"hook.test not reached: {INTERNAL}")
        assert reached == []

    def test_ipv6_loopback_only(self, monkeypatch: pytest.MonkeyPatch, reached: list[str]):
        """The same for a name that leads to ::1."""
        answers(monkeypatch, ["::1"])
        assert handed("https://hook.test/") == Retry(f"hook.test not reached: {INTERNAL}")
        assert reached == []

    def test_no_answer(self, monkeypatch: pytest.MonkeyPatch):
        """A name without an address is tried again later; when added it passes, for it may get one."""
        answers(monkeypatch, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
        built("https://hook.test/", NOTHING_ALLOWED).probe()
        assert handed("https://hook.test/") == Retry("hook.test not reached: its name has no address")

    def test_a_slow_answer(self, monkeypatch: pytest.MonkeyPatch):
        """A name server that takes its time ends the attempt at its limit, and holds no other sink's look-up up."""
        over = threading.Event()
        answers(monkeypatch, lambda: [PUBLIC] if over.wait(20) else [])
        with Receiver() as receiver:
            begun = time.monotonic()
            outcomes = [handed(f"https://hook{n}.test/", connect_s=0.2, total_s=0.5) for n in range(3)]
            assert time.monotonic() - begun < 3
            answers(monkeypatch, ["127.0.0.1"])
            assert delivered(f"http://hook.test:{receiver.port}/", delivery()) == [Delivered("200")]
        over.set()
        assert outcomes == [Retry(f"hook{n}.test not reached within 0.2 s") for n in range(3)]

    def test_an_internal_name_in_a_named_network(self, monkeypatch: pytest.MonkeyPatch):
        """A name that leads into a named network is delivered to."""
        answers(monkeypatch, ["127.0.0.1"])
        with Receiver() as receiver:
            sink = built(f"http://hook.test:{receiver.port}/")
            sink.probe()
            assert delivered(f"http://hook.test:{receiver.port}/", delivery()) == [Delivered("200")]
        assert receiver.received[0].headers["host"] == f"hook.test:{receiver.port}"


@pytest.mark.case("C45")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int):
    """Wherever it points, nothing arrives there; the attempt is a failure that says so."""
    with Receiver() as second, Receiver() as first:
        for location in case("C45-redirects.json"):
            place = location.replace("{listener}", str(second.port)).removesuffix(" (from https)")
            first.answer = lambda _, place=place: said(status, ("Location", place))
            assert delivered(first.url, delivery()) == [
                Retry(f"127.0.0.1:{first.port} answered {status}, which is not followed")
            ]
    assert (second.connections, len(first.received)) == (0, 9)
