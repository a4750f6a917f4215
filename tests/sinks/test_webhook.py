"""What a webhook sends, and what it makes of the answers."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks import Webhook as Verifier

from runtime_core.errors import UsageError
from sense_worker.retry import Schedule
from sinks.protocol import Delivered, Rejected, Retry
from sinks.registry import Registry
from sinks.retry_after import CAP_S, retry_after
from tests.sinks.deliveries import delivery
from tests.sinks.webhook_receiver import SECRET, Receiver, built, case, delivered, said

NOW = 1_780_315_200.0
AHEAD = format_datetime(datetime.fromtimestamp(NOW + 90, UTC), usegmt=True)
PAST = format_datetime(datetime.fromtimestamp(NOW - 90, UTC), usegmt=True)
AFTERS: list[dict[str, Any]] = case("C41-retry-after.json")["cases"]
EXACT = (
    '{"ref": "commit.created", "data": {"z": 1.0, "a": "d\\u00e9jà 🎉", "k": [2.50, 1e2]},'
    ' "occurred_at": "2026-06-01T12:00:00Z"}'
).encode()


def clock(monkeypatch: pytest.MonkeyPatch, moment: float) -> None:
    """Let sender and verifier read `moment` from their clocks."""
    at = datetime.fromtimestamp(moment, UTC)
    moved = type("Moved", (datetime,), {"now": classmethod(lambda cls, tz=None: at)})
    monkeypatch.setattr("sinks.webhook.time", SimpleNamespace(time=lambda: moment))
    monkeypatch.setattr("standardwebhooks.webhooks.datetime", moved)


class TestWhatIsSent:
    def test_the_official_library_verifies_it(self):
        """What arrives verifies as Standard Webhooks, and tells ids, ref, subject and the operator's link."""
        with Receiver() as receiver:
            link = "https://app.example/{project}/events/{event_id}?about={subject}"
            one = delivery(7, subject="déjà & vu")
            assert delivered(receiver.url, one, link=link) == [Delivered("200")]
        (request,) = receiver.received
        sent = Verifier(SECRET).verify(request.body, request.headers)
        assert request.headers["webhook-id"] == one.id
        assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 60
        assert (sent["type"], sent["timestamp"]) == ("commit.created", "2026-06-01T13:59:59+02:00")
        assert sent["data"] == {
            "id": one.id,
            "event_id": one.event_id,
            "route_id": "rte_1",
            "tenant": "acme",
            "principal": "ana",
            "project": "apollo",
            "pack_id": "git",
            "ref": "commit.created",
            "land": "brain",
            "subject": "déjà & vu",
            "accepted_at": "2026-06-01T12:00:00.000001Z",
            "link": f"https://app.example/apollo/events/{one.event_id}?about=d%C3%A9j%C3%A0%20%26%20vu",
        }

    def test_the_cloudevents_sdk_parses_it(self):
        """In binary mode the attributes are headers and the body is the data; the signature covers the body."""
        with Receiver() as receiver:
            one = delivery(7, subject='50 % "déjà" 🎉', body=EXACT)
            assert delivered(receiver.url, one, mode="cloudevents", payload="full") == [Delivered("200")]
        (request,) = receiver.received
        Verifier(SECRET).verify(request.body, request.headers)
        event = from_http_event(HTTPMessage(headers=request.headers, body=request.body))
        assert event.get_specversion() == "1.0"
        assert (event.get_id(), event.get_source(), event.get_type()) == (one.id, "/acme/git", "commit.created")
        assert event.get_subject() == '50 % "déjà" 🎉'
        assert event.get_time() == datetime(2026, 6, 1, 11, 59, 59, tzinfo=UTC)
        data: Any = event.get_data()
        assert data["event"] == json.loads(EXACT)

    @pytest.mark.parametrize("mode", ["standard", "cloudevents"])
    def test_a_full_payload_holds_the_event_as_it_was_signed(self, mode: str):
        """Byte for byte: floats, spacing, escapes and the order of keys. Thin, nothing of `data` leaves."""
        with Receiver() as receiver:
            delivered(receiver.url, delivery(body=EXACT), mode=mode, payload="full")
            delivered(receiver.url, delivery(body=EXACT), mode=mode)
        full, thin = receiver.received
        assert b'"event":' + EXACT in full.body
        assert "event" not in json.dumps(json.loads(thin.body)).replace("event_id", "")
        assert b"\xf0\x9f\x8e\x89" not in thin.body

    @pytest.mark.parametrize("occurred", ["2016-12-31T23:59:60Z", "2026-06-01t12:00:00.123456789012345678z"])
    def test_a_moment_that_few_read_is_the_arrival(self, occurred: str):
        """A leap second or a fraction of attoseconds may break a receiver's parser."""
        with Receiver() as receiver:
            delivered(receiver.url, delivery(occurred_at=occurred), mode="cloudevents")
        (request,) = receiver.received
        assert from_http_event(HTTPMessage(headers=request.headers, body=request.body)).get_time().year in (2016, 2026)

    def test_a_body_that_is_no_event(self):
        """It is rejected where it would be sent, its neighbours go out."""
        with Receiver() as receiver:
            outcomes = delivered(receiver.url, delivery(1), delivery(2, body=b"{oops"), delivery(3), payload="full")
        assert outcomes == [Delivered("200"), Rejected("the body is no event"), Delivered("200")]
        assert len(receiver.received) == 2

    @pytest.mark.case("C50")
    @pytest.mark.parametrize("mode", ["standard", "cloudevents"])
    def test_the_second_attempt_is_signed_anew(self, monkeypatch: pytest.MonkeyPatch, mode: str):
        """Ten minutes later id and body are the same, moment and signature are those of the attempt; both verify."""
        with Receiver(lambda _: said(503 if len(receiver.received) == 1 else 200)) as receiver:
            for attempt in (1, 2):
                clock(monkeypatch, NOW + 600 * (attempt - 1))
                one = delivery(3, attempt=attempt, subject="é", body=EXACT)
                (outcome,) = delivered(receiver.url, one, mode=mode, payload="full")
                assert isinstance(outcome, Retry if attempt == 1 else Delivered)
                Verifier(SECRET).verify(receiver.received[-1].body, receiver.received[-1].headers)
        first, second = receiver.received
        assert first.body == second.body
        for name, same in (("webhook-id", True), ("webhook-timestamp", False), ("webhook-signature", False)):
            assert (first.headers[name] == second.headers[name]) == same

    def test_many_are_in_flight_over_kept_connections(self):
        """A batch, as large as may be in flight, goes out at once, the next one over the same connections."""
        waiting = SimpleNamespace(count=0)

        def answer(_: Any) -> bytes:
            waiting.count += 1
            while waiting.count % 8 and not receiver.over.wait(0.001):
                pass
            return said(200, body=b"thanks")

        with Receiver(answer) as receiver:
            sink = built(receiver.url, in_flight=8)
            assert (sink.batch_size, sink.concurrency, sink.deadline_s) == (8, 2, 22.0)
            sink.open()
            for _ in range(2):
                assert sink.deliver([delivery(n) for n in range(8)]) == [Delivered("200")] * 8
            sink.close()
        assert (len(receiver.received), receiver.connections) == (16, 8)

    @pytest.mark.parametrize(
        ("in_flight", "shape"), [(1, (1, 2)), (64, (64, 2)), (65, (32, 3)), (128, (64, 3)), (256, (64, 5))]
    )
    def test_one_call_more_than_its_slots_need(self, in_flight: int, shape: tuple[int, int]):
        """Requests go on while a call is settled; no more wait than are in flight, so none waits long."""
        sink = built("https://1.1.1.1/", in_flight=in_flight)
        assert (sink.batch_size, sink.concurrency) == shape
        assert sink.batch_size * sink.concurrency <= 2 * in_flight

    def test_never_more_in_flight_than_the_option(self):
        """Two calls of eight with eight slots: the receiver never sees a ninth before it has answered one."""
        state = SimpleNamespace(now=0, most=0, lock=threading.Lock())

        def answer(_: Any) -> bytes:
            with state.lock:
                state.now += 1
                state.most = max(state.most, state.now)
            receiver.over.wait(0.01)
            with state.lock:
                state.now -= 1
            return said(200)

        with Receiver(answer) as receiver:
            sink = built(receiver.url, in_flight=8)
            sink.open()
            with ThreadPoolExecutor(2) as calls:
                outcomes = list(calls.map(lambda at: sink.deliver([delivery(at + n) for n in range(8)]), (0, 8)))
            sink.close()
        assert (outcomes, state.most, receiver.connections) == ([[Delivered("200")] * 8] * 2, 8, 8)

    def test_what_the_address_holds_is_sent_as_http_has_it(self):
        """User and password as basic authorization, path and query as they stand, the fragment not at all."""
        with Receiver() as receiver:
            place = f"127.0.0.1:{receiver.port}"
            assert delivered(f"http://u:p%20w@{place}/a%2Fb/../c?d=%C3%A9&e#f", delivery()) == [Delivered("200")]
        (request,) = receiver.received
        assert request.line == "POST /a%2Fb/../c?d=%C3%A9&e HTTP/1.1"
        assert (request.headers["host"], request.headers["authorization"]) == (place, "Basic dTpwIHc=")
        assert int(request.headers["content-length"]) == len(request.body)

    def test_a_line_break_makes_no_second_header(self):
        """Refs hold none; one that did would be sent nowhere, and its neighbours are."""
        with Receiver() as receiver:
            batch = [delivery(1, ref="a\r\nX-Role: operator"), delivery(2)]
            odd, plain = delivered(receiver.url, *batch, mode="cloudevents")
        assert isinstance(odd, Retry)
        assert "operator" not in odd.reason
        assert (plain, len(receiver.received)) == (Delivered("200"), 1)

    def test_nothing_of_the_environment_and_no_cookie(self, monkeypatch: pytest.MonkeyPatch):
        """A proxy of the environment is not used, and a cookie is not kept."""
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]  # no jar keeps the cookie of an address
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: here)
        with Receiver(lambda _: said(200, ("Set-Cookie", "a=b"))) as receiver:
            sink = built(f"http://hook.test:{receiver.port}/")
            sink.open()
            assert [*sink.deliver([delivery(1)]), *sink.deliver([delivery(2)])] == [Delivered("200")] * 2
            sink.close()
        assert [("cookie" in one.headers, one.headers["accept-encoding"]) for one in receiver.received] == [
            (False, "identity")
        ] * 2


class TestWhatIsAnswered:
    @pytest.mark.case("C42")
    @pytest.mark.parametrize("one", [one for one in case("C42-status.json") if isinstance(one["status"], int)], ids=str)
    def test_each_status(self, one: dict[str, Any]):
        """2xx is success; 408, 425, 429, 5xx and 3xx are tried again; other 4xx end, and 410 stops the sink."""
        status = one["status"]
        with Receiver(lambda _: said(status, ("Location", "/other"))) as receiver:
            (outcome,) = delivered(receiver.url, delivery())
        place = f"127.0.0.1:{receiver.port} answered {status}"
        assert len(receiver.received) == 1
        match one["then"].partition(" ")[0], status:
            case "success", _:
                assert outcome == Delivered(str(status))
            case "failure,", _:
                assert outcome == Retry(f"{place}, which is not followed")
            case "retry", _:
                assert outcome == Retry(place)
            case "dead-letter", 410:
                assert outcome == Rejected(f"{place}: it is gone", stop=True)
            case "dead-letter", _:
                assert outcome == Rejected(place)
            case _:
                raise AssertionError(one)

    @pytest.mark.case("C42")
    def test_no_answer_at_all(self):
        """Refused, reset and timed out are tried again, each with its reason; nothing is sent a second time."""
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        assert delivered(f"http://127.0.0.1:{port}/", delivery()) == [
            Retry(f"127.0.0.1:{port} not reached: {os.strerror(111)}")
        ]

        def reset(connection: socket.socket) -> None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

        with Receiver(lambda _: reset) as receiver:
            place = f"127.0.0.1:{receiver.port}"
            assert delivered(receiver.url, delivery()) == [Retry(f"{place} closed the connection without an answer")]
            receiver.answer = lambda _: lambda _: receiver.over.wait(5)
            assert delivered(receiver.url, delivery(), total_s=0.2) == [
                Retry(f"{place} gave no whole answer within 0.2 s")
            ]
        assert len(receiver.received) == 2

    def test_a_kept_connection_that_is_lost(self):
        """A request whose kept connection goes is a failure of this attempt, and is sent by the ledger alone."""

        def second(connection: socket.socket) -> None: ...

        with Receiver(lambda _: said(200) if len(receiver.received) == 1 else second) as receiver:
            sink = built(receiver.url)
            sink.open()
            assert list(sink.deliver([delivery(1)])) == [Delivered("200")]
            (outcome,) = sink.deliver([delivery(2)])
            sink.close()
        assert outcome == Retry(f"127.0.0.1:{receiver.port} closed the connection without an answer")
        assert (len(receiver.received), receiver.connections) == (2, 1)

    @pytest.mark.parametrize(
        "answer", [b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 2000 Odd\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n"]
    )
    def test_what_is_no_http(self, answer: bytes):
        """Another protocol's greeting has no status, and is tried again."""
        with Receiver(lambda _: answer) as receiver:
            (outcome,) = delivered(receiver.url, delivery(), total_s=1.0)
        assert outcome == Retry(f"127.0.0.1:{receiver.port} answered what is no HTTP")

    @pytest.mark.parametrize(
        ("status", "control", "outcome"),
        [
            (503, "disable", Rejected("answered 503 and asked for no more (webhook-delivery: disable)", stop=True)),
            (400, " Disable ", Rejected("answered 400 and asked for no more (webhook-delivery: disable)", stop=True)),
            (
                503,
                "abort-message",
                Rejected("answered 503 and asked not to be sent this again (webhook-delivery: abort-message)"),
            ),
            (503, "sing", Retry("answered 503")),
            (200, "abort-message", Delivered("200")),
        ],
    )
    def test_delivery_control(self, status: int, control: str, outcome: Any):
        """A receiver says by a header that it wants no more, of this message or of all."""
        with Receiver(lambda _: said(status, ("webhook-delivery", control))) as receiver:
            (found,) = delivered(receiver.url, delivery())
        if isinstance(outcome, Delivered):
            assert found == outcome
        else:
            assert found.reason == f"127.0.0.1:{receiver.port} {outcome.reason}"
            assert getattr(found, "stop", None) == getattr(outcome, "stop", None)


def expected(one: dict[str, Any], within_s: float) -> Any:
    """Return the delay of a form as the fixture says it; None where it is the ledger's own."""
    known = {"about 90": pytest.approx(90, abs=within_s), "cap": CAP_S, "cap or own backoff": CAP_S}
    return one["delay"] if isinstance(one["delay"], int) else known.get(one["delay"])


class TestRetryAfter:
    @pytest.mark.case("C41")
    @pytest.mark.parametrize("one", AFTERS, ids=lambda one: str(one["value"])[:30])
    def test_each_form(self, one: dict[str, Any]):
        """Whole seconds and dates are honoured up to the cap; anything else is the ledger's own schedule."""
        value = AHEAD if one["value"] == "HTTP date 90 s ahead" else one["value"]
        value = PAST if value == "HTTP date in the past" else value
        found = retry_after(value if isinstance(value, list) else [value], NOW)
        assert found is None or 0 <= found <= CAP_S
        assert found == expected(one, 1)

    @pytest.mark.case("C41")
    @pytest.mark.parametrize("status", [429, 503])
    def test_over_the_wire(self, status: int):
        """The header of an answer that is tried again becomes the delay; a header given twice does not."""
        with Receiver() as receiver:
            for headers, after in (([("Retry-After", " 120 ")], 120.0), ([("Retry-After", "soon")], None)):
                receiver.answer = lambda _, headers=headers: said(status, *headers)
                (outcome,) = delivered(receiver.url, delivery())
                assert outcome.after == after
            receiver.answer = lambda _: said(status, ("Retry-After", "60"), ("Retry-After", "5"))
            assert delivered(receiver.url, delivery())[0].after is None

    @pytest.mark.case("C41")
    @pytest.mark.parametrize("one", AFTERS, ids=lambda one: str(one["value"])[:30])
    def test_each_form_over_the_wire(self, one: dict[str, Any]):
        """What a 429 says by each form of the header is the delay of the outcome, or none of its own."""
        dates = {"HTTP date 90 s ahead": 90, "HTTP date in the past": -90}
        given = one["value"] if isinstance(one["value"], list) else [one["value"]]
        soon = [datetime.fromtimestamp(time.time() + dates[value], UTC) for value in given if value in dates]
        values = [format_datetime(moment, usegmt=True) for moment in soon] or given
        with Receiver(lambda _: said(429, *(("Retry-After", value) for value in values))) as receiver:
            (outcome,) = delivered(receiver.url, delivery())
        assert outcome.reason == f"127.0.0.1:{receiver.port} answered 429"
        assert outcome.after == expected(one, 20)

    @pytest.mark.parametrize(
        "value", ["Sun, 06 Nov 2094 08:49:37 GMT", "Saturday, 06-Nov-94 08:49:37 GMT", "Sat Nov  6 08:49:37 2094"]
    )
    def test_the_three_forms_of_a_date(self, value: str):
        """Old forms are read too; one of two digits is of the last century."""
        assert retry_after([value], NOW) == (None if "-94" in value else CAP_S)

    @pytest.mark.case("C41")
    def test_a_repeated_zero_gets_the_schedule(self):
        """`0` is at once after the first failure; asked again, the ledger's own delay counts. So for every sink."""
        schedule = Schedule((5.0, 300.0), 0.0)
        assert [schedule.delay_micros(attempt, 0.0) for attempt in (1, 2, 3)] == [0, 300_000_000, None]
        assert schedule.delay_micros(1, 120.0) == 120_000_000


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "place"),
        [
            ({"url": "ftp://hook.test/"}, "options.url"),
            ({"url": "https://"}, "options.url"),
            ({"url": "https://hook.test/a\nb"}, "options.url"),
            ({"url": "https://hook.test\\@evil.test/"}, "options.url"),
            ({"url": "https://hook.test:port/"}, "options.url"),
            ({"secret": "hunter2"}, "options.secret"),
            ({"secret": "whsec_aHVudGVyMg=="}, "options.secret"),
            ({"secret": "whsec_" + "A" * 200}, "options.secret"),
            ({"secret": "whsec_" + "ä" * 32}, "options.secret"),
            ({"mode": "soap"}, "options.mode"),
            ({"link": "https://a.test/{hunter2}"}, "options.link"),
            ({"link": "https://a.test/{subject.__class__}"}, "options.link"),
            ({"link": "https://a.test/{subject!r}"}, "options.link"),
            ({"link": "https://a.test/{"}, "options.link"),
            ({"link": "javascript:alert(1)"}, "options.link"),
            ({"in_flight": 0}, "options.in_flight"),
            ({"total_s": 61.0}, "options.total_s"),
            ({"previous": [{"secret": SECRET, "until": "2026-06-01T12:00:00"}]}, "options.previous.0.until"),
            ({"hunter2": 1}, "options.hunter2"),
        ],
    )
    def test_a_wrong_option_is_named(self, options: dict[str, Any], place: str):
        """The refusal names the option, and never its value."""
        with pytest.raises(UsageError) as caught:
            built(**{"url": "https://hook.test/", **options})
        assert caught.value.place == place
        assert "hunter2" not in caught.value.reason

    def test_without_the_extra(self, monkeypatch: pytest.MonkeyPatch):
        """Options are checked without aiohttp; opening says what to install."""
        sink = built("https://1.1.1.1/")
        monkeypatch.delitem(sys.modules, "sinks.webhook_client", raising=False)
        monkeypatch.setitem(sys.modules, "aiohttp", None)
        sink.probe()  # a sink may be added where it is not sent from
        with pytest.raises(UsageError, match=r"needs aiohttp \(pip install 'sense-worker\[webhook\]'\)"):
            sink.open()

    def test_a_secret_is_masked_and_of_an_address_the_host_is_shown(self):
        """`shown` is what people see of the options."""
        options = {"url": "https://u:MARK@hook.test:8443/MARK?a=MARK#MARK", "secret": SECRET}
        shown = Registry().shown("webhook", options)
        assert (shown["url"], shown["secret"], shown["in_flight"]) == ("https://hook.test:8443/***", "***", 64)
        assert Registry().shown("gone", options) == {"url": "***", "secret": "***"}
        assert "MARK" not in repr(built(options["url"]).options)
