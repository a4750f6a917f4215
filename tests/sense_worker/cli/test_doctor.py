"""`doctor`: what this host can do, and what it lacks."""

from __future__ import annotations

import sys

import pytest

from runtime_core.adapters.walls import posture_report
from sense_worker.doctor import examine
from sense_worker.home import PLUGINS_FILE
from sense_worker.hubs.places import Desktop
from sense_worker.operator import Operator
from sense_worker.settings import Settings
from tests.sense_worker.cli.notes_home import install
from tests.sinks.sites import Site


def states(cli, code):
    """State and text by name, of a run that ends with this exit code."""
    done = cli("doctor", "--json")
    assert (done.code, done.err, done.json["ok"]) == (code, "", code == 0)
    return {one["name"]: (one["state"], one["text"]) for one in done.json["findings"]}


def test_a_sound_host_exits_0_and_shows_its_walls(cli):
    """Keys, database and audit are there; each wall of the sandbox is told with its reason where it is not in force."""
    found = states(cli, 0)

    assert [found[name][0] for name in ("keys", "database", "audit", "redis", "keyring")] == ["ok"] * 3 + ["note"] * 2
    assert {name: state for name, (state, _) in found.items() if name.startswith("sandbox")} == {
        f"sandbox: {wall.name}": "ok" if wall.in_force else "note" for wall in posture_report()
    }
    assert "schema current" in cli("doctor").out


def test_a_home_that_is_not_there_exits_1_and_stays_so(bare):
    """What is needed and missing is told with its way out; nothing is made."""
    found = states(bare, 1)

    assert [name for name, (state, _) in found.items() if state == "missing"] == [
        *("keys", "database", "audit", "packs", "sinks")
    ]
    assert "run `sense-worker init`" in found["keys"][1]
    assert not bare.home.exists()


@pytest.mark.spec("1.5.sandbox")
def test_native_local_is_shown_and_a_binary_that_is_gone_is_missing(cli, tmp_path):
    """Who runs outside the sandbox stands there by name; a host without an allowed binary cannot run its pack."""
    install(cli, tmp_path, sandbox={"bins": ["tool"], "posture": "native-local"})
    told = cli("doctor").out
    assert "native-local: runs outside the sandbox" in told
    assert "tool is " in told

    (tmp_path / "notes" / "tool").unlink()
    assert states(cli, 1)["pack default/notes"] == (
        "missing",
        f"tool: {tmp_path / 'notes' / 'tool'} is no executable file on this host",
    )


def test_a_named_server_that_does_not_answer_is_missing(cli, monkeypatch):
    """Its address is told without the password."""
    monkeypatch.setenv("SENSE_REDIS_URL", "redis://:canary-word@127.0.0.1:1/0")

    state, text = states(cli, 1)["redis"]

    assert (state, "canary-word" in text) == ("missing", False)


def test_where_credentials_stand_is_told(cli, monkeypatch):
    """In the desktop's keyring where there is one."""
    backend = type("Keyring", (), {"__module__": "keyring.backends.SecretService"})()
    monkeypatch.setattr("sense_worker.doctor.desktop_keyring", lambda: Desktop(backend))

    assert states(cli, 0)["keyring"] == ("ok", "keyring.backends.SecretService")


def test_with_postgresql_credentials_stand_in_the_table(tmp_path, postgresql_url):
    """A keyring of one host is no use to the workers of others."""
    settings = Settings.load({"HCP_HOME": str(tmp_path / "home"), "SENSE_DATABASE_URL": postgresql_url})
    Operator.initialize(settings)

    found = {one.name: one.state + one.text for one in examine(settings).findings}

    assert found["keyring"] == "okcredentials stand encrypted in the table, the ledger is PostgreSQL"
    assert found["database"] == "okpostgresql, schema current"


@pytest.mark.case("C52")
def test_sink_plugins_are_told_by_entry_point_and_package(cli, tmp_path, monkeypatch):
    """One that ends its process at import is missing, and why; one that loads is well; nothing is kept of it."""
    site = Site(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    site.good("zz-good", "good")
    site.install("zz-exits", "exits = zz_exits:Sink", "import os; os._exit(3)")
    found = states(cli, 1)
    assert found["sink plugin good"] == ("ok", "loads")
    assert found["sink plugin exits"] == ("missing", "zz-exits 1.0: its import ends the process, with exit code 3")
    assert not (cli.home / PLUGINS_FILE).exists()
    for module in site.modules:
        sys.modules.pop(module, None)
