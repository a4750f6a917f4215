"""What every process of a home builds for itself."""

from __future__ import annotations

import base64
import threading
from typing import TYPE_CHECKING

import pytest
from cryptography.fernet import Fernet

from runtime_core.errors import AuditUnavailable, LedgerBusy, SettingsError
from sense_worker import wiring
from sense_worker.drain import Drain
from sense_worker.home import chain_name
from sense_worker.settings import Settings
from sense_worker.storage.engine import Database
from sense_worker.vault import Vault
from sense_worker.wiring import PoolProcess, delivery_drain
from tests.provision import Rows

if TYPE_CHECKING:
    from pathlib import Path


class Bell:
    """A bell nobody rings."""

    def start(self, _lane) -> None: ...

    def ring(self, _lanes) -> None: ...

    def wait(self, _lane, _seconds) -> bool:
        return False

    def stop(self, _lane) -> bool:
        return False


def test_processes_that_start_at_once_agree_on_the_chains_name(tmp_path: Path):
    """Whoever comes first names the chain; nobody sees half a name, and no draft is left."""
    settings = Settings.load({"HCP_HOME": str(tmp_path)})
    names: list[str] = []
    begin = threading.Barrier(16)

    def ask() -> None:
        begin.wait()
        names.append(chain_name(settings))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(names)) == 1
    assert len(names[0]) == 16
    assert [path.name for path in tmp_path.iterdir()] == ["audit.chain"]


def test_a_home_that_is_not_there_is_named(tmp_path: Path):
    """A process whose home is missing says so in one line with the way out, and makes no folder."""
    settings = Settings.load({"HCP_HOME": str(tmp_path / "none")})

    with pytest.raises(SettingsError, match=r"there is no folder .*none \(run `sense-worker init`\)"):
        chain_name(settings)

    assert list(tmp_path.iterdir()) == []


def test_a_pool_process_reads_its_keys_again_after_a_fault_of_theirs(tmp_path, sqlite_url, monkeypatch):
    """Under a wrong key the sink cannot be opened; once the key file is right, the next ring drains it."""
    right = Fernet.generate_key()
    (tmp_path / "secret.keys").touch(0o600)
    (tmp_path / "secret.keys").write_bytes(Fernet.generate_key())
    settings = Settings.load({"HCP_HOME": str(tmp_path), "SENSE_DATABASE_URL": sqlite_url})
    database = Database(sqlite_url)
    rows = Rows(database, Vault([base64.urlsafe_b64decode(right)]))
    rows.sink("log", "memory")
    opened: list[str] = []
    monkeypatch.setattr(wiring, "redis_client", lambda *_, **__: None)
    monkeypatch.setattr(wiring, "Doorbell", lambda *_: Bell())
    claim = Drain.claim
    monkeypatch.setattr(Drain, "claim", lambda drain, lane: (claim(drain, lane), opened.append(lane))[0])
    process = PoolProcess(settings, print, delivery_drain)

    process.run("t-red/log")
    before = list(opened)
    (tmp_path / "secret.keys").write_bytes(right)
    process.run("t-red/log")

    assert (before, opened) == ([], ["t-red/log"])
    database.dispose()


@pytest.mark.parametrize("fault", [LedgerBusy("database", "locked"), AuditUnavailable("audit", "full")])
def test_a_pool_process_keeps_what_it_built_while_it_only_waits(tmp_path, sqlite_url, monkeypatch, fault):
    """A database or audit that is away for a moment costs no new start."""
    settings = Settings.load({"HCP_HOME": str(tmp_path), "SENSE_DATABASE_URL": sqlite_url})
    Vault.create(tmp_path)
    build, built = wiring.build_ports, []
    monkeypatch.setattr(wiring, "build_ports", lambda settings: built.append(build(settings)) or built[-1])
    monkeypatch.setattr(wiring, "redis_client", lambda *_, **__: None)

    def run(*_: object) -> None:
        raise fault

    monkeypatch.setattr(Drain, "run", run)
    process = PoolProcess(settings, print, delivery_drain)

    for _ in range(3):
        process.run("t-red/log")

    assert len(built) == 1
    built[0].close()
