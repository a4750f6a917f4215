"""Fixtures of the adapters' tests."""

from __future__ import annotations

import pytest

from runtime_core.adapters import sandbox, walls
from tests.runtime_core.adapters.wrapping import RUNGS, off


@pytest.fixture(params=RUNGS)
def rung(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test without bubblewrap, and within it where it works."""
    if request.param == "limits":
        monkeypatch.setattr(sandbox, "bubblewrap", off)
    elif walls.bubblewrap().path is None:
        pytest.skip(walls.bubblewrap().reason)
    return str(request.param)
