"""The reader of the streams on a real server: groups that go, readers that die, bodies that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from sense_worker.intake import stream as stream_module
from sense_worker.intake.health import HEALTH_KEY, Pulse
from sense_worker.intake.stream import EVENTS, TAKE, StreamEntry, Streams
from sense_worker.wire import GROUP, stream_of

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM = stream_of("t-red")


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A client in the shape the readers use."""
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        yield client


def reader(client: redis.Redis, *, alive_s: float = 30.0, batch: int = 500) -> Streams:
    """Return a reader that lives."""
    streams = Streams(client, alive_s=alive_s, block_ms=1, batch_entries=batch)
    streams.keep_alive()
    return streams


def die(client: redis.Redis, streams: Streams) -> None:
    """End a reader as SIGKILL does: its key lapses, its pending entries stay."""
    client.delete(f"sense:alive:{streams.consumer}")
    client.delete(EVENTS.lock)


def fill(client: redis.Redis, tenant: str, count: int) -> None:
    """Put entries on a tenant's stream."""
    pipeline = client.pipeline(transaction=False)
    for _ in range(count):
        pipeline.xadd(stream_of(tenant), {"b": "x"})
    pipeline.execute()


def bodies(entries: list[StreamEntry]) -> list[bytes | None]:
    """Return the bodies of entries."""
    return [None if entry.fields is None else entry.fields[b"b"] for entry in entries]


def test_what_is_done_leaves_the_stream_with_the_next_read(client):
    """One trip acknowledges, reads on and tells the clock; what is read is pending until it is done itself."""
    streams = reader(client)
    fill(client, "t-red", 2)
    done = streams.read(["t-red"])
    fill(client, "t-red", 1)

    (entry,) = streams.read(["t-red"], done)

    assert [pending["message_id"].decode() for pending in client.xpending_range(STREAM, GROUP, "-", "+", 9)] == [
        entry.id
    ]
    assert client.xlen(STREAM) == 1
    assert entry.micros <= streams.clock < entry.micros + 60_000_000


@pytest.mark.case("C01")
@pytest.mark.parametrize("gone", ["group", "stream", "database"])
def test_a_group_that_is_gone_is_made_again_without_losing_what_is_unread(client, gone):
    """After the group, the stream or the database is gone, entries published since are read, older ones are not."""
    streams = reader(client)
    client.xadd(STREAM, {"b": "before"})
    streams.read(["t-red"])
    before = streams.read_own(["t-red"]) or []
    streams.acknowledge(before)
    {
        "group": lambda: client.xgroup_destroy(STREAM, GROUP),
        "stream": lambda: client.delete(STREAM),
        "database": client.flushdb,
    }[gone]()
    for body in ("one", "two", "three"):
        client.xadd(STREAM, {"b": body})

    found = [entry for _ in range(3) for entry in streams.read(["t-red"])]

    assert bodies(found) == [b"one", b"two", b"three"]


@pytest.mark.case("C02")
def test_an_entry_deleted_while_pending_comes_back_without_a_body(client):
    """Of a dead reader's entries the deleted one is answered as lost and leaves the pending list, the other whole."""
    dead = reader(client)
    lost, kept = client.xadd(STREAM, {"b": "lost"}), client.xadd(STREAM, {"b": "kept"})
    dead.read(["t-red"])
    client.xdel(STREAM, lost)
    die(client, dead)

    heir = reader(client)
    taken = heir.take_over(["t-red"], 1)
    heir.acknowledge(taken)

    assert [(entry.id, entry.fields) for entry in taken] == [(lost.decode(), None), (kept.decode(), {b"b": b"kept"})]
    assert client.xpending(STREAM, GROUP)["pending"] == 0


@pytest.mark.case("C02")
def test_reclaim_moves_on_past_a_page_of_ghosts(client):
    """A whole page of deleted entries does not keep the good one behind it from being taken over."""
    dead = reader(client)
    ghosts = [client.xadd(STREAM, {"b": "ghost"}) for _ in range(120)]
    client.xadd(STREAM, {"b": "good"})
    dead.read(["t-red"])
    client.xdel(STREAM, *ghosts)
    die(client, dead)
    heir = reader(client)

    taken = []
    for _ in range(2):
        page = heir.take_over(["t-red"], 1)
        heir.acknowledge(page)
        client.delete(EVENTS.lock)
        taken += page

    assert len(taken) == 121
    assert bodies(taken)[-1] == b"good"


@pytest.mark.case("C02")
def test_an_answer_with_an_id_and_no_fields_counts_as_lost(client, monkeypatch):
    """A server before 7.0 answers XCLAIM of a deleted entry with an id and nothing: that entry is lost too."""
    dead = reader(client)
    entry = client.xadd(STREAM, {"b": "body"})
    dead.read(["t-red"])
    die(client, dead)
    heir = reader(client)
    evaluate = client.eval
    old = [[[entry, dead.consumer.encode(), 5, 1]], [[entry, None], None]]
    monkeypatch.setattr(client, "eval", lambda script, *rest: old if script == TAKE else evaluate(script, *rest))

    taken = heir.take_over(["t-red"], 1)

    assert [(one.id, one.fields) for one in taken] == [(entry.decode(), None)]


@pytest.mark.case("C03")
def test_entries_of_a_reader_that_lives_are_never_taken(client):
    """However long a live reader holds an entry, no other takes it and its delivery count stays one."""
    slow, other = reader(client), reader(client)
    client.xadd(STREAM, {"b": "slow"})
    slow.read(["t-red"])
    client.delete(EVENTS.lock)

    assert other.take_over(["t-red"], 1) == []
    assert client.xpending_range(STREAM, GROUP, "-", "+", 10)[0]["times_delivered"] == 1


@pytest.mark.case("C04")
def test_entries_of_a_dead_reader_are_taken_with_no_new_traffic_and_counted(client):
    """A replacement under another name takes all five, each marked as handed over twice."""
    dead = reader(client)
    for number in range(5):
        client.xadd(STREAM, {"b": str(number)})
    dead.read(["t-red"])
    die(client, dead)

    taken = reader(client).take_over(["t-red"], 1)

    assert bodies(taken) == [b"0", b"1", b"2", b"3", b"4"]
    assert {entry.deliveries for entry in taken} == {2}


@pytest.mark.case("C04")
def test_the_number_of_consumers_stays_bounded_over_restarts(client):
    """After fifty readers that died and fifty that retired, only the one that lives is registered."""
    for number in range(100):
        client.xadd(STREAM, {"b": "x"})
        streams = reader(client)
        streams.read(["t-red"])
        streams.acknowledge(streams.read_own(["t-red"]))
        if number % 2:
            streams.retire(["t-red"])
        else:
            die(client, streams)
    last = reader(client)
    last.read(["t-red"])
    last.take_over(["t-red"], 1)

    assert [row["name"].decode() for row in client.xinfo_consumers(STREAM, GROUP)] == [last.consumer]


def test_two_readers_never_share_a_name(client):
    """Readers of one process on one host have names of their own."""
    assert reader(client).consumer != reader(client).consumer


def test_a_reply_that_was_lost_is_read_again_under_the_own_name(client):
    """Entries handed over in an answer that never arrived are found by reading what is pending for oneself."""
    streams = reader(client)
    client.xadd(STREAM, {"b": "unseen"})
    streams.read(["t-red"])  # the answer is dropped here

    assert bodies(streams.read_own(["t-red"])) == [b"unseen"]
    assert streams.read(["t-red"]) == []


def test_a_backlog_of_one_tenant_does_not_crowd_out_another(client):
    """One read brings entries of both tenants, though one has more than a batch waiting."""
    fill(client, "t-red", 1_500)
    client.xadd(stream_of("t-blue"), {"b": "quiet"})
    streams = reader(client)

    first = streams.read(["t-red", "t-blue"])

    assert {entry.tenant for entry in first} == {"t-red", "t-blue"}
    assert len(first) == 501


def test_reads_stay_bounded_with_many_busy_tenants(client):
    """Fifty tenants with a backlog each bring at most the ceiling of entries in one read."""
    tenants = [f"t{number}" for number in range(50)]
    for tenant in tenants:
        fill(client, tenant, 60)
    streams = reader(client)

    assert len(streams.read(tenants)) == 2_000
    assert len(streams.read(tenants)) == 500


def test_an_acknowledged_entry_is_gone_from_stream_and_pending_list(client):
    """Acknowledging takes the entry off both, and its mark of having run alone."""
    dead = reader(client)
    client.xadd(STREAM, {"b": "x"})
    dead.read(["t-red"])
    die(client, dead)
    heir = reader(client)
    taken = heir.take_over(["t-red"], 1)
    heir.mark_alone(taken[0])

    heir.acknowledge(taken)

    assert client.xlen(STREAM) == 0
    assert client.xpending(STREAM, GROUP)["pending"] == 0
    assert client.hgetall(f"{STREAM}:alone") == {}


def test_only_marks_that_stayed_count_as_deaths(client):
    """A mark taken back is no death; one left by a process that died is counted by the next."""
    streams = reader(client)
    entry = StreamEntry("t-red", STREAM, "1-1", {}, 2)

    assert streams.mark_alone(entry) == 0
    streams.unmark_alone(entry)
    assert streams.mark_alone(entry) == 0
    assert streams.mark_alone(entry) == 1


def test_a_mark_that_redis_being_away_left_goes_with_the_entry(client):
    """An entry marked alone and read again after a lost reply leaves no mark when it is acknowledged."""
    fill(client, "t-red", 1)
    streams = reader(client)
    (entry,) = streams.read(["t-red"])
    streams.mark_alone(entry)

    streams.acknowledge(streams.read_own(["t-red"]))

    assert client.hgetall(f"{STREAM}:alone") == {}


@pytest.mark.parametrize("wakes", ["reads", "lives"])
def test_a_reader_that_wakes_while_it_is_forgotten_loses_nothing(client, monkeypatch, wakes):
    """A reader that was stopped looks dead; what it reads before it is forgotten stays pending under its name."""
    fill(client, "t-red", 1)
    sleeper = reader(client)
    sleeper.read_own(["t-red"])
    client.xgroup_createconsumer(STREAM, GROUP, sleeper.consumer)
    die(client, sleeper)
    other = reader(client)
    dead = other._dead_consumers(STREAM)
    assert dead == [(sleeper.consumer, 0)]
    monkeypatch.setattr(other, "_dead_consumers", lambda _: dead)
    if wakes == "lives":
        sleeper.keep_alive()
    read = sleeper.read(["t-red"]) if wakes == "reads" else []

    other.take_over(["t-red"], 5)

    names = [row["name"].decode() for row in client.xinfo_consumers(STREAM, GROUP)]
    assert sleeper.consumer in names
    assert client.xpending(STREAM, GROUP)["pending"] == len(read)


def test_what_a_dead_reader_said_of_itself_is_forgotten_with_it(client):
    """The health hash keeps no field of a reader that was killed."""
    fill(client, "t-red", 1)
    dead, other = reader(client), reader(client)
    dead.acknowledge(dead.read(["t-red"]))
    Pulse(client, dead.consumer).write(1, "ok")
    Pulse(client, other.consumer).write(1, "ok")
    die(client, dead)

    other.take_over(["t-red"], 5)

    assert client.hkeys(HEALTH_KEY) == [other.consumer.encode()]


def test_a_key_that_is_no_stream_keeps_no_other_tenant_waiting(client, monkeypatch):
    """With a string in the place of one tenant's stream the others are read; once it is gone, so is that tenant's."""
    monkeypatch.setattr(stream_module, "NO_STREAM_S", 0.0)
    streams = reader(client)
    fill(client, "t-red", 1)
    streams.acknowledge(streams.read(["t-red", "t-blue"]))
    client.delete(STREAM)
    client.set(STREAM, "no stream")
    fill(client, "t-blue", 1)

    found = [entry.tenant for _ in range(3) for entry in streams.read(["t-red", "t-blue"])]
    client.delete(STREAM)
    fill(client, "t-red", 1)

    assert found == ["t-blue"]
    assert [entry.tenant for _ in range(2) for entry in streams.read(["t-red", "t-blue"])] == ["t-red"]


GREATEST = f"{2**64 - 1}-{2**64 - 1}"


def add_greatest(client: redis.Redis) -> None:
    client.xadd(STREAM, {"b": "evil"}, id=GREATEST)


def set_greatest(client: redis.Redis) -> None:
    client.execute_command("XSETID", STREAM, GREATEST)


def add_future(client: redis.Redis) -> None:
    client.xadd(STREAM, {"b": "evil"}, id=f"{2**64 - 1}-0")


@pytest.mark.parametrize("write", [add_greatest, set_greatest, add_future])
def test_a_stream_whose_last_id_lies_in_the_future_is_made_anew_once_it_is_drained(client, write):
    """After an id that leaves no room for another, the tenant's next announcement is taken, and read, in real time."""
    first, second = reader(client), reader(client)
    before = client.xadd(STREAM, {"b": "before"})
    first.acknowledge(first.read(["t-red"]))
    write(client)
    if write is not add_future:
        with pytest.raises(redis.ResponseError, match="exhausted the last possible ID"):
            client.xadd(STREAM, {"b": "refused"})
    first.acknowledge(first.read(["t-red"]))
    second.read(["t-red"])

    first.take_over(["t-red"], 1)
    at = first.micros()
    after = client.xadd(STREAM, {"b": "after"})
    (entry,) = second.read(["t-red"])

    assert (entry.id, entry.fields) == (after.decode(), {b"b": b"after"})
    assert abs(entry.micros - at) < 60_000_000
    assert int(after.partition(b"-")[0]) > int(before.partition(b"-")[0])


@pytest.mark.parametrize("taken", [False, True])
def test_a_stream_is_not_made_anew_while_an_entry_is_unread_or_in_hand(client, taken):
    """Unread, or read and not acknowledged, even with its body gone: what stands there stays."""
    streams = reader(client)
    streams.read(["t-red"])
    waiting = client.xadd(STREAM, {"b": "waits"})
    last = waiting
    if taken:
        streams.read(["t-red"])
        client.xdel(STREAM, waiting)
        client.execute_command("XSETID", STREAM, last := GREATEST.encode())
    else:
        add_greatest(client)
        last = GREATEST.encode()

    streams.take_over(["t-red"], 1)

    assert client.xinfo_stream(STREAM)["last-generated-id"] == last
    assert client.xpending(STREAM, GROUP)["pending"] == taken
    assert [id for id, _ in client.xrange(STREAM)] == ([] if taken else [waiting, last])


def test_an_entry_cannot_have_come_before_the_stream_was_last_read_empty(client):
    """An id of an hour ago counts as of the moment when the stream was last seen empty, at the earliest."""
    streams = reader(client)
    started = streams.micros()
    streams.read(["t-red"])
    drained = streams.micros()
    streams.read(["t-red"])
    client.xadd(STREAM, {"b": "x"}, id=f"{started // 1000 - 3_600_000}-1")

    (entry,) = streams.read(["t-red"])

    assert entry.arrival(streams.micros()) == drained
    assert started < drained


def test_a_read_that_was_full_says_nothing_of_what_came_when(client):
    """Entries behind a full batch keep the moment of their id: they may have been there all along."""
    streams = reader(client, batch=2)
    fill(client, "t-red", 3)
    streams.micros()
    streams.read(["t-red"])

    (third,) = streams.read(["t-red"])

    assert third.arrival(streams.micros()) == third.micros
