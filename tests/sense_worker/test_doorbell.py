"""The doorbell on a real server: who waits for no time at all does not wait for ever."""

from __future__ import annotations

import redis

from sense_worker.doorbell import Doorbell

LANE = "t-red/inbox"


def test_a_wait_of_no_time_answers_at_once(redis_url):
    """With SENSE_LINGER_S=0 a drain asks whether somebody rang, and never blocks: to BLPOP a timeout of 0 is none."""
    with redis.Redis.from_url(redis_url, socket_timeout=0.5, protocol=2) as client:
        sent: list[str] = []
        bell = Doorbell(client, sent.append)

        assert bell.wait(LANE, 0.0) is False
        bell.ring([LANE])
        assert bell.wait(LANE, 0.0) is True
        assert bell.wait(LANE, 0.0) is False

    assert sent == [LANE]


def test_a_drain_that_goes_on_after_its_stop_gives_its_sign_again(redis_url):
    """One sign a second is enough, but not where a stop took it away: a ring would send for a second drain."""
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        sent: list[str] = []
        bell = Doorbell(client, sent.append)

        bell.start(LANE)
        bell.ring([LANE])
        assert bell.stop(LANE) is True
        bell.at_work(LANE)
        bell.ring([LANE])

    assert sent == []
