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
