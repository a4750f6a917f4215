"""Commands run in process as a session, on both databases: families, disconnection, what fails closed."""

from __future__ import annotations

import json

import pytest

from runtime_core.errors import DoorError, HcpError, UsageError
from sense_worker.hubs import KeptHub, build_hubs
from sense_worker.hubs.places import Desktop, DesktopPlace
from sense_worker.invoker import Invoker, connect_command
from sense_worker.storage.schema import PRINCIPAL
from tests.notes_pack import SECRET, write_notes
from tests.sense_worker.hubs.fake_keyring import FakeKeyring

LOGIN = {"name": "ana", "password": SECRET}
AXES = ("pack.connect", "verb.exec.read", "verb.exec.write")


@pytest.fixture
def notes(world, ana):
    """Ana may do all with the packs `notes` and `pages` of the family `desk`, active on her session."""
    for pack_id in ("notes", "pages"):
        folder = write_notes(world.folder / "source" / pack_id, pack_id=pack_id, family="desk")
        world.operator.install_pack(folder, allow_bins={"tool": str(folder / "tool")})
        for capability in AXES:
            world.operator.add_grant("ana", capability, pack=pack_id)
        ana.activate(pack_id)
    return world


@pytest.fixture
def invoker(notes):
    """Ana, running commands."""
    with Invoker.open(notes.settings, session_file=notes.folder / "t-red-ana.session") as opened:
        yield opened


@pytest.mark.spec("1.4.family")
@pytest.mark.spec("1.6.connect")
def test_connecting_one_pack_connects_its_family_for_that_principal(notes, invoker, ana):
    """And for nobody else; disconnecting one ends it for all."""
    assert invoker.exec("pages", "pages.list", {}).error == "not connected: pages"
    assert invoker.connect("notes", LOGIN).plain()["result"] == {"identity": "ana@service"}

    assert invoker.exec("pages", "pages.list", {}).ok
    assert [one.connected for one in invoker.availability()] == [True, True]
    notes.operator.activate("pages")
    for capability in AXES:
        notes.operator.add_grant("operator", capability, pack="pages")
    with Invoker.open(notes.settings, session_file=notes.home / "t-red.session") as other:
        assert other.exec("pages", "pages.list", {}).error == "not connected: pages"
    assert ana.disconnect("pages").consent == "family:desk"
    assert invoker.exec("notes", "notes.list", {}).error == "not connected: notes"


@pytest.mark.spec("9.6.4")
@pytest.mark.parametrize("name", [f"ana-{SECRET}", "a" * 250])
def test_an_identity_that_is_no_name_is_not_kept(notes, invoker, name):
    """One that holds the secret would be in every line of the audit, a long one too; nothing is connected."""
    answer = invoker.connect("notes", {"name": name, "password": SECRET})

    assert answer.error == "the connect command answered no identity and secret"
    assert invoker.exec("notes", "notes.list", {}).error == "not connected: notes"
    assert SECRET not in notes.settings.audit_file.read_text()


@pytest.mark.spec("9.6.4")
def test_disconnecting_needs_nothing_but_ones_session_and_is_all_or_nothing(notes, invoker, ana):
    """Also after the pack was removed; while no audit can be written the credential stays; the same again is none."""
    invoker.connect("notes", LOGIN)
    with notes.without_audit(), pytest.raises(HcpError):
        ana.disconnect("notes")
    assert invoker.exec("notes", "notes.list", {}).ok

    notes.operator.remove_pack("notes")
    notes.forget()
    assert [ana.disconnect("notes").identity, ana.disconnect("notes").identity] == ["ana@service", None]
    assert notes.audited() == [("disconnect", True, "ana", None)]
    assert invoker.exec("pages", "pages.list", {}).error == "not connected: pages"


def test_a_keyring_that_cannot_let_go_is_told_and_mints_nothing(notes, invoker, ana, monkeypatch):
    """The row is gone and recorded; what is left in the keyring is of no use."""
    backend = FakeKeyring()
    place = DesktopPlace("sense-worker home", lambda: Desktop(backend))
    hub = KeptHub("keyring", "keyring", notes.database, notes.operator._vault, place)
    monkeypatch.setattr("sense_worker.operator.connections.build_hubs", lambda *_: {"keyring": hub})
    invoker._runtime = invoker._runtime._replace(hubs={"keyring": hub})
    assert invoker.connect("notes", LOGIN).ok
    backend.locked = True

    with pytest.raises(HcpError, match="disconnected, but the sealed material could not be removed") as told:
        ana.disconnect("notes")
    backend.locked = False
    assert SECRET not in str(told.value)
    assert (len(backend.kept), invoker.exec("notes", "notes.list", {}).error) == (1, "not connected: notes")


@pytest.mark.spec("9.6.1")
def test_without_an_audit_nothing_runs(notes, invoker):
    """Neither reads nor writes."""
    invoker.connect("notes", LOGIN)
    with notes.without_audit():
        told = [
            invoker.exec("notes", "notes.list", {}),
            invoker.exec("notes", "notes.add", {"text": "x", "apply": True}),
        ]
    assert [one.error for one in told] == ["denied: audit unavailable"] * 2


@pytest.mark.spec("9.1.2")
def test_a_session_that_ended_runs_nothing(notes, invoker, ana):
    """The text of the table, recorded under its principal; the tenant is the session's, whatever the args say."""
    notes.operator.revoke_session(ana.acting.session_id)
    notes.forget()

    assert invoker.exec("notes", "notes.list", {"tenant": "t-blue"}).error == "denied: session revoked"
    assert notes.audited() == [("exec", False, "ana", "denied: session revoked")]


@pytest.mark.spec("1.2.plane")
def test_whoever_is_no_operator_any_more_runs_no_control_plane_command(world):
    """Whatever was activated and connected while it was one."""
    folder = write_notes(world.folder / "source" / "notes", plane="control")
    world.operator.install_pack(folder, allow_bins={"tool": str(folder / "tool")})
    for capability in AXES:
        world.operator.add_grant("operator", capability, pack="notes")
    world.operator.activate("notes")
    session_file = world.home / "t-red.session"
    with Invoker.open(world.settings, session_file=session_file) as invoker:
        assert [invoker.connect("notes", LOGIN).ok, invoker.exec("notes", "notes.list", {}).ok] == [True, True]
    world.change(PRINCIPAL, PRINCIPAL.c.id == "operator", operator=False)

    with Invoker.open(world.settings, session_file=session_file) as invoker:
        told = [invoker.connect("notes", LOGIN).error, invoker.exec("notes", "notes.list", {}).error]
    assert told == ["denied: control plane requires an operator"] * 2


@pytest.mark.spec("1.6.availability")
@pytest.mark.spec("1.5.sandbox")
def test_a_command_whose_binary_is_not_allowed_is_not_executable(notes, invoker):
    """Availability says what exec says, of a connect command too, and only where nothing else refuses before it."""
    folder = write_notes(notes.folder / "source" / "notes", pack_id="notes", family="desk")
    notes.operator.install_pack(folder, allow_bins={})

    (told,) = invoker.availability("notes")
    reasons = {one.verb_key: (one.executable, one.reason) for one in told.commands}
    assert reasons["notes.login"] == (False, "binary not allowed: tool")
    assert reasons["notes.list"] == (False, "not connected: notes")
    assert invoker.exec("notes", "notes.login", LOGIN).error == "binary not allowed: tool"
    invoker.connect("pages", LOGIN)  # of the same family
    (told,) = invoker.availability("notes")
    assert {one.reason for one in told.commands if one.verb_key == "notes.list"} == {"binary not allowed: tool"}


@pytest.mark.spec("1.5.envelope")
@pytest.mark.parametrize("args", [{"limit": float("nan")}, {"text": "\ud800"}, {"text": "x" * 300_000}, [1]])
def test_an_envelope_passes_the_same_door_as_the_queues(invoker, args):
    """What is no strict JSON, or too large, is refused before anything is looked at."""
    with pytest.raises(DoorError):
        invoker.exec("notes", "notes.list", args)


def test_what_nobody_expected_is_told_without_its_text(notes, invoker, monkeypatch, capsys):
    """A read fails as internal; a write that has begun has an outcome nobody knows, and its begin line stands."""

    class Broken:
        def run(self, call, runtime):
            raise RuntimeError(SECRET)

    invoker.connect("notes", LOGIN)
    invoker._runtime = invoker._runtime._replace(adapters={"wrap": Broken()})
    notes.forget()

    told = [
        invoker.exec("notes", "notes.list", {}).error,
        invoker.exec("notes", "notes.add", {"text": "x", "confirm": True}).error,
    ]
    assert told == ["failed: internal", "interrupted: outcome unknown"]
    assert [action for action, *_ in notes.audited()] == ["exec.begin"]
    assert SECRET not in repr(capsys.readouterr()) + notes.settings.audit_file.read_text()


def test_one_of_several_connect_commands_is_named(notes, invoker):
    """A pack may offer more than one way in."""
    pack = invoker.pack("notes")
    verbs = pack.manifest.verbs
    verbs["notes.token"] = verbs["notes.login"]
    try:
        assert connect_command(pack, "notes.token") == "notes.token"
        with pytest.raises(UsageError, match=r"name one: notes\.login, notes\.token"):
            connect_command(pack)
    finally:
        del verbs["notes.token"]


@pytest.mark.spec("1.6.activate")
def test_skill_md_goes_with_the_last_activation_of_the_pack(notes, ana):
    """It is there while any activation of the pack stands on the session."""
    first, second = ana.activate("notes"), ana.activate("notes", project="apollo")
    skill = notes.home / "sessions" / first.session_id / "notes" / "SKILL.md"
    assert (skill.read_text(), str(skill)) == ("# Notes\n", second.skill)

    ana.deactivate(first.id)
    assert skill.exists()
    ana.deactivate(second.id)
    assert not skill.exists()
    ana.deactivate(second.id)
    ana.activate("notes")
    assert skill.exists()


@pytest.mark.spec("9.6.4")
def test_the_material_is_in_no_row_or_line(notes, invoker):
    """What a connect command printed and was given stands nowhere in clear."""
    invoker.connect("notes", LOGIN)
    invoker.exec("notes", "notes.list", {})

    assert SECRET not in repr(build_hubs(notes.settings, notes.database, notes.operator._vault))
    assert SECRET not in notes.settings.audit_file.read_text()
    with notes.database.read() as connection:
        kept = list(connection.exec_driver_sql("SELECT identity, fields FROM sense_credential"))
    assert [one[0] for one in kept] == ["ana@service"]
    assert SECRET not in json.dumps([bytes(one[1]).decode() for one in kept])
