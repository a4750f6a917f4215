"""Revisions in the database, and the folder that keeps their copies."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from runtime_core.errors import UsageError
from runtime_core.pack import read_pack
from sense_worker.storage import packs
from sense_worker.storage.schema import PACK, REVISION
from tests.provision import POLICY, SURFACE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runtime_core.pack import Pack
    from sense_worker.storage.engine import Database


def pack(title: str = "Mail") -> Pack:
    """Return a pack; another title is another digest."""
    return read_pack(json.dumps({**SURFACE, "title": title}).encode(), json.dumps(POLICY).encode(), b"# Mail\n")


@pytest.fixture
def store(database: Database) -> Callable[..., tuple[int, bool]]:
    """Store a revision in a transaction of its own."""

    def stored(one: Pack, bins: dict[str, str] | None = None, tenant: str = "t-red") -> tuple[int, bool]:
        with database.write() as connection:
            return packs.store_revision(connection, tenant, one, bins or {}, "root", 5)

    return stored


def test_a_revision_is_new_where_bytes_or_binaries_differ(store, database):
    """Generations count up by what changed; the same again is the one in force."""
    assert [store(pack()), store(pack())] == [(1, True), (1, False)]
    assert store(pack(), {"git": "/usr/bin/git"}) == (2, True)
    assert store(pack("Other"), {"git": "/usr/bin/git"}) == (3, True)
    assert store(pack()) == (4, True)

    with database.read() as connection:
        (row,) = packs.in_force(connection, "t-red")
        assert (row.generation, row.digest, row.installed_by, row.installed_at) == (4, pack().digest, "root", 5)
        assert connection.scalar(sa.select(sa.func.count()).select_from(REVISION)) == 4


def test_revisions_are_never_changed(store, database):
    """An install inserts: what a delivery was judged by can be looked at afterwards."""
    store(pack())
    with database.read() as connection:
        before = connection.execute(sa.select(REVISION)).all()
    store(pack("Other"))
    with database.write() as connection:
        packs.take_out(connection, "t-red", "mail")

    with database.read() as connection:
        assert connection.execute(sa.select(REVISION).where(REVISION.c.generation == 1)).all() == before
        assert packs.in_force(connection, "t-red") == []
        assert packs.generation_in_force(connection, "t-red", "mail") is None
    assert store(pack("Other")) == (3, True)


def test_tenants_count_for_themselves(store, database):
    """A generation is of one tenant and one pack."""
    store(pack())
    store(pack("Other"))

    assert store(pack(), tenant="t-blue") == (1, True)
    with database.read() as connection:
        assert packs.generation_in_force(connection, "t-red", "mail") == 2
        assert connection.execute(sa.select(PACK.c.tenant).order_by(PACK.c.tenant)).scalars().all() == [
            "t-blue",
            "t-red",
        ]


def copied(home: Path) -> dict[str, str]:
    """Return pack id to the title that its copy has, and everything else that lies in the store."""
    place = home / "packs" / "t-red"
    return {one.name: json.loads((one / "surface.json").read_text())["title"] for one in place.iterdir()}


def test_installs_that_overtake_each_other_leave_the_copy_of_what_is_in_force(tmp_path):
    """Whoever comes late with an older generation leaves the place alone, and no draft stays."""
    with packs.Store(tmp_path, "t-red") as older, packs.Store(tmp_path, "t-red") as newer:
        drafts = older.stage(pack("Older")), newer.stage(pack("Newer"))
        newer.publish(drafts[1], "mail", lambda: True)
    with packs.Store(tmp_path, "t-red") as older:
        older.publish(older.stage(pack("Older")), "mail", lambda: False)

    assert copied(tmp_path) == {"mail": "Newer"}


def test_a_copy_is_replaced_whole(tmp_path):
    """What was added to the old copy is gone with it."""
    for title in ("First", "Second"):
        with packs.Store(tmp_path, "t-red") as store:
            store.publish(store.stage(pack(title)), "mail", lambda: True)
            (tmp_path / "packs" / "t-red" / "mail" / "extra").touch()

    with packs.Store(tmp_path, "t-red") as store:
        store.publish(store.stage(pack("Third")), "mail", lambda: True)
    assert copied(tmp_path) == {"mail": "Third"}
    names = {path.name for path in (tmp_path / "packs" / "t-red" / "mail").iterdir()}
    assert names == {"surface.json", "policy.json", "HARNESS.md"}


def test_an_install_that_fails_leaves_no_draft(tmp_path):
    """When the transaction fails after the files were written, they go, and the copy before stays."""
    with packs.Store(tmp_path, "t-red") as store:
        store.publish(store.stage(pack("First")), "mail", lambda: True)

    with contextlib.suppress(ZeroDivisionError), packs.Store(tmp_path, "t-red") as store:
        store.stage(pack("Second"))
        raise ZeroDivisionError

    assert copied(tmp_path) == {"mail": "First"}


@pytest.mark.parametrize("place", ["packs", "packs/t-red", "packs/t-red/mail"])
def test_a_file_in_the_place_is_refused(tmp_path, place):
    """A regular file where a folder belongs is named, and left alone."""
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("theirs")

    with pytest.raises(UsageError, match=f"{place}: is a link or a file"), packs.Store(tmp_path, "t-red") as store:
        store.stage(pack())
    assert (tmp_path / place).read_text() == "theirs"


def test_a_store_that_cannot_be_written_is_named(tmp_path):
    """A folder that takes no file is one clear line with the way out."""
    folder = tmp_path / "packs" / "t-red"
    folder.mkdir(parents=True)
    if shutil.which("chattr") is None or subprocess.run(["chattr", "+i", folder], check=False).returncode:
        pytest.skip("folders cannot be made immutable here")
    try:
        with pytest.raises(UsageError, match=r"mail: cannot be written: .* \(make room, or set HCP_HOME\)"):
            stage(tmp_path)
    finally:
        subprocess.run(["chattr", "-i", folder], check=True)
    assert list(folder.iterdir()) == []


def stage(home: Path) -> None:
    """Stage a pack and leave the store."""
    with packs.Store(home, "t-red") as store:
        store.stage(pack())
