"""An openapi pack through the whole installed runtime: real rows, hub and audit, the service on loopback."""

from __future__ import annotations

import pytest

from sense_worker.invoker import Invoker
from sense_worker.settings import Settings
from tests.notes_service import notes_service

AXES = ("pack.connect", "verb.exec.read", "verb.exec.write")


@pytest.fixture
def service(world, ana):
    """The example pack `notes` is installed and active on ana's session in project apollo; its service runs."""
    with notes_service() as running:
        world.operator.install_pack(running.pack(world.folder / "source" / "notes"))
        world.operator.add_project("apollo")
        world.operator.add_member("apollo", "ana")
        for capability in AXES:
            world.operator.add_grant("ana", capability, pack="notes")
        ana.activate("notes", project="apollo")
        yield running


def opened(world, networks):
    """Ana, running commands on a worker whose operator named networks."""
    settings = Settings.load(
        {
            "HCP_HOME": str(world.settings.home),
            "SENSE_DATABASE_URL": world.settings.database_url,
            **({"SENSE_EXEC_NETWORKS": networks} if networks else {}),
        }
    )
    return Invoker.open(settings, session_file=world.folder / "t-red-ana.session")


@pytest.mark.spec("1.5.adapters")
@pytest.mark.spec("1.6.connect")
def test_connect_and_call(world, service):
    """Ana connects, adds and reads under a key that nobody sees again: not in results, rows or the audit."""
    with opened(world, "127.0.0.0/8") as invoker:
        assert invoker.exec("notes", "notes.list", {}, project="apollo").error == "not connected: notes"
        paired = {"name": "ana", "code": service.code}
        assert invoker.connect("notes", paired, project="apollo").result == {"identity": "ana@notes"}
        added = invoker.exec("notes", "notes.add", {"title": "Hello"}, project="apollo")
        assert (added.error, added.result["body"]["by"]) == (None, "ana")
        told = invoker.exec("notes", "notes.list", {}, project="apollo").result
        assert [one["title"] for one in told["body"]["notes"]] == ["Hello"]
    audit = world.settings.audit_file.read_text()
    assert '"binding":"ana@notes"' in audit
    assert service.code not in audit


def test_an_operator_names_what_is_internal(world, service):
    """Where no network is named, the pack's service on loopback is not called."""
    with opened(world, "") as invoker:
        answer = invoker.connect("notes", {"name": "ana", "code": service.code}, project="apollo")
    assert "SENSE_EXEC_NETWORKS" in answer.error
    assert answer.error.startswith("not reached: 127.0.0.1:")
