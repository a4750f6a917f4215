"""What the tests of Execute share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from tests.exec_bench import ExecBench

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def bench(tmp_path, redis_url, database) -> Iterator[ExecBench]:
    """A bench over both databases and a real Redis."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        made = ExecBench(home, database, client)
        yield made
        made.close()
