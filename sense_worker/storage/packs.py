"""Pack revisions: immutable rows, and the copy of their files that adapters find (DESIGN §3, §1.6.store).

What is in force is the row. The files under `$HCP_HOME/packs/<tenant>/<pack_id>/` are a copy: editing them changes
nothing (C24), and the next install replaces them.
"""

from __future__ import annotations

import os
import secrets
import shutil
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from sense_worker.storage.schema import PACK, REVISION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runtime_core.pack import Pack

_IN_FORCE = sa.and_(
    PACK.c.tenant == REVISION.c.tenant, PACK.c.pack_id == REVISION.c.pack_id, PACK.c.generation == REVISION.c.generation
)


def in_force(connection: sa.Connection, tenant: str, pack_id: str | None = None) -> list[Any]:
    """Return the revisions in force, by pack id; of one pack with `pack_id`."""
    query = sa.select(REVISION).join(PACK, _IN_FORCE).where(REVISION.c.tenant == tenant).order_by(REVISION.c.pack_id)
    return list(connection.execute(query if pack_id is None else query.where(REVISION.c.pack_id == pack_id)))


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


def write_copy(home: Path, tenant: str, pack: Pack) -> Path:
    """Replace the copy of a pack's files; what stood in the place, also a link, is moved away and never followed."""
    store = home / "packs" / tenant
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    place, draft = store / pack.pack_id, store / f".{pack.pack_id}.{secrets.token_hex(4)}"
    draft.mkdir(mode=0o700)
    for name, content in (
        ("surface.json", pack.surface_bytes),
        ("policy.json", pack.policy_bytes),
        ("HARNESS.md", pack.harness),
    ):
        (draft / name).write_bytes(content)
    _move_away(place)
    draft.rename(place)
    return place


def remove_copy(home: Path, tenant: str, pack_id: str) -> None:
    """Remove the copy of a pack's files."""
    _move_away(home / "packs" / tenant / pack_id)


def _move_away(place: Path) -> None:
    """Remove what stands at `place`: a link itself, never what it leads to (C23)."""
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.exists():
        aside = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        os.rename(place, aside)  # noqa: PTH104 - a Path would be returned that nobody needs
        shutil.rmtree(aside)
