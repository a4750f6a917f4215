"""The rules of publishing without any I/O: plans driven against a stream in memory that can fail."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import hiredis
import pytest

from runtime_core.errors import (
    DoorError,
    HcpError,
    IngressFull,
    IngressUnreachable,
    PublishError,
    UsageError,
)
from runtime_core.signing import verify
from sense_worker.publisher import Announcement
from sense_worker.wire import check_entry, parse_entry
from tests.sense_worker.fake_stream import ANA, KEY, Stream, down, many, one, rules

# --- one announcement -------------------------------------------------------------------------------------------------


def test_an_announcement_becomes_one_good_entry():
    """The entry verifies, its body is compact and complete, and the answer names both ids."""
    stream = Stream()
    found = stream.drive(rules(stream).publish(one(data={"x": "Zoë"}, subject="main"), "accepted"))
    entry = parse_entry(stream.entries[0])
    check_entry(entry)
    assert verify([b"s3cret"], entry.c, entry.i, entry.t, entry.b, entry.s)
    body = '{"ref":"commit.created","data":{"x":"Zoë"},"subject":"main","occurred_at":"2026-06-01T12:00:00.000000Z"}'
    assert (entry.activation_id, entry.message_id, entry.t, entry.b) == ("act_1", "e-1", b"1780315200", body.encode())
    assert (found.message_id, found.stream_id, found.spooled) == ("e-1", "1-0", False)
    assert found.event_id == ANA.event_id("e-1").hex()
    assert stream.exchanges == [["XLEN"], ["XADD"]]


def test_an_announcement_without_an_id_gets_one_of_its_own():
    """Two announcements without ids are two events, with 32 hex digits each."""
    stream = Stream()
    found = [stream.drive(rules(stream).publish(Announcement("a", {}), "accepted")) for _ in range(2)]
    assert found[0].message_id != found[1].message_id
    assert [len(bytes.fromhex(published.message_id)) for published in found] == [16, 16]


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (datetime(2026, 6, 1, 12, tzinfo=UTC), "2026-06-01T12:00:00.000000Z"),
        (datetime(2026, 6, 1, 12, tzinfo=timezone(timedelta(hours=-3.5))), "2026-06-01T12:00:00.000000-03:30"),
        ("2026-06-01T12:00:00+02:00", "2026-06-01T12:00:00+02:00"),
    ],
)
def test_a_given_moment_is_written_with_its_zone(given, written):
    """occurred_at keeps its zone, as a datetime and as text."""
    stream = Stream()
    stream.drive(rules(stream).publish(one(occurred_at=given), "accepted"))
    assert json.loads(stream.entries[0][b"b"])["occurred_at"] == written


def test_a_traceparent_goes_along():
    """A traceparent is a field of the entry."""
    stream = Stream()
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    stream.drive(rules(stream).publish(one(traceparent=traceparent), "accepted"))
    assert stream.entries[0][b"tp"] == traceparent.encode()


@pytest.mark.case("C07")
@pytest.mark.case("C08")
@pytest.mark.case("C09")
@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"ref": "commit created"}, "/ref"),
        ({"ref": ""}, "/ref"),
        ({"ref": None}, "/ref"),
        ({"data": []}, "/data"),
        ({"data": None}, "/data"),
        ({"data": {"x": [1, float("nan")]}}, "/data/x/1"),
        ({"data": {"x": float("-inf")}}, "/data/x"),
        ({"data": {"x": 1 << 64}}, "/data/x"),
        ({"data": {"x": {1, 2}}}, "/data/x"),
        ({"data": {"x": b"bytes"}}, "/data/x"),
        ({"data": {"x": {(1, 2): 3}}}, "/data/x"),
        ({"data": {"x": "\ud800"}}, "/data/x"),
        ({"data": {"\ud800": 1}}, "/data"),
        ({"data": {"x": "\0"}}, "/data"),
        ({"data": {"x": "x" * 262_144}}, "event body"),
        ({"subject": "x" * 257}, "/subject"),
        ({"subject": 5}, "/subject"),
        ({"occurred_at": "2026-06-01T12:00:00"}, "/occurred_at"),
        ({"occurred_at": datetime(2026, 6, 1)}, "occurred_at"),  # noqa: DTZ001 - that is what is wrong
        ({"id": "a b"}, "id"),
        ({"id": ""}, "id"),
        ({"id": "x" * 129}, "id"),
        ({"id": 5}, "id"),
        ({"traceparent": "00-0-0-0"}, "traceparent"),
        ({"traceparent": f"00-{'0' * 32}-b7ad6b7169203331-01"}, "traceparent"),
    ],
)
def test_a_mistake_is_raised_at_once_with_its_place(wrong, place):
    """What intake would refuse is refused here, in one line that names the place, and nothing is said to the server."""
    stream = Stream()
    with pytest.raises((DoorError, UsageError)) as caught:
        stream.drive(rules(stream).publish(one(**wrong), "accepted"))
    assert place in caught.value.place
    assert str(caught.value).isprintable()
    assert stream.exchanges == []


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"x": inner}])
def test_too_deep_and_circular_data_is_refused(wrap):
    """Data nested without end is a DoorError, not a crash."""
    deep: Any = 1
    for _ in range(100_000):
        deep = wrap(deep)
    circular: dict[str, Any] = {}
    circular["x"] = wrap(circular)
    for data in ({"x": deep}, circular):
        stream = Stream()
        with pytest.raises(DoorError, match="nested"):
            stream.drive(rules(stream).publish(one(data=data), "accepted"))


# --- attempts ---------------------------------------------------------------------------------------------------------


def test_a_lost_reply_repeats_the_same_event_signed_anew():
    """After a lost reply the entry is sent again with the same id and body, a new moment and signature."""
    stream = Stream([None, "lost reply"])
    stream.while_pausing = lambda: setattr(stream, "now", stream.now + 10)
    found = stream.drive(rules(stream).publish(one(), "accepted"))
    first, second = stream.entries
    assert (first[b"i"], first[b"b"]) == (second[b"i"], second[b"b"])
    assert (first[b"t"], second[b"t"]) == (b"1780315200", b"1780315210")
    assert first[b"s"] != second[b"s"]
    assert found.stream_id == "2-0"


def test_attempts_are_bounded():
    """A server that does not answer is asked as often as set, with growing pauses; then it is unreachable."""
    stream = Stream(down(9))
    with pytest.raises(IngressUnreachable, match="redis: does not answer: Connection refused"):
        stream.drive(rules(stream).publish(one(), "accepted"))
    assert stream.exchanges == [["XLEN"]] * 3
    assert stream.pauses == [0.1, 0.2]


def test_attempts_are_counted_anew_after_progress():
    """In a long run of announcements, failures that are apart do not add up."""
    stream = Stream([ConnectionResetError("gone"), None, None, *down(2), None, None, *down(2), None, None])
    assert len(stream.drive(rules(stream).publish_many(many(1200)))) == 1200
    assert stream.ids == [f"e-{number}" for number in range(1200)]


@pytest.mark.parametrize(
    ("said", "error", "exchanges"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", IngressFull, 2),
        ("LOADING Redis is loading the dataset in memory", IngressUnreachable, 6),
        ("MISCONF Errors writing to the AOF file: No space left on device", IngressUnreachable, 6),
        ("READONLY You can't write against a read only replica.", IngressUnreachable, 6),
        ("NOPERM no access to that key", PublishError, 2),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", PublishError, 2),
        ("ERR unknown command\r\nforged", PublishError, 2),
    ],
)
def test_an_error_reply_is_judged(said, error, exchanges):
    """What passes by itself is tried again, what does not is raised at once; never more than one line."""
    stream = Stream()
    stream.faults = iter([None, lambda replies: [hiredis.ReplyError(said) for _ in replies]] * 3)
    with pytest.raises(PublishError) as caught:
        stream.drive(rules(stream).publish(one(), "accepted"))
    assert type(caught.value) is error
    assert str(caught.value).isprintable()
    assert len(stream.exchanges) == exchanges


def test_a_greeting_that_is_refused_names_the_way_out():
    """A server that does not know the activation's password says so once, with the command that helps."""
    stream = Stream([hiredis.ReplyError("WRONGPASS invalid username-password pair or user is disabled.")])
    with pytest.raises(
        PublishError, match=r"does not let this activation write: WRONGPASS \(run `sense-worker activate"
    ):
        stream.drive(rules(stream).publish(one(), "accepted"))


@pytest.mark.parametrize("reply", [b"nonsense", None, [1]])
def test_an_answer_of_another_kind_is_no_length(reply):
    """A server that answers nonsense is a PublishError."""
    stream = Stream([lambda _: [reply]])
    with pytest.raises(PublishError, match="where int was due"):
        stream.drive(rules(stream).publish(one(), "accepted"))


# --- bounds and batches -----------------------------------------------------------------------------------------------


def test_a_full_stream_takes_nothing():
    """At its bound the stream is asked for its length and given nothing; below it there is room for what fits."""
    stream = Stream()
    bounded = rules(stream, stream_limit=3)
    stream.drive(bounded.publish_many(many(3)))
    stream.exchanges.clear()
    with pytest.raises(IngressFull, match=f"{KEY}: at its bound of 3 entries"):
        stream.drive(bounded.publish(one("e-9"), "accepted"))
    assert stream.exchanges == [["XLEN"]]
    assert stream.ids == ["e-0", "e-1", "e-2"]


def test_what_still_fits_is_accepted_and_counted():
    """A batch that does not fit fills the stream to its bound exactly, and the error says how many were accepted."""
    stream = Stream()
    with pytest.raises(IngressFull, match="700 of 1200 were accepted"):
        stream.drive(rules(stream, stream_limit=700).publish_many(many(1200)))
    assert stream.ids == [f"e-{number}" for number in range(700)]


def test_many_go_in_round_trips_of_at_most_500():
    """Announcements are pipelined in order, 500 at a time, each batch after a look at the length."""
    stream = Stream()
    found = stream.drive(rules(stream).publish_many(iter(many(1001))))
    assert [len(words) for words in stream.exchanges] == [1, 500, 1, 500, 1, 1]
    assert [published.message_id for published in found] == stream.ids
    assert [published.stream_id for published in found] == [f"{number}-0" for number in range(1, 1002)]


def test_large_bodies_go_in_smaller_round_trips():
    """No round trip carries much more than 4 MiB of bodies."""
    stream = Stream()
    stream.drive(rules(stream).publish_many(many(40, data={"x": "x" * 250_000})))
    assert [len(words) for words in stream.exchanges if words[0] == "XADD"] == [16, 16, 8]


def test_none_of_many_is_sent_where_one_is_wrong():
    """A mistake in the last of many is named with its index, and nothing was sent."""
    stream = Stream()
    with pytest.raises(DoorError, match=r"^events\[600\] event body /data/x: nan is no JSON number"):
        stream.drive(rules(stream).publish_many([*many(600), one(data={"x": float("nan")})]))
    assert stream.exchanges == []


def test_an_error_within_a_batch_resends_from_there():
    """When a batch is taken in part, the rest is sent again in order: each is there, and the first part only once."""
    stream = Stream()

    def out_of_memory(replies: list[Any]) -> list[Any]:
        del stream.entries[2:]
        return [*replies[:2], *(hiredis.ReplyError("LOADING") for _ in replies[2:])]

    stream.faults = iter([None, out_of_memory])
    found = stream.drive(rules(stream).publish_many(many(4)))
    assert stream.ids == ["e-0", "e-1", "e-2", "e-3"]
    assert [published.stream_id for published in found] == ["1-0", "2-0", "3-0", "4-0"]


def test_nothing_to_announce_says_nothing():
    """An empty batch is an empty answer."""
    stream = Stream()
    assert stream.drive(rules(stream).publish_many([])) == []
    assert stream.exchanges == []


def test_every_error_of_publishing_is_one_of_the_tree():
    """Whatever the server says, what is raised is an HcpError."""
    for fault in (OSError(5, "I/O error"), TimeoutError("timed out"), ConnectionError(), hiredis.ReplyError("")):
        stream = Stream([fault] * 3)
        with pytest.raises(HcpError):
            stream.drive(rules(stream).publish(one(), "accepted"))
