"""A session or an activation gets a new secret: who holds it afterwards, until when the one before is good."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime_core.errors import AuditUnavailable, Conflict, Denied, NotFound, UsageError
from sense_worker.activation_file import held_activation
from sense_worker.intake.door import admit
from sense_worker.intake.stream import StreamEntry
from sense_worker.operator.acting import read_session
from sense_worker.storage.authorities import Authorities
from sense_worker.storage.authority import SqlAuthoritySource, credential
from sense_worker.storage.ledger import NEVER
from sense_worker.storage.schema import ACTIVATION, PRINCIPAL, SESSION
from sense_worker.vault import Vault
from sense_worker.wire import build_entry, stream_of
from sinks.registry import Registry

SECOND = 1_000_000


@pytest.fixture
def activation(world, ana):
    """Ana's activation of the pack `mail`."""
    world.operator.install_pack(world.pack())
    return ana.activate("mail")


class Door:
    """Intake's door with the snapshots of one process; an entry arrives when the test says."""

    def __init__(self, world) -> None:
        vault = Vault.load(world.settings)
        self._database = world.database
        self._authorities = Authorities(world.database, SqlAuthoritySource(world.database, Registry(), vault))

    def __call__(self, activation_id: str, secret: bytes, arrival: int) -> str:
        """Return `admitted`, or the word of the refusal."""
        body = b'{"ref": "new_item", "data": {}, "occurred_at": "2026-06-01T12:00:00Z"}'
        built = build_entry(secret, activation_id, "m-1", f"{arrival / 1e6:.6f}", body)
        fields = {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in built.items()}
        entry = StreamEntry("t-red", stream_of("t-red"), f"{arrival // 1000}-0", fields, 1)
        with self._database.read() as connection:
            authority = self._authorities.current(connection, ["t-red"])["t-red"]
        verdict = admit(entry, authority, arrival, 300.0)
        return getattr(verdict, "word", "admitted")


def live(world, table, credential_id: str, at: int) -> list[str]:
    """Return the secrets of a row that are good at a moment, the newest first."""
    vault = Vault.load(world.settings)
    (row,) = [row for row in world.rows(table) if row.id == credential_id]
    return [secret.decode() for secret in credential(vault, row).live(at)]


def test_an_activations_file_holds_the_new_secret_and_both_open_the_door_for_the_overlap(world, ana, activation):
    """Until the overlap ends by arrival both secrets verify, from the next moment on only the new one, uncached."""
    file = Path(activation.file)
    old = held_activation(file).value
    door = Door(world)
    rotated = ana.rotate_activation(activation.id, overlap_s=60)
    new = held_activation(file).value
    end = rotated.overlap_ends_at

    assert (new.secret != old.secret, new.origin, file.stat().st_mode & 0o777) == (True, old.origin, 0o600)
    # One snapshot of one authority version judges all four: the end is a moment, and nothing tells a cache of it.
    version = world.version()
    moments = (end - SECOND, end - 1, end, end + SECOND)
    assert [door(activation.id, old.secret, at) for at in moments] == ["admitted"] * 2 + ["bad_signature"] * 2
    assert [door(activation.id, new.secret, at) for at in moments] == ["admitted"] * 4
    assert world.version() == version


@pytest.mark.case("C51")
def test_a_second_rotation_within_the_overlap_ends_the_oldest_at_once(world, ana, activation):
    """Two live secrets at most: of three only the last two are good, whatever was promised to the first."""
    secrets = [held_activation(Path(activation.file)).value.secret]
    door = Door(world)
    for _ in range(2):
        rotated = ana.rotate_activation(activation.id, overlap_s=3600)
        secrets.append(held_activation(Path(activation.file)).value.secret)

    at = rotated.overlap_ends_at - SECOND
    assert [door(activation.id, secret, at) for secret in secrets] == ["bad_signature", "admitted", "admitted"]
    assert len(live(world, ACTIVATION, activation.id, at)) == 2


def test_without_an_overlap_the_secret_before_is_dead_at_once(world, ana, activation):
    """Overlap 0, also within an earlier overlap, leaves one live secret, for entries that arrived before too."""
    old = held_activation(Path(activation.file)).value.secret
    ana.rotate_activation(activation.id, overlap_s=3600)
    between = held_activation(Path(activation.file)).value.secret
    door = Door(world)
    rotated = ana.rotate_activation(activation.id, overlap_s=0)
    arrived_before = next(row.created_at for row in world.rows(ACTIVATION))

    assert rotated.overlap_ends_at is None
    assert [door(activation.id, secret, arrived_before) for secret in (old, between)] == ["bad_signature"] * 2
    assert live(world, ACTIVATION, activation.id, 0) == [held_activation(Path(activation.file)).value.secret.decode()]


def test_the_acting_session_is_rotated_in_its_own_file(world, ana):
    """The file in use holds the new secret; who has it open goes on, and a copy of the old one ends with it."""
    file = world.folder / "t-red-ana.session"
    other = world.acting(file)
    copy = world.folder / "copy.session"
    copy.write_bytes(file.read_bytes())
    copy.chmod(0o600)
    old = world.acting(copy)
    session_id = ana.acting.session_id

    rotated = ana.rotate_session(session_id, overlap_s=60)
    assert (rotated.file, read_session(file).secret, file.stat().st_mode & 0o777) == (str(file), rotated.secret, 0o600)
    assert {one.acting.session_id for one in (ana, other, old)} == {session_id}
    world.change(SESSION, SESSION.c.id == session_id, previous_until=1)

    assert {one.acting.session_id for one in (ana, other, world.acting(file))} == {session_id}
    with pytest.raises(UsageError, match="session: is unknown here"):
        _ = old.acting


def test_a_lost_answer_is_made_good_by_rotating_again(world, ana):
    """Whose process died before its file was in place still has the old secret, and rotates with it once more."""
    file = world.folder / "t-red-ana.session"
    before = file.read_bytes()
    session_id = ana.acting.session_id
    ana.rotate_session(session_id, overlap_s=60)
    file.write_bytes(before)

    again = world.acting(file).rotate_session(session_id, overlap_s=60)

    assert read_session(file).secret == again.secret
    assert live(world, SESSION, session_id, again.overlap_ends_at)[0] == again.secret


def test_an_operator_rotates_anothers_and_nobody_a_strangers(world, ana, activation):
    """Of the tenant an operator everyone's, one's own oneself; what is of another looks like nothing."""
    ben, blue = world.principal("ben"), world.tenant("t-blue")
    session_id = ana.acting.session_id
    place = world.folder / "ana.new"
    before = world.rows(SESSION), world.rows(ACTIVATION)
    for stranger in (ben, blue):
        with pytest.raises(NotFound, match=f"session: there is no '{session_id}'"):
            stranger.rotate_session(session_id)
        with pytest.raises(NotFound, match=f"activation: there is no '{activation.id}'"):
            stranger.rotate_activation(activation.id)
    assert (world.rows(SESSION), world.rows(ACTIVATION)) == before

    by_operator = world.operator.rotate_session(session_id, file=place)
    assert (by_operator.principal, by_operator.file) == ("ana", str(place))
    assert world.acting(place).acting.principal == "ana"
    assert world.operator.rotate_session(session_id).file is None
    world.operator.rotate_activation(activation.id)
    assert held_activation(Path(activation.file)).value.principal == "ana"


def test_the_overlap_is_a_setting_and_has_bounds(world, ana, activation):
    """Without one the setting's counts, from the database's clock; negative, endless and no number are refused."""
    rotated = ana.rotate_activation(activation.id)
    with world.database.read() as connection:
        now = world.database.now(connection)
    assert 0 <= now + 900 * SECOND - rotated.overlap_ends_at < 60 * SECOND

    before = world.rows(ACTIVATION), world.version()
    for wrong in (-1, float("nan"), float("inf"), 2_592_001):
        with pytest.raises(UsageError, match="overlap: must be between 0 and 30 days"):
            ana.rotate_activation(activation.id, overlap_s=wrong)
        with pytest.raises(UsageError, match="overlap"):
            ana.rotate_session(ana.acting.session_id, overlap_s=wrong)
    assert (world.rows(ACTIVATION), world.version()) == before


def test_what_has_ended_gets_no_new_secret(world, ana, activation):
    """A session that was revoked or has expired, and an activation that was deactivated, stay as they are."""
    ana.deactivate(activation.id)
    session_id = ana.acting.session_id
    with pytest.raises(Conflict, match="was deactivated"):
        ana.rotate_activation(activation.id)
    assert not Path(activation.file).exists()
    for values, how in (({"expires_at": 1}, "has expired"), ({"revoked_at": 1}, "was revoked")):
        world.change(SESSION, SESSION.c.id == session_id, **values)
        with pytest.raises(Conflict, match=how):
            world.operator.rotate_session(session_id)


def test_what_cannot_be_written_down_changes_nothing(world, ana, activation):
    """No audit, no place for the file, another session's file in the place: secret, files and version stay."""
    session_id, folder = ana.acting.session_id, world.folder / "folder"
    folder.mkdir()
    theirs = world.home / "t-red.session"
    shown = world.folder / "shown.session"
    shown.write_bytes(theirs.read_bytes())
    shown.chmod(0o644)
    files = [world.folder / "t-red-ana.session", Path(activation.file), theirs, shown]

    def state():
        standing = [world.rows(table) for table in (SESSION, ACTIVATION)]
        return standing, world.version(), [file.read_bytes() for file in files], sorted(world.home.rglob(".*"))

    before = state()
    with world.without_audit():
        for rotate in (lambda: ana.rotate_session(session_id), lambda: ana.rotate_activation(activation.id)):
            with pytest.raises(AuditUnavailable):
                rotate()
    for place, refusal in (
        (folder, "cannot be written: Is a directory"),
        (world.home / "secret.keys" / "x", "cannot be written: "),
        (theirs, "holds session ses_"),
        (shown, "holds session ses_"),
    ):
        with pytest.raises(UsageError, match=refusal):
            ana.rotate_session(session_id, file=place)
    Path(activation.file).unlink()
    Path(activation.file).mkdir()
    with pytest.raises(UsageError, match="cannot be written: Is a directory"):
        ana.rotate_activation(activation.id)
    Path(activation.file).rmdir()
    Path(activation.file).write_bytes(before[2][1])

    assert state() == before


@pytest.mark.case("C51")
def test_a_rotation_is_recorded_without_its_secrets(world, ana, activation):
    """One line each with who, which and for how long; no secret, old or new, in the audit, a view or its repr."""
    file = world.folder / "t-red-ana.session"
    secrets = [read_session(file).secret, held_activation(Path(activation.file)).value.secret.decode()]
    world.forget()
    before = world.version()
    views = [ana.rotate_session(ana.acting.session_id, overlap_s=90), ana.rotate_activation(activation.id, overlap_s=0)]
    secrets += [read_session(file).secret, held_activation(Path(activation.file)).value.secret.decode()]

    assert world.audited() == [("session.rotate", True, "ana", None), ("activation.rotate", True, "ana", None)]
    assert world.version() == before + 2
    lines = world.settings.audit_file.read_text()
    last = json.loads(lines.splitlines()[-1])
    assert (last["subject"], last["pack_id"]) == (f"{activation.id} ana overlap 0 s", "mail")
    for secret in secrets:
        assert secret not in lines + repr(views)


def test_many_rotations_at_once_leave_the_files_with_the_secret_that_stands(world, ana, activation):
    """Sixteen rotations in four threads: what is in a file at the end is the last secret that was made."""
    session_id = ana.acting.session_id
    place = world.folder / "t-red-ana.session"
    operators = [world.acting(world.home / "t-red.session") for _ in range(4)]

    def rotate(number: int) -> None:
        one = operators[number % 4]
        if number < 8:
            one.rotate_activation(activation.id)
        else:
            one.rotate_session(session_id, file=place)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(rotate, range(16)))

    assert live(world, ACTIVATION, activation.id, NEVER) == [
        held_activation(Path(activation.file)).value.secret.decode()
    ]
    assert live(world, SESSION, session_id, NEVER) == [read_session(place).secret]
    assert sorted(world.home.rglob(".*.json.*")) == []


def test_activating_again_writes_the_secret_that_stands(world, ana, activation):
    """On a host without the file `activate` writes it again, with the newest secret."""
    rotated = ana.rotate_activation(activation.id)
    newest = Path(activation.file).read_bytes()
    Path(activation.file).unlink()

    assert ana.activate("mail").id == rotated.id
    assert Path(activation.file).read_bytes() == newest


def test_a_disabled_principal_rotates_nothing(world, ana, activation):
    """Who may not act may not renew either."""
    world.change(PRINCIPAL, PRINCIPAL.c.id == "ana", disabled_at=1)
    before = world.rows(ACTIVATION)

    with pytest.raises(Denied, match="denied: principal disabled"):
        ana.rotate_activation(activation.id)
    assert world.rows(ACTIVATION) == before
