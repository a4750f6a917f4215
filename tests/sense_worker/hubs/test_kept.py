"""The hubs: what is kept is minted to its holder alone, and whatever breaks denies."""

from __future__ import annotations

import threading
import traceback

import pytest

from runtime_core.binding import HubUnavailable, NotConnected
from sense_worker.hubs import build_hubs
from sense_worker.hubs.kept import KeptHub
from sense_worker.hubs.places import Desktop, DesktopPlace
from sense_worker.storage.schema import CREDENTIAL
from sense_worker.vault import Vault
from tests.sense_worker.hubs.fake_keyring import ANA, MATERIAL

NAMES = ["keyring", "local-credential"]


def rows(database):
    with database.read() as connection:
        return list(connection.execute(CREDENTIAL.select()))


def everything(database, home):
    """All that is at rest, as bytes."""
    files = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    return b"\n".join([*files, repr(rows(database)).encode()])


@pytest.mark.spec("1.4.hubs")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_minted_until_it_is_forgotten(hubs, name):
    """Nothing kept is NotConnected; a later one takes the place of the one before; forgotten is as never kept."""
    hub = hubs[name]
    with pytest.raises(NotConnected):
        hub.mint(ANA)
    hub.keep(ANA, "ana@old", {"secret": "old"})
    hub.keep(ANA, "ana@example", {"secret": MATERIAL, "region": "eü"})

    assert (hub.connected(ANA), hub.mint(ANA)) == (True, ("ana@example", {"secret": MATERIAL, "region": "eü"}))
    assert (hub.forget(ANA), hub.forget(ANA), hub.connected(ANA)) == (True, False, False)
    with pytest.raises(NotConnected):
        hub.mint(ANA)


@pytest.mark.spec("1.4.hubs")
@pytest.mark.parametrize("name", NAMES)
def test_nobody_else_is_connected_by_it(hubs, name):
    """Another tenant, principal, consent or hub has nothing."""
    hubs[name].keep(ANA, "ana@example", {"secret": MATERIAL})
    others = [ANA._replace(tenant="other"), ANA._replace(principal="bob"), ANA._replace(consent="family:notes")]

    assert [hubs[name].connected(one) for one in others] == [False, False, False]
    assert [hubs[other].connected(ANA) for other in NAMES if other != name] == [False]


@pytest.mark.parametrize("name", NAMES)
def test_material_is_nowhere_at_rest_in_clear(hubs, name, database, settings, capsys):
    """Not in a row, a file, a log line, a repr."""
    hubs[name].keep(ANA, "ana@example", {"secret": MATERIAL})
    hubs[name].mint(ANA)

    assert MATERIAL.encode() not in everything(database, settings.home)
    assert MATERIAL not in f"{hubs!r} {capsys.readouterr()}"


@pytest.mark.spec("1.4.hubs")
def test_a_row_under_another_name_is_of_no_use(hubs, database):
    """Who may write rows cannot hand one principal's credential to another: the sealed document names its holder."""
    hubs["keyring"].keep(ANA, "ana@example", {"secret": MATERIAL})
    with database.write() as connection:
        connection.execute(CREDENTIAL.update().values(principal="mallory"))

    with pytest.raises(HubUnavailable):
        hubs["keyring"].mint(ANA._replace(principal="mallory"))


@pytest.mark.parametrize("name", NAMES)
def test_what_no_key_opens_is_unavailable_and_can_be_forgotten(hubs, name, settings, database):
    """A hub whose keys were changed mints nothing, says nothing of the material, and lets go."""
    hubs[name].keep(ANA, "ana@example", {"secret": MATERIAL})
    others = build_hubs(settings, database, Vault([b"x" * 32]))[name]

    with pytest.raises(HubUnavailable):
        others.mint(ANA)
    with pytest.raises(HubUnavailable):
        others.connected(ANA)
    assert (others.forget(ANA), others.connected(ANA)) == (True, False)


def test_a_database_that_is_away_is_unavailable(hubs, database):
    """Asking and keeping are refused; nothing is made up."""
    with database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE sense_credential RENAME TO sense_credential_away")
    try:
        for ask in (hubs["keyring"].mint, hubs["keyring"].connected, hubs["keyring"].forget):
            with pytest.raises(HubUnavailable):
                ask(ANA)
        with pytest.raises(HubUnavailable):
            hubs["keyring"].keep(ANA, "ana@example", {"secret": MATERIAL})
    finally:
        with database.write() as connection:
            connection.exec_driver_sql("ALTER TABLE sense_credential_away RENAME TO sense_credential")


@pytest.mark.spec("1.4.hubs")
def test_on_a_desktop_the_material_stands_in_its_keyring(on_desktop, backend, database):
    """The row tells who is connected, the keyring has the sealed material, and both go when it is forgotten."""
    on_desktop.keep(ANA, "ana@example", {"secret": MATERIAL})

    assert on_desktop.mint(ANA) == ("ana@example", {"secret": MATERIAL})
    assert [row.identity for row in rows(database)] == ["ana@example"]
    assert len(backend.kept) == 1
    assert MATERIAL not in repr(backend.kept)
    on_desktop.forget(ANA)
    assert (rows(database), backend.kept) == ([], {})


@pytest.mark.spec("1.4.hubs")
def test_a_locked_keyring_denies(on_desktop, backend, database, capsys):
    """Minting, looking and keeping are unavailable, without a word of what the backend said; what was kept stays."""
    on_desktop.keep(ANA, "ana@example", {"secret": MATERIAL})
    backend.locked = True

    told = []
    for ask in (on_desktop.mint, on_desktop.connected, lambda one: on_desktop.keep(one, "new", {"secret": MATERIAL})):
        with pytest.raises(HubUnavailable) as caught:
            ask(ANA)
        told += traceback.format_exception(caught.value)
    assert MATERIAL not in "".join(told) + repr(capsys.readouterr())
    backend.locked = False
    assert on_desktop.mint(ANA)[0] == "ana@example"
    assert [row.identity for row in rows(database)] == ["ana@example"]


def test_a_keyring_that_asks_a_person_does_not_hold_a_command_up(on_desktop, backend, monkeypatch):
    """A prompt that nobody answers is unavailable; once it is answered the hub goes on."""
    on_desktop.keep(ANA, "ana@example", {"secret": MATERIAL})
    monkeypatch.setattr("sense_worker.hubs.places.ANSWER_S", 0.05)
    backend.answers.clear()

    with pytest.raises(HubUnavailable):
        on_desktop.mint(ANA)
    with pytest.raises(HubUnavailable):  # the prompt is still open
        on_desktop.mint(ANA)
    backend.answers.set()
    monkeypatch.setattr("sense_worker.hubs.places.ANSWER_S", 10.0)
    assert on_desktop.mint(ANA)[0] == "ana@example"


def test_a_worker_without_the_desktop_does_not_say_not_connected(on_desktop, database, vault):
    """What stands in the keyring is unavailable to a process that has none; connecting there keeps it in the table."""
    on_desktop.keep(ANA, "ana@example", {"secret": MATERIAL})
    outside = KeptHub("keyring", "keyring", database, vault, DesktopPlace("sense-worker home", lambda: Desktop(None)))

    with pytest.raises(HubUnavailable):
        outside.mint(ANA)
    outside.keep(ANA, "ana@service", {"secret": "other"})
    assert outside.mint(ANA) == on_desktop.mint(ANA) == ("ana@service", {"secret": "other"})


def test_a_keyring_emptied_by_hand_is_not_connected(on_desktop, backend):
    """A row alone mints nothing."""
    on_desktop.keep(ANA, "ana@example", {"secret": MATERIAL})
    backend.kept.clear()

    assert on_desktop.connected(ANA) is False


@pytest.mark.spec("1.4.hubs")
def test_material_without_its_row_is_dead(on_desktop, backend, database):
    """A credential that was disconnected elsewhere is not minted from what a place still holds."""
    on_desktop.keep(ANA, "ana@example", {"secret": MATERIAL})
    with database.write() as connection:
        connection.execute(CREDENTIAL.delete())

    assert (len(backend.kept), on_desktop.connected(ANA)) == (1, False)


def test_threads_share_a_hub(hubs):
    """Sixteen threads connect and use sixteen principals at once, and each gets its own."""
    found, start = {}, threading.Barrier(16)

    def work(number):
        holder = ANA._replace(principal=f"p{number}")
        start.wait()
        for _ in range(3):
            hubs["keyring"].keep(holder, f"p{number}@example", {"secret": f"s{number}"})
            found[number] = hubs["keyring"].mint(holder)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == {number: (f"p{number}@example", {"secret": f"s{number}"}) for number in range(16)}
