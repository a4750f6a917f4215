"""What a request may reach, and what it carries there: named networks only, and a masked credential."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from runtime_core.addresses import is_named, is_public, parse_networks
from tests.runtime_core.adapters.calling import (
    KEY,
    LOOPBACK,
    USER,
    Called,
    Service,
    document,
    json_body,
    operation,
    parameter,
    said,
)
from tests.runtime_core.adapters.wrapping import CASES

HOSTS: list[dict[str, Any]] = json.loads((CASES / "C47-addresses.json").read_text())


class TestCredential:
    def test_it_comes_back_masked(self, service: Service) -> None:
        """An echo of the credential is masked in texts, names and numbers, in failures too."""
        for status in (200, 401):
            service.answer = lambda one, status=status: said(
                {one.headers["Authorization"]: [f"you sent {one.headers['Authorization']}"]}, status
            )(one)
            answer = Called().run(document(service.origin, operation()), binding=USER)
            assert KEY not in json.dumps(answer.plain())
            assert answer.result["body"] == {"Bearer ***": ["you sent Bearer ***"]}
        service.answer = said(f"<p>{KEY}</p>".encode(), media="text/html")
        assert Called().run(document(service.origin, operation()), binding=USER).result["body"] == "<p>***</p>"

    def test_in_other_spellings(self, service: Service) -> None:
        """Escaped as in JSON or in an address it is still the credential; a number may be one too."""
        world = Called()
        world.world.hub.fields = {"secret": 'a"b/c d', "pin": "48151623"}
        service.answer = said({"x": 'a%22b%2Fc%20d and a\\"b/c d', "pin": 48151623, "on": True})
        answer = world.run(document(service.origin, operation()), binding=USER)
        assert answer.result["body"] == {"x": "*** and ***", "pin": "***", "on": True}

    def test_a_field_by_its_name(self, service: Service) -> None:
        """A mapping without braces is the name of a field."""
        binding = {**USER, "headers": {"X-Key": "secret"}}
        Called().run(document(service.origin, operation()), binding=binding)
        assert service.received[0].headers["X-Key"] == KEY

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"other": "x"}, "the credential has no field 'secret'"),
            ({"secret": "a\r\nX-Evil: 1"}, "the credential is no header value"),
            ({"secret": "ключ"}, "the credential is no header value"),
        ],
    )
    def test_without_it_nothing_is_sent(self, service: Service, fields: dict[str, str], error: str) -> None:
        """A request that should carry a credential never goes without one, and none forges a header."""
        world = Called()
        world.world.hub.fields = fields
        answer = world.run(document(service.origin, operation()), binding=USER)
        assert (answer.error, service.received) == (error, [])

    def test_no_arg_sets_its_header(self, service: Service) -> None:
        """A header parameter of the document that carries the credential is no arg."""
        declared = [parameter("X-Key", "header", {"type": "string"}, required=True)]
        binding = {**USER, "headers": {"x-key": "secret"}}
        found = document(service.origin, operation(parameters=declared))
        answer = Called().run(found, {"X-Key": "mine"}, binding=binding)
        assert answer.error == "invalid args: /X-Key: the operation has no such parameter"
        assert Called().run(found, {}, binding=binding).ok
        assert [one.headers["x-key"] for one in service.received] == [KEY]

    def test_a_connect_command(self, service: Service) -> None:
        """Its answer goes to the hub and no further; it carries no credential, for there is none yet."""
        service.answer = said({"identity": "ana@x", "secret": "fresh-key-1"}, 201)
        world = Called()
        found = document(service.origin, operation("post", requestBody=json_body({"type": "object"})))
        answer = world.run(found, {"code": "1"}, binding=USER, verb={"connect": True})
        assert answer.plain() == {
            "ok": True,
            "pack_id": "tools",
            "verb_key": "tools.run",
            "result": {"identity": "ana@x"},
        }
        assert world.world.hub.kept == [("ana@x", {"secret": "fresh-key-1"})]
        assert "Authorization" not in service.received[0].headers

    def test_a_connect_command_that_fails(self, service: Service) -> None:
        """A failing status keeps nothing and repeats nothing."""
        service.answer = said({"identity": "ana@x", "secret": "fresh-key-1"}, 403)
        world = Called()
        answer = world.run(document(service.origin, operation("post")), binding=USER, verb={"connect": True})
        assert (answer.error, answer.result, world.world.hub.kept) == ("answered 403", None, [])


class TestAddresses:
    @pytest.mark.parametrize("networks", [(), parse_networks("10.0.0.0/8,fd00::/8")], ids=["none", "others"])
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]"])
    def test_loopback_is_not_reached_unless_named(self, service: Service, networks: Any, host: str) -> None:
        """An internal address is refused, as a literal and as what a name leads to; nothing arrives."""
        port = service.server_address[1]
        answer = Called(networks).run(document(f"http://{host}:{port}", operation()))
        assert answer.error == (
            f"not reached: {host}:{port}: its address is internal;"
            " the operator may name its network in SENSE_EXEC_NETWORKS"
        )
        assert service.received == []

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_a_named_network_is_reached(self, service: Service, host: str) -> None:
        """What the operator named is reached, by whatever name or spelling."""
        port = service.server_address[1]
        networks = parse_networks("127.0.0.0/8, ::1/128")
        assert Called(networks).run(document(f"http://{host}:{port}", operation())).error is None

    @pytest.mark.parametrize("name", ["169.254.169.254", "169.254.0.9", "[fe80::1]", "0.0.0.0", "[::]", "10.0.0.5"])
    def test_metadata_and_others(self, name: str) -> None:
        """Link-local, metadata, unspecified and private addresses are refused though loopback is named."""
        answer = Called(LOOPBACK).run(document(f"http://{name}/latest", operation()))
        assert "its address is internal" in str(answer.error)

    def test_a_mixed_answer_is_refused_whole(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """A name with a good and an internal address is not called at the good one."""
        place = service.server_address[1]

        def resolved(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("127.0.0.1", "10.0.0.5")]

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        answer = Called(LOOPBACK).run(document(f"http://api.test:{place}", operation()))
        assert ("its address is internal" in str(answer.error), service.received) == (True, [])

    def test_a_credential_over_plain_http(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """By plain http a credential goes into named networks only; to a public host nothing is sent."""
        monkeypatch.setattr("runtime_core.egress.is_public", lambda _: True)
        found = document(service.origin, operation())
        answer = Called(()).run(found, binding=USER)
        assert "plain http carries no credential" in str(answer.error)
        assert service.received == []
        assert Called(()).run(found).ok

    @pytest.mark.parametrize("one", [one for one in HOSTS if "local" not in one["host"]], ids=lambda one: one["host"])
    def test_internal_addresses_in_other_clothes(self, one: dict[str, Any]) -> None:
        """Each spelling is told for what it reaches."""
        assert is_public(one["host"].strip("[]").replace("%25", "%")) == one["allow"]

    @pytest.mark.parametrize(
        ("address", "public"),
        [
            ("64:ff9b::a9fe:a9fe", False),
            ("64:ff9b::101:101", True),
            ("64:ff9b:1::1", False),
            ("2002:7f00:1::", False),
            ("2001:0:4136:e378:8000:63bf:80ff:fffe", False),
            ("::7f00:1", False),
            ("fec0::1", False),
            ("240.0.0.1", False),
            ("198.18.0.1", False),
            ("192.0.2.1", False),
            ("8.8.8.8", True),
        ],
    )
    def test_addresses_that_carry_others(self, address: str, public: bool) -> None:
        """NAT64, 6to4, Teredo and the old compatible form reach the IPv4 address within."""
        assert is_public(address) == public

    def test_networks(self) -> None:
        """A list of networks; one with host bits, or none at all, is refused."""
        assert is_named("::ffff:10.1.2.3", parse_networks("10.0.0.0/8"))
        assert not is_named("11.0.0.1", parse_networks("10.0.0.0/8,fd00::/8"))
        for text in ("", "10.0.0.1/8", "loopback", "10.0.0.0/8,"):
            with pytest.raises(ValueError, match=r"network|address|host bits"):
                parse_networks(text)
