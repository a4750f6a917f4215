"""Hubs over both databases, and keyrings that a test can lock, lose and look into."""

from __future__ import annotations

import pytest

from sense_worker.hubs import build_hubs
from sense_worker.hubs.kept import KeptHub
from sense_worker.hubs.places import Desktop, DesktopPlace
from sense_worker.settings import Settings
from sense_worker.vault import Vault
from tests.sense_worker.hubs.fake_keyring import FakeKeyring


@pytest.fixture
def vault():
    """A vault with one key."""
    return Vault([bytes(range(32))])


@pytest.fixture
def settings(tmp_path, database_url):
    """The settings of a home on the database at hand."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Settings.load({"HCP_HOME": str(home), "SENSE_DATABASE_URL": database_url})


@pytest.fixture
def hubs(settings, database, vault, monkeypatch):
    """The hubs of a process on a host without a desktop."""
    monkeypatch.setattr("sense_worker.hubs.places.desktop_keyring", lambda: Desktop(None, "none here"))
    return build_hubs(settings, database, vault)


@pytest.fixture
def backend():
    """A keyring that encrypts."""
    return FakeKeyring()


@pytest.fixture
def on_desktop(database, vault, backend):
    """The hub `keyring` on a desktop."""
    place = DesktopPlace("sense-worker home", lambda: Desktop(backend))
    return KeptHub("keyring", "keyring", database, vault, place)
