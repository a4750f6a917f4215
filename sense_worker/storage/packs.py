"""Pack revisions: immutable rows, and the copy of their files that adapters find (DESIGN §3, §1.6.store).

What is in force is the row. The files under `$HCP_HOME/packs/<tenant>/<pack_id>/` are a copy: editing them changes
nothing (C24), and the next install replaces them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa

from runtime_core.errors import UsageError
from sense_worker.storage.schema import PACK, REVISION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from runtime_core.pack import Pack

_IN_FORCE = sa.and_(
    PACK.c.tenant == REVISION.c.tenant, PACK.c.pack_id == REVISION.c.pack_id, PACK.c.generation == REVISION.c.generation
)


def in_force(connection: sa.Connection, tenant: str, pack_id: str | None = None) -> list[Any]:
    """Return the revisions in force, by pack id; of one pack with `pack_id`."""
    query = sa.select(REVISION).join(PACK, _IN_FORCE).where(REVISION.c.tenant == tenant).order_by(REVISION.c.pack_id)
    return list(connection.execute(query if pack_id is None else query.where(REVISION.c.pack_id == pack_id)))


def generation_in_force(connection: sa.Connection, tenant: str, pack_id: str) -> int | None:
    """Return the generation of a pack that is in force, or None where it is not installed."""
    found = connection.scalar(sa.select(PACK.c.generation).where(PACK.c.tenant == tenant, PACK.c.pack_id == pack_id))
    return None if found is None else int(found)


def store_revision(
    connection: sa.Connection, tenant: str, pack: Pack, allowed_bins: Mapping[str, str], by: str, now: int
) -> tuple[int, bool]:
    """Put a pack in force; returns its generation, and whether it is new: equal bytes and binaries are not."""
    there = in_force(connection, tenant, pack.pack_id)
    if there and there[0].digest == pack.digest and dict(there[0].allowed_bins) == dict(allowed_bins):
        return int(there[0].generation), False
    where = (PACK.c.tenant == tenant, PACK.c.pack_id == pack.pack_id)
    last = connection.scalar(sa.select(PACK.c.last_generation).where(*where))
    generation = 1 if last is None else int(last) + 1
    key = {"tenant": tenant, "pack_id": pack.pack_id}
    connection.execute(
        sa.insert(REVISION).values(
            **key,
            generation=generation,
            digest=pack.digest,
            surface=pack.surface_bytes,
            policy=pack.policy_bytes,
            harness=pack.harness,
            allowed_bins=dict(allowed_bins),
            installed_by=by,
            installed_at=now,
        )
    )
    values = {"generation": generation, "last_generation": generation}
    if last is None:
        connection.execute(sa.insert(PACK).values(**key, **values))
    else:
        connection.execute(sa.update(PACK).where(*where).values(**values))
    return generation, True


def take_out(connection: sa.Connection, tenant: str, pack_id: str) -> None:
    """Take a pack out of force; its revisions stay, for the events that were judged by them."""
    where = (PACK.c.tenant == tenant, PACK.c.pack_id == pack_id)
    connection.execute(sa.update(PACK).where(*where).values(generation=None))


class Store:
    """The folder `<home>/packs/<tenant>/` while one pack in it is replaced. A context manager.

    Below `home` no link is ever followed: everything is reached from the folder's own descriptor (C23). Drafts that
    were not published are removed at the end.
    """

    def __init__(self, home: Path, tenant: str) -> None:
        self._path = home / "packs" / tenant
        self._folder = _open_folder(home, ("packs", tenant))
        self._drafts: list[str] = []

    def stage(self, pack: Pack) -> str:
        """Write the files into a new folder beside the pack's place, and return its name.

        Raises UsageError, before anything is installed, where a link or a file stands in the place, or where the
        files cannot be written.
        """
        self._check(pack.pack_id)
        draft = f".{pack.pack_id}.{secrets.token_hex(4)}"
        self._drafts.append(draft)
        files = {"surface.json": pack.surface_bytes, "policy.json": pack.policy_bytes, "HARNESS.md": pack.harness}
        try:
            os.mkdir(draft, 0o700, dir_fd=self._folder)
            for name, content in files.items():
                place = f"{draft}/{name}"
                descriptor = os.open(
                    place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._folder
                )
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(descriptor)
        except OSError as error:
            raise _refused(self._path / pack.pack_id, error) from None
        return draft

    def publish(self, draft: str, pack_id: str, still: Callable[[], bool]) -> None:
        """Put a draft in its pack's place, where `still` says that it is what is in force.

        Installs that commit one after the other may come here the other way round: each asks under the folder's lock.
        """
        fcntl.flock(self._folder, fcntl.LOCK_EX)
        if still():
            self._move_away(pack_id)
            os.rename(draft, pack_id, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            self._drafts.remove(draft)

    def remove(self, pack_id: str, still: Callable[[], bool]) -> None:
        """Remove what stands in a pack's place, where `still` says that the pack is not in force."""
        fcntl.flock(self._folder, fcntl.LOCK_EX)
        if still():
            self._move_away(pack_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for name in self._drafts:
            shutil.rmtree(name, ignore_errors=True, dir_fd=self._folder)
        os.close(self._folder)

    def _check(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                raise UsageError(str(self._path / name), "is a link or a file, no folder of the store", "remove it")

    def _move_away(self, name: str) -> None:
        aside = f".{name}.{secrets.token_hex(4)}"
        try:
            os.rename(name, aside, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(os.stat(aside, dir_fd=self._folder, follow_symlinks=False).st_mode):
            shutil.rmtree(aside, dir_fd=self._folder)
        else:  # a link that came since: it goes, what it leads to stays
            os.unlink(aside, dir_fd=self._folder)


def _open_folder(home: Path, names: Sequence[str]) -> int:
    """Open a folder below `home`, made where it is missing; raises UsageError where a link or a file is in the way."""
    place = home
    try:
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in names:
            place /= name
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
            try:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            finally:
                os.close(folder)
            folder = inner
    except OSError as error:
        raise _refused(place, error) from None
    return folder


def _refused(place: Path, error: OSError) -> UsageError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return UsageError(str(place), "is a link or a file, no folder of the store", "remove it")
    return UsageError(str(place), f"cannot be written: {error.strerror}", "make room, or set HCP_HOME")
