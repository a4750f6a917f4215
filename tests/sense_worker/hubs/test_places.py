"""Where material stands apart: files of this host, and keyrings that encrypt."""

from __future__ import annotations

import stat
import sys
from types import SimpleNamespace

import pytest

from runtime_core.binding import HubUnavailable
from sense_worker.hubs import build_hubs
from sense_worker.hubs.places import desktop_keyring
from sense_worker.settings import Settings
from tests.sense_worker.hubs.fake_keyring import ANA, MATERIAL


def the_file(settings):
    (file,) = (settings.home / "credentials").iterdir()
    return file


@pytest.mark.spec("1.4.hubs")
def test_a_local_credential_is_a_private_file_of_this_host(hubs, settings, database, vault, tmp_path):
    """0600 in a folder 0700; another host with the same database has none, and forgets none of this one's."""
    hubs["local-credential"].keep(ANA, "ana@example", {"secret": MATERIAL})
    elsewhere = Settings.load({"HCP_HOME": str(tmp_path / "other"), "SENSE_DATABASE_URL": settings.database_url})
    elsewhere.home.mkdir()
    other = build_hubs(elsewhere, database, vault)["local-credential"]

    modes = [stat.S_IMODE(place.stat().st_mode) for place in (the_file(settings).parent, the_file(settings))]
    assert modes == [0o700, 0o600]
    assert (other.connected(ANA), other.forget(ANA)) == (False, False)
    assert hubs["local-credential"].mint(ANA) == ("ana@example", {"secret": MATERIAL})
    hubs["local-credential"].forget(ANA)
    assert list((settings.home / "credentials").iterdir()) == []


@pytest.mark.parametrize("spoil", ["open to others", "a link", "a folder", "torn"])
def test_a_file_that_is_not_as_it_was_made_denies(hubs, settings, spoil):
    """Nothing is read from a file that others may read, through a link, or from half a file."""
    hubs["local-credential"].keep(ANA, "ana@example", {"secret": MATERIAL})
    file = the_file(settings)
    if spoil == "open to others":
        file.chmod(0o644)
    elif spoil == "torn":
        file.write_bytes(file.read_bytes()[:-10])
    else:
        moved = file.rename(settings.home / "moved")
        file.symlink_to(moved) if spoil == "a link" else file.mkdir()

    with pytest.raises(HubUnavailable):
        hubs["local-credential"].mint(ANA)


def test_a_file_gone_by_hand_is_not_connected(hubs, settings):
    """The credential must be connected again."""
    hubs["local-credential"].keep(ANA, "ana@example", {"secret": MATERIAL})
    the_file(settings).unlink()

    assert hubs["local-credential"].connected(ANA) is False


def test_a_place_that_cannot_be_written_keeps_what_was(hubs, settings):
    """A folder that is none: keeping is unavailable, nothing half is left."""
    (settings.home / "credentials").write_text("in the place")

    with pytest.raises(HubUnavailable):
        hubs["local-credential"].keep(ANA, "ana@example", {"secret": MATERIAL})
    (settings.home / "credentials").unlink()
    assert hubs["local-credential"].connected(ANA) is False


def backend(module):
    return type("Keyring", (), {"__module__": module})()


@pytest.mark.spec("1.4.hubs")
@pytest.mark.parametrize(
    ("chosen", "taken"),
    [
        (backend("keyring.backends.SecretService"), True),
        (SimpleNamespace(backends=[backend("keyrings.alt.file"), backend("keyring.backends.kwallet")]), True),
        (SimpleNamespace(backends=[backend("keyrings.alt.file")]), False),
        (backend("keyrings.alt.file"), False),
        (backend("keyring.backends.fail"), False),
        (backend("keyring.backends.null"), False),
    ],
)
def test_only_a_keyring_that_encrypts_is_taken(chosen, taken, monkeypatch):
    """Neither a plain file nor a backend that keeps nothing, also where the library would take them first."""
    keyring = pytest.importorskip("keyring")
    monkeypatch.setattr(keyring, "get_keyring", lambda: chosen)

    found = desktop_keyring()

    assert (found.backend is not None, bool(found.reason)) == (taken, not taken)
    assert "alt" not in type(found.backend).__module__


def test_without_the_library_there_is_no_desktop(monkeypatch):
    """It is an extra; the reason names it."""
    monkeypatch.setitem(sys.modules, "keyring", None)

    assert desktop_keyring() == (None, "the library is not installed (pip install 'sense-worker[keyring]')")


def test_a_library_that_breaks_is_no_desktop(monkeypatch):
    """A configured backend that cannot be loaded is told by its kind of error."""
    keyring = pytest.importorskip("keyring")

    def broken():
        raise RuntimeError(MATERIAL)

    monkeypatch.setattr(keyring, "get_keyring", broken)

    assert desktop_keyring() == (None, "the library has no backend: RuntimeError")
