"""Where secrets are written: nothing that stands there is lost, and no link is replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from runtime_core.errors import Conflict, UsageError
from sense_worker.session_file import read_session
from sense_worker.storage.schema import ACTIVATION, SESSION


def odd_places(folder):
    """Make what is no session file, by what is said of it and whether force replaces it."""
    places = {name: folder / name for name in ("precious", "linked", "pipe", "folder")}
    places["precious"].write_text("precious")
    places["linked"].symlink_to(places["precious"])
    os.mkfifo(places["pipe"])
    places["folder"].mkdir()
    return [
        (places["linked"], "is a link (name the file itself", False),
        (places["pipe"], "is no regular file", False),
        (Path("/dev/null"), "is no regular file", False),
        (places["folder"], "Is a directory", False),
        (folder / "nowhere" / "x.session", "nowhere: there is no such folder", False),
        (places["precious"], "is no session file (--force replaces it", True),
    ]


def test_a_session_takes_no_file_that_is_not_its_principals(world, ana):
    """A link, pipe, device, folder, other file or missing folder is refused and kept; force replaces a regular file."""
    places, session_id = odd_places(world.folder), ana.acting.session_id
    before = world.count(SESSION), world.version(), sorted(world.folder.rglob("*"))

    for place, words, _ in places:
        for write in (world.operator.create_session, lambda _, **more: ana.rotate_session(session_id, **more)):
            with pytest.raises(UsageError) as refused:
                write("ana", file=place)
            assert words in str(refused.value)
    for place, words, force in places:
        if not force:
            with pytest.raises(UsageError) as refused:
                world.operator.create_session("ana", file=place, force=True)
            assert words in str(refused.value)

    assert (world.count(SESSION), world.version(), sorted(world.folder.rglob("*"))) == before
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert (world.folder / "precious").read_text() == "precious"
    issued = world.operator.create_session("ana", file=world.folder / "precious", force=True)
    assert read_session(world.folder / "precious").session_id == issued.id


def test_a_session_file_is_replaced_where_its_session_has_ended(world, ana):
    """A standing session's file is kept, another principal's too; the principal's own that was revoked is replaced."""
    world.operator.add_principal("ben")
    file = world.folder / "t-red-ana.session"
    for name in ("ana", "ben"):
        with pytest.raises(Conflict, match=r"holds session ses_.*--force"):
            world.operator.create_session(name, file=file)
    world.operator.revoke_session(ana.acting.session_id)
    with pytest.raises(Conflict, match="holds session"):
        world.operator.create_session("ben", file=file)

    issued = world.operator.create_session("ana", file=file)
    assert read_session(file).session_id == issued.id


def test_a_link_in_the_place_of_an_activations_file_is_refused_before_anything_changes(world, ana):
    """Rotated or activated again: an adapter that reads what the link leads to would be left with the old secret."""
    world.operator.install_pack(world.pack())
    made = ana.activate("mail")
    moved = Path(made.file).rename(world.folder / "moved")
    Path(made.file).symlink_to(moved)
    before = moved.read_bytes(), world.version(), world.rows(ACTIVATION)

    for change in (lambda: ana.rotate_activation(made.id), lambda: ana.activate("mail")):
        with pytest.raises(UsageError, match=r"json: is a link \(name the file itself, or remove the link\)"):
            change()
    assert (moved.read_bytes(), world.version(), world.rows(ACTIVATION)) == before

    ana.deactivate(made.id)
    Path(made.skill).parent.mkdir(parents=True, exist_ok=True)
    Path(made.skill).symlink_to(moved)
    standing = world.count(ACTIVATION), world.version()
    with pytest.raises(UsageError, match=r"SKILL\.md: is a link"):
        ana.activate("mail")
    assert (world.count(ACTIVATION), world.version()) == standing


def test_a_revoked_session_leaves_no_file_of_its_activations(world, ana):
    """A web app's login that ended leaves neither a secret nor a skill on the host; other sessions keep theirs."""
    world.operator.install_pack(world.pack())
    made, others = ana.activate("mail"), world.operator.activate("mail")

    world.operator.revoke_session(ana.acting.session_id)

    assert not Path(made.file).exists()
    assert not Path(made.skill).parent.parent.exists()
    assert Path(others.file).exists()
    assert Path(others.skill).exists()


def test_activations_are_listed_with_what_their_session_is(world, ana):
    """One's own to anyone, the tenant's to an operator; one of a revoked session says so; a deactivated one is gone."""
    world.operator.install_pack(world.pack())
    first, second = ana.activate("mail"), world.operator.activate("mail")
    assert [one.id for one in ana.list_activations()] == [first.id]

    world.operator.revoke_session(first.session_id)

    listed = {one.id: one.session for one in world.operator.list_activations()}
    assert listed == {first.id: "revoked", second.id: "stands"}
    world.operator.deactivate(second.id)
    assert [one.id for one in world.operator.list_activations()] == [first.id]
