"""The recorder that the tests of this folder record with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.intake_bench import IntakeBench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """A recorder on each of the two databases."""
    bench = IntakeBench(tmp_path, database)
    yield bench
    bench.close()
