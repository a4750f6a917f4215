"""Fixtures of the adapters' tests."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from runtime_core.adapters import sandbox, walls
from tests.runtime_core.adapters.calling import Service
from tests.runtime_core.adapters.wrapping import RUNGS, off

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=RUNGS)
def rung(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test without bubblewrap, and within it where it works."""
    if request.param == "limits":
        monkeypatch.setattr(sandbox, "bubblewrap", off)
    elif walls.bubblewrap().path is None:
        pytest.skip(walls.bubblewrap().reason)
    return str(request.param)


@pytest.fixture
def service() -> Iterator[Service]:
    """A service on loopback, closed at the end."""
    one = Service()
    yield one
    one.close()


@pytest.fixture
def dumb() -> Iterator[socket.socket]:
    """A server that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening
