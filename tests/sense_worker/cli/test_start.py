"""What stops `worker` and `up` before anything starts: secrets that are none (C11), flags that are no flags (C65)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sense_worker.settings import Settings

VALUES = json.loads((Path(__file__).parents[2] / "cases" / "C65-values.json").read_text())
GUARDS = {"SENSE_ALLOW_MOCK": False, "SENSE_AUDIT_FSYNC": True}
"""Every boolean setting with its value where it is unset: the one under which the guard stands."""


@pytest.fixture
def named(bare: Any, monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Any:
    """A command line without a home, on a server that could be used."""
    monkeypatch.setenv("SENSE_REDIS_URL", redis_url)
    return bare


def flags() -> dict[str, bool]:
    """Return the boolean settings with their defaults."""
    fields = Settings.model_fields.items()
    return {f"SENSE_{name.upper()}": field.default for name, field in fields if field.annotation is bool}


@pytest.mark.case("C11")
@pytest.mark.parametrize("command", ["worker", "up"])
@pytest.mark.parametrize("value", ["", " ", "\t", "$NOWHERE", "${NOWHERE}"])
def test_empty_secret_keys_stop_the_start(named, monkeypatch, command, value):
    """Exit 2 and one line that names the setting, not its value; no home, no database, no key was made."""
    monkeypatch.setenv("SENSE_SECRET_KEYS", value)

    done = named(command)

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("error: SENSE_SECRET_KEYS: is ")
    assert "NOWHERE" not in done.err
    assert not named.home.exists()


@pytest.mark.case("C11")
@pytest.mark.parametrize(
    ("command", "server"), [("worker", "named"), ("up", "named"), ("up", "private")], ids=lambda value: value
)
@pytest.mark.parametrize("place", ["dangling", "empty"])
def test_a_key_file_that_leads_nowhere_stops_the_start(named, monkeypatch, command, server, place):
    """Exit 2 and one line that names the file and the way out; nothing takes its place, and no server was started."""
    if server == "private":
        monkeypatch.delenv("SENSE_REDIS_URL")
    named.home.mkdir()
    keys = named.home / "secret.keys"
    if place == "dangling":
        keys.symlink_to("nowhere")
    else:
        keys.touch(0o600)

    done = named(command)

    reason = {"dangling": "the key file is a dangling link", "empty": "the key file is empty"}[place]
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: {keys}: {reason} (remove it, then run `sense-worker init`, or set SENSE_SECRET_KEYS)\n"
    assert keys.is_symlink() == (place == "dangling")
    assert keys.is_symlink() or keys.read_bytes() == b""
    left = {path.name for path in named.home.rglob("*") if not path.is_dir()}
    assert {name for name in left if not name.endswith("lock")} == {"secret.keys"}


@pytest.mark.case("C65")
def test_unset_every_guard_stands():
    """Each boolean setting is, unset, what its guard needs; another spelling of its name leaves it unset."""
    assert flags() == GUARDS
    for env in ({}, {name.lower(): "true" for name in GUARDS}, {name.removeprefix("SENSE_"): "1" for name in GUARDS}):
        loaded = Settings.load(env)
        assert {name: getattr(loaded, name.removeprefix("SENSE_").lower()) for name in GUARDS} == GUARDS


@pytest.mark.case("C65")
@pytest.mark.parametrize("command", ["worker", "up", "status", "init"])
@pytest.mark.parametrize("name", GUARDS)
def test_a_word_that_is_none_stops_every_command(named, monkeypatch, name, command):
    """Exit 2, with the setting's name and the words that are, whatever the value; nothing was made."""
    for value in VALUES["must_stop"]:
        monkeypatch.setenv(name, value)

        done = named(command)

        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"error: {name}: must be one of true, false, 1, 0")
    assert not named.home.exists()
