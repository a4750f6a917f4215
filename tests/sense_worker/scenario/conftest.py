"""The fixture that checks scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sense_worker.scenario.files import Check

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Check scenarios in a folder of this test."""
    return Check(tmp_path, capsys)
