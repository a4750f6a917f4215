"""What a publisher does when the stream cannot take an announcement, and when the ledger is to be seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import hiredis
import pytest
import sqlalchemy as sa

from runtime_core.errors import (
    IngressUnreachable,
    LedgerBusy,
    PublishError,
    SettingsError,
    UsageError,
)
from runtime_core.signing import verify
from sense_worker.publisher import LedgerLook, Published, Publisher
from sense_worker.publishing import Do
from sense_worker.spool import Sender, Spool
from sense_worker.storage.engine import Database
from sense_worker.storage.migrate import migrate
from sense_worker.storage.tables import DeadEntry, EventRow
from sense_worker.wire import parse_entry
from tests.sense_worker.fake_stream import ANA, Stream, down, many, one, rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# --- the spool --------------------------------------------------------------------------------------------------------


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", ANA.origin)


def test_what_cannot_be_sent_is_kept_and_sent_first(spool):
    """While the server is away announcements are kept; the next one that gets through sends them first, in order."""
    stream = Stream(down(6))
    kept = rules(stream, spool=spool)
    for id in ("e-1", "e-2"):
        found = stream.drive(kept.publish(one(id), "accepted"))
        assert (found.spooled, found.stream_id, found.event_id) == (True, None, ANA.event_id(id).hex())
    stream.now += 3600
    found = stream.drive(kept.publish(one("e-3"), "accepted"))
    assert (found.spooled, found.stream_id) == (False, "3-0")
    assert stream.ids == ["e-1", "e-2", "e-3"]
    assert not spool.holds()
    old = parse_entry(stream.entries[0])
    assert json.loads(old.b)["occurred_at"].startswith("2026-06-01T12:00")
    assert int(old.t) >= 1_780_315_200 + 3600
    assert verify([b"s3cret"], old.c, old.i, old.t, old.b, old.s)


def test_a_full_stream_is_kept_for_later_too(spool):
    """With a spool, IngressFull keeps the announcement behind what is kept already."""
    stream = Stream()
    full = rules(stream, spool=spool, stream_limit=1)
    found = stream.drive(full.publish_many(many(3)))
    assert [published.spooled for published in found] == [False, True, True]
    assert stream.drive(full.publish(one("e-3"), "accepted")).spooled
    assert stream.ids == ["e-0"]
    assert stream.drive(rules(stream, spool=spool).flush()) == 3
    assert stream.ids == ["e-0", "e-1", "e-2", "e-3"]


def test_what_the_server_refuses_is_not_kept(spool):
    """An error that no waiting heals is raised, spool or not."""
    stream = Stream([hiredis.ReplyError("NOPERM no access to that key")])
    with pytest.raises(PublishError, match="NOPERM"):
        stream.drive(rules(stream, spool=spool).publish(one(), "accepted"))
    assert not spool.holds()


def test_a_flush_that_is_cut_short_goes_on_where_it_was(spool):
    """Each kept one is taken off only after XADD answered for it; what was sent before a failure is not sent again."""
    stream = Stream(down(3))
    kept = rules(stream, spool=spool)
    stream.drive(kept.publish_many(many(1200)))
    stream.faults = iter([None, None, *down(3)])
    with pytest.raises(IngressUnreachable):
        stream.drive(kept.flush())
    assert len(stream.entries) == 500
    assert stream.drive(kept.flush()) == 700
    assert stream.ids == [f"e-{number}" for number in range(1200)]
    assert stream.drive(kept.flush()) == 0


def test_an_announcement_does_not_wait_for_another_process_that_sends(spool):
    """While another process sends what is kept, a new one is kept behind it without asking the server."""
    spool.keep([])
    stream = Stream(down(3))
    kept = rules(stream, spool=spool)
    stream.drive(kept.publish(one("e-1"), "accepted"))
    other = Sender(spool)
    assert other.claim()
    stream.exchanges.clear()
    assert stream.drive(kept.publish(one("e-2"), "accepted")).spooled
    assert stream.exchanges == []
    assert [item.message_id for item in other.take(9, 9999)] == ["e-1", "e-2"]
    other.release()


def test_what_was_kept_as_the_other_process_ended_is_sent_at_once(spool, monkeypatch):
    """Where the sending process ends between the look and the append, the one that appended sends it itself."""
    stream = Stream(down(3))
    kept = rules(stream, spool=spool)
    stream.drive(kept.publish(one("e-1"), "accepted"))
    other = Sender(spool)
    assert other.claim()
    keep = Spool.keep

    def end_first(self: Spool, items: Any) -> None:
        other.release()
        keep(self, items)

    monkeypatch.setattr(Spool, "keep", end_first)
    stream.drive(kept.publish(one("e-2"), "accepted"))
    assert stream.ids == ["e-1", "e-2"]
    assert not spool.holds()


def test_a_plan_that_is_given_up_lets_go_of_the_spool(spool):
    """When a plan is closed in the middle (a cancelled task), another process may send at once."""
    stream = Stream(down(3))
    kept = rules(stream, spool=spool)
    stream.drive(kept.publish(one(), "accepted"))
    plan = kept.flush()
    step = next(plan)
    while isinstance(step, Do):
        step = plan.send(step.act())
    plan.close()
    other = Sender(spool)
    assert other.claim()
    assert len(other.take(9, 9999)) == 1
    other.release()


def test_a_spool_that_cannot_be_used_raises(tmp_path):
    """A folder in the spool's place is an error of the call: nothing is silently not kept."""
    stream = Stream(down(3))
    with pytest.raises(PublishError, match="the spool cannot be used"):
        stream.drive(rules(stream, spool=Spool(tmp_path / "no/spool", ANA.origin)).publish(one(), "accepted"))


# --- confirm="ledger" -------------------------------------------------------------------------------------------------


def test_confirm_ledger_waits_until_the_row_is_seen():
    """The ledger is asked for the event's id until it has it; a busy ledger is asked again."""
    stream = Stream()
    answers: Iterator[Any] = iter([False, LedgerBusy("ledger", "locked"), False, True])
    asked: list[Published] = []

    def ledger(published: Published) -> bool:
        asked.append(published)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    found = stream.drive(rules(stream, ledger=ledger).publish(one(), "ledger"))
    assert {one.event_id for one in asked} == {ANA.event_id("e-1").hex()}
    assert (found.stream_id, stream.pauses) == ("1-0", [0.01, 0.02, 0.04])


def test_confirm_ledger_gives_up_in_time():
    """An event that does not show raises PublishError, which says that it may still arrive."""
    stream = Stream()
    with pytest.raises(
        PublishError, match=r"not in the ledger within 1 s \(it may still arrive; see `sense-worker explain"
    ):
        stream.drive(rules(stream, ledger=lambda _: False).publish(one(), "ledger"))
    assert sum(stream.pauses) >= 1.0
    assert max(stream.pauses) == 0.25
    assert stream.ids == ["e-1"]


def test_confirm_needs_a_ledger_and_a_word_it_knows():
    """Without a ledger, or with another word, nothing is sent."""
    stream = Stream()
    for confirm, reason in (("ledger", "needs a ledger"), ("seen", "must be 'accepted' or 'ledger'")):
        with pytest.raises(UsageError, match=reason):
            stream.drive(rules(stream).publish(one(), confirm))  # type: ignore[arg-type]
    assert stream.exchanges == []


def test_what_is_kept_is_not_waited_for(spool):
    """An announcement in the spool cannot be in the ledger: the answer says that it is kept."""
    stream = Stream(down(3))
    kept = rules(stream, spool=spool, ledger=lambda _: False)
    assert stream.drive(kept.publish(one(), "ledger")).spooled


def test_a_ledger_that_is_not_there_does_not_hide_that_the_event_was_accepted(tmp_path):
    """The stream has it already: the error says under which id, and what is wrong with the ledger."""
    stream = Stream()
    look = LedgerLook(f"sqlite:///{tmp_path}/none.db", "acme")

    with pytest.raises(PublishError, match=r"accepted as 1-0, but the ledger cannot be asked: .*no database at"):
        stream.drive(rules(stream, ledger=look).publish(one(), "ledger"))
    assert stream.ids == ["e-1"]
    assert list(tmp_path.iterdir()) == []


def test_a_look_into_the_database_finds_the_event_or_its_refusal(tmp_path):
    """A ledger given by its URL is looked into: the event is there, or not, or was refused; a bad URL is told."""
    url = f"sqlite:///{tmp_path}/sense.db"
    database = Database(url)
    migrate(database)
    texts = dict.fromkeys(("tenant", "pack_id", "ref", "activation_id", "publisher", "message_id"), "x")
    texts |= dict.fromkeys(("occurred_at", "stream_id", "digest"), "x")
    row = {
        "id": ANA.event_id("e-1"),
        "body": b"{}",
        "body_digest": b"",
        "generation": 1,
        "signed_at": 1,
        "accepted_at": 1,
    }
    with database.write() as connection:
        connection.execute(sa.insert(EventRow).values(**texts, **row))
        refused = {"stream": "sense:acme:events", "stream_id": "9-0", "tenant": "acme", "word": "invalid_data"}
        more = {"detail": "data: /: is missing", "raw": "", "raw_length": 0, "raw_digest": "", "at": 1}
        connection.execute(sa.insert(DeadEntry).values(**refused, **more))
    look = LedgerLook(url, "acme")
    there, absent, dead = (
        Published(id, ANA.event_id(id).hex(), stream_id)
        for id, stream_id in (("e-1", "1-0"), ("e-2", "2-0"), ("e-3", "9-0"))
    )
    assert [look(there), look(absent), LedgerLook(url, "other")(dead)] == [True, False, False]
    with pytest.raises(PublishError, match="accepted as 9-0, then refused: invalid_data: data: /: is missing"):
        look(dead)
    look.close()
    database.dispose()
    with pytest.raises(SettingsError, match="database"):
        LedgerLook("nonsense", "acme")(absent)


def test_a_publisher_looks_into_the_ledger_it_was_given(tmp_path):
    """database_url is what confirm="ledger" looks into, and a ledger of one's own goes before it."""
    file = tmp_path / "activation.json"
    who = {"tenant": "acme", "principal": "ana", "activation_id": "act_1", "pack_id": "git", "secret": "s3cret"}
    file.write_text(json.dumps({"v": 1, **who, "redis_url": "unix:///nowhere"}))
    file.chmod(0o600)
    with Publisher(file, database_url=f"sqlite:///{tmp_path}/sense.db") as publisher:
        assert isinstance(publisher._rules.ledger, LedgerLook)
    with Publisher(file, database_url="nonsense", ledger=bool) as publisher:
        assert publisher._rules.ledger is bool
