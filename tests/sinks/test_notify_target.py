"""A notification within what its service allows, and what remains whole of it (C54)."""

from __future__ import annotations

import json
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import pytest
from apprise.plugins import discord, telegram

from runtime_core.egress import Egress
from sinks.notify_target import target
from sinks.notify_text import MARK, characters
from sinks.notify_watch import Watch
from tests.sinks.receivers import ADDRESS, Answer, HttpReceiver

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Apprise imports
PIECE = "e\u0301\U0001f469\u200d\U0001f469\u200d\U0001f466\U0001f1e9\U0001f1ea \u0928\u0940 word "
TEXT = (PIECE * (10_000 // len(PIECE) + 1))[:10_000]
SERVICES = {
    2_000: ("discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", "content"),
    3_000: ("json://{}/", "message"),
    4_096: ("tgram://123456789:abcdefg_hijklmnop/12315544/", "text"),
}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpReceiver]:
    """Takes the place of the two services whose addresses are fixed."""

    def answer(path: str, body: bytes) -> Answer:
        return Answer(200, b'{"ok": true}')

    with HttpReceiver(answer) as receiver:
        place = f"http://{ADDRESS}:{receiver.port}/"
        monkeypatch.setattr(discord.NotifyDiscord, "notify_url", place)
        monkeypatch.setattr(telegram.NotifyTelegram, "notify_url", place)
        yield receiver


@pytest.mark.case("C54")
@pytest.mark.parametrize("limit", SERVICES)
def test_a_message_is_cut_to_the_limit_between_whole_characters(receiver, limit):
    """10,000 characters arrive as one message within the limit, whole to its last character, with a mark at its end."""
    url, field = SERVICES[limit]
    made: Any = target(url.format(f"{ADDRESS}:{receiver.port}"), Watch(Egress([ip_network("127.0.0.0/8")], "")))
    made._service.body_maxlen = limit
    made._service.request_rate_per_sec = 0

    assert made.send("commit", TEXT) == {"sent": True}

    ((_, body),) = receiver.requests
    text = json.loads(body)[field]
    assert limit - 60 < len(text.encode("utf-16-le")) // 2 <= limit
    assert text.endswith(MARK)
    kept = list(characters(text.removesuffix(MARK)[text.index("e\u0301") :]))
    assert kept == list(characters(TEXT))[: len(kept)]


def test_what_fits_is_sent_as_it_is(receiver):
    """No mark and no change where nothing has to go; a message without text has its title for one."""
    made: Any = target(f"json://{ADDRESS}:{receiver.port}/", Watch(Egress([ip_network("127.0.0.0/8")], "")))
    made.send("title", PIECE)
    made.send("title", "")
    sent = [json.loads(body) for _, body in receiver.requests]
    assert [one["message"] for one in sent] == [PIECE.rstrip(), "title"]


def test_a_character_that_no_limit_holds_is_never_sent(receiver):
    """What cannot be cut between characters is refused for good."""
    made: Any = target(f"json://{ADDRESS}:{receiver.port}/", Watch(Egress([ip_network("127.0.0.0/8")], "")))
    made._service.body_maxlen = 200
    why = "is given a character longer than its messages may be"
    assert made.send("title", "e" + "\u0301" * 1_000) == {"sent": False, "why": why, "never": True, "after": ()}
    assert receiver.requests == []
