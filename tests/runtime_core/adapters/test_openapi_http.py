"""One exchange on loopback: to the document's own host only, within its deadline, and no secret comes back."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import runtime_core.adapters
from runtime_core.manifest import parse_manifest
from runtime_core.pack import read_folder
from tests.runtime_core.adapters.calling import (
    KEY,
    USER,
    Called,
    Service,
    document,
    operation,
    parameter,
    said,
)
from tests.runtime_core.adapters.wrapping import CASES, NOW, SECOND

if TYPE_CHECKING:
    import socket

IDS: list[dict[str, Any]] = json.loads((CASES / "C31-ids.json").read_text())
RECORDS = operation("get", "/v1/records/{id}/detail", parameters=[parameter("id", "path")])
VERSIONS = ["3.0.3", "3.1.0"]


def origin(listening: socket.socket) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.case("C31")
class TestPathValues:
    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("one", IDS, ids=lambda one: repr(one["id"]))
    def test_each_id_of_the_case(self, service: Service, version: str, one: dict[str, Any]) -> None:
        """An id arrives as one segment with nothing added to the query, or nothing arrives at all."""
        answer = Called().run(document(service.origin, RECORDS, version), {"id": one["id"]}, binding=USER)
        refused = one["path"] is None or (one.get("or") == "refused" and not answer.ok)
        assert service.lines == ([] if refused else [f"GET {one['path']}"])
        assert (answer.ok, (answer.error or "").startswith("invalid args: /id")) == (not refused, refused)

    def test_a_missing_id(self, service: Service) -> None:
        """Without its path value nothing is sent."""
        answer = Called().run(document(service.origin, RECORDS), {})
        assert (answer.error, service.lines) == ("invalid args: /id: is missing, and the operation needs it", [])

    @pytest.mark.parametrize(
        "value",
        [".", "..", "a/../b", "..\\x", "\\..", "../", "/..", "./x", "a\nb", "a\0b", "\x7f", [], [""], {"a": 1}, [None]],
        ids=repr,
    )
    def test_what_a_server_may_read_as_steps(self, service: Service, value: Any) -> None:
        """Dot segments by slash or backslash, control characters and what is no text are refused."""
        answer = Called().run(document(service.origin, RECORDS), {"id": value})
        assert (answer.ok, service.lines) == (False, [])
        assert answer.error.startswith("invalid args: /id: ")

    @pytest.mark.parametrize(
        ("value", "segment"),
        [
            ("%2e%2e", "%252e%252e"),
            ("..%2f", "..%252f"),
            ("...", "..."),
            (";x=1", "%3Bx%3D1"),
            ("a&b=c", "a%26b%3Dc"),
            ("ü/漢", "%C3%BC%2F%E6%BC%A2"),
            ("http://evil.test/", "http%3A%2F%2Fevil.test%2F"),
            ("@evil.test", "%40evil.test"),
            (7, "7"),
            (True, "true"),
            (["a,b", "c"], "a%2Cb,c"),
            ("x" * 4_000, "x" * 4_000),
        ],
    )
    def test_other_values_of_the_kind(self, service: Service, value: Any, segment: str) -> None:
        """Whatever a value holds, it is one segment."""
        answer = Called().run(document(service.origin, RECORDS), {"id": value})
        assert (answer.error, service.lines) == (None, [f"GET /v1/records/{segment}/detail"])

    def test_a_value_beside_dots(self, service: Service) -> None:
        """A value that makes a step together with what the document has beside it is refused."""
        found = document(service.origin, operation("get", "/x/%2e{a}/y", parameters=[parameter("a", "path")]))
        assert Called().run(found, {"a": "b"}).error is None
        assert Called().run(found, {"a": "."}).error == "invalid args: /a: would lead to another path"
        assert service.lines == ["GET /x/%2eb/y"]

    def test_the_credential_goes_to_the_declared_host(self, service: Service) -> None:
        """It is in the mapped header of the one request and nowhere in its line."""
        Called().run(document(service.origin, RECORDS), {"id": "plain"}, binding=USER)
        (request,) = service.received
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        assert KEY not in request.line
        assert request.headers["Host"] == service.origin.removeprefix("http://")


class TestOneRequest:
    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_no_redirect_is_followed(self, service: Service, status: int) -> None:
        """A redirect is a failure; neither request nor credential goes to the other place."""
        other = Service()
        try:
            service.answer = said({}, status, Location=f"{other.origin}/v1/stolen")
            answer = Called().run(document(service.origin, operation()), {}, binding=USER)
            assert (answer.error, len(service.received), other.received) == (f"answered {status}", 1, [])
        finally:
            other.close()

    def test_no_proxy_and_no_netrc(self, service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The worker's environment changes nothing of a request."""
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login root password hunter22\n")
        answer = Called().run(document(service.origin, operation()))
        assert (answer.ok, "Authorization" in service.received[0].headers) == (True, False)

    def test_no_cookie_is_kept(self, service: Service) -> None:
        """What one answer sets the next request does not carry."""
        service.answer = said({}, **{"Set-Cookie": "session=ana"})
        world = Called()
        for _ in range(2):
            world.run(document(service.origin, operation()))
        assert ["Cookie" in one.headers for one in service.received] == [False, False]

    @pytest.mark.parametrize("method", ["get", "put", "post", "delete"])
    def test_a_lost_answer_is_not_asked_for_again(self, dumb: socket.socket, method: str) -> None:
        """A read says that no answer came, a write that its outcome is unknown; each was sent once."""
        accepted: list[bytes] = []

        def drop() -> None:
            while len(accepted) < 2:
                with dumb.accept()[0] as taken:
                    accepted.append(taken.recv(65_536).split()[0])

        dropping = threading.Thread(target=drop)
        dropping.start()
        found = document(origin(dumb), operation(method))
        read, write = (Called().run(found, operation=kind, timeout_s=5) for kind in ("read", "write"))
        dropping.join()
        assert (read.error, write.error) == ("no answer: the connection was lost", "interrupted: outcome unknown")
        assert accepted == [method.upper().encode()] * 2

    def test_nobody_listens(self, dumb: socket.socket) -> None:
        """A refused connection names the host; nothing was sent, also for a write."""
        found = document(origin(dumb), operation())
        dumb.close()
        answer = Called().run(found)
        place = found["servers"][0]["url"].removeprefix("http://")
        assert answer.error.startswith(f"not reached: {place}: ")


class TestTime:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_the_command_has_its_time(self, dumb: socket.socket, version: str) -> None:
        """A server that accepts and says nothing ends with the command's own time."""
        answer = Called().run(document(origin(dumb), operation(), version), timeout_s=0.3)
        assert answer.error == "timed out after 0.3 s"

    def test_the_deadline_of_the_request_is_shorter(self, dumb: socket.socket) -> None:
        """Nobody waits longer than the request does."""
        answer = Called().run(document(origin(dumb), operation()), deadline=NOW + SECOND // 4)
        assert answer.error == "timed out after 0.25 s"

    def test_a_deadline_that_has_passed(self, service: Service) -> None:
        """Nothing is sent for somebody who has gone."""
        answer = Called().run(document(service.origin, operation()), deadline=NOW)
        assert (answer.error, service.received) == ("deadline passed", [])

    @pytest.mark.parametrize(
        "start", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"]
    )
    def test_one_byte_at_a_time(self, dumb: socket.socket, start: bytes) -> None:
        """Bytes that keep coming, in the header or the body, do not lengthen the deadline."""
        gone = threading.Event()

        def drip() -> None:
            taken, _ = dumb.accept()
            with taken:
                taken.recv(65_536)
                taken.sendall(start)
                while not gone.wait(0.02):
                    try:
                        taken.sendall(b"x")
                    except OSError:
                        return

        dripping = threading.Thread(target=drip)
        dripping.start()
        answer = Called().run(document(origin(dumb), operation()), timeout_s=0.4)
        gone.set()
        dripping.join()
        assert answer.error == "timed out after 0.4 s"

    def test_a_running_read_is_cancelled(self, dumb: socket.socket) -> None:
        """The event of the request ends it while it waits."""
        world = Called()
        world.cancelled = threading.Event()

        def cancel() -> None:
            with dumb.accept()[0] as taken:
                taken.recv(65_536)
                world.cancelled.set()
                taken.recv(1)

        cancelling = threading.Thread(target=cancel)
        cancelling.start()
        answer = world.run(document(origin(dumb), operation()), operation="read")
        cancelling.join()
        assert answer.error == "cancelled"


class TestAnswers:
    def test_json(self, service: Service) -> None:
        """Status and body, the body as the JSON value it is."""
        service.answer = said({"a": [1, None, "ä"]}, 201, "application/vnd.x+json; charset=utf-8")
        assert Called().run(document(service.origin, operation())).result == {
            "status": 201,
            "body": {"a": [1, None, "ä"]},
        }

    @pytest.mark.parametrize(
        ("raw", "media", "body"),
        [
            ("grüß".encode(), "text/plain", "grüß"),
            ("grüß".encode("latin-1"), "text/html; charset=iso-8859-1", "grüß"),
            (b"a\xffb\0", "text/csv; charset=hex", "a\ufffdb\ufffd"),
            (b"", "application/octet-stream", None),
        ],
    )
    def test_text_and_nothing(self, service: Service, raw: bytes, media: str, body: str | None) -> None:
        """Text as text that every door takes; no body is null whatever it is called."""
        service.answer = said(raw, media=media)
        answer = Called().run(document(service.origin, operation()))
        assert answer.result == {"status": 200, "body": body}

    @pytest.mark.parametrize("raw", [b'{"a": 1, "a": 2}', b"[NaN]", b'"\\ud800"', b"[" * 70 + b"]" * 70, b"{", b"\xff"])
    def test_json_that_no_door_takes(self, service: Service, raw: bytes) -> None:
        """JSON is read as strictly as everywhere; the error does not repeat it."""
        service.answer = said(raw)
        answer = Called().run(document(service.origin, operation()))
        assert (answer.ok, answer.error.startswith("answered JSON that is refused at body")) == (False, True)

    def test_neither_json_nor_text(self, service: Service) -> None:
        """Another kind of body is an error that names the kind."""
        service.answer = said(b"%PDF", media="application/pdf")
        answer = Called().run(document(service.origin, operation()))
        assert answer.error == "answered application/pdf, neither JSON nor text"

    @pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
    def test_a_failure_keeps_what_was_said(self, service: Service, status: int) -> None:
        """A failing status is the error; the body stays in the result."""
        service.answer = said({"why": "because"}, status)
        answer = Called().run(document(service.origin, operation()))
        assert (answer.ok, answer.error) == (False, f"answered {status}")
        assert answer.result == {"status": status, "body": {"why": "because"}}

    @pytest.mark.parametrize("declared", [True, False])
    def test_over_the_limit(self, service: Service, dumb: socket.socket, declared: bool) -> None:
        """An answer over the output limit is none, whether its length is told or not."""
        service.answer = said(b"x" * 2_000, media="text/plain")
        found = document(service.origin, operation())
        if not declared:
            raw = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + b"x" * 2_000

            def serve() -> None:
                with dumb.accept()[0] as taken:
                    taken.recv(65_536)
                    taken.sendall(raw)

            serving = threading.Thread(target=serve)
            serving.start()
            found = document(origin(dumb), operation())
        answer = Called().run(found, output_limit=1_000)
        if not declared:
            serving.join()
        assert (answer.error, answer.result) == ("output over 1000 bytes", None)

    def test_a_packed_answer(self, service: Service) -> None:
        """What would swell is not unpacked; packing was not asked for."""
        service.answer = said(b"\x1f\x8b", media="text/plain", **{"Content-Encoding": "gzip"})
        answer = Called().run(document(service.origin, operation()))
        assert answer.error == "answered a packed body, which was not asked for"
        assert service.received[0].headers["Accept-Encoding"] == "identity"


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where aiohttp is not installed the answer says what to install."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "runtime_core.adapters.openapi_http", raising=False)
    monkeypatch.delattr(runtime_core.adapters, "openapi_http", raising=False)
    answer = Called().run(document("http://127.0.0.1:1", operation()))
    assert answer.error == "openapi packs need the extra `openapi`: pip install 'sense-worker[openapi]'"


def test_the_example_pack_is_served_whole() -> None:
    """Every command of the notes pack is one that its document serves: no warning."""
    surface = read_folder(Path(__file__).parents[3] / "examples/packs/notes").surface
    assert parse_manifest(surface).warnings == ()
