"""Packs in force: install, list, show, remove (§1.6.install, DESIGN §3)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_core import errors
from runtime_core.archive import read_source
from runtime_core.errors import Denied, NotFound, PackError, UsageError
from runtime_core.grants import Capability
from runtime_core.pack import Pack, read_pack
from sense_worker.operator.desk import Desk
from sense_worker.operator.views import CommandView, PackView, TriggerView
from sense_worker.storage import packs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sense_worker.operator.desk import Change


NOT_SERVED = "this release no longer accepts it; it is not served"


class Packs(Desk):
    """Installing and removing need `pack.install` for the pack; a control-plane pack needs an operator first."""

    def install_pack(self, source: Path, *, allow_bins: Mapping[str, str] | None = None) -> PackView:
        """Install a folder or archive; an equal one in force is left as it is.

        Raises Denied before it says anything about the content, then PackParseError or PackLintError, then UsageError
        for a binary that the manifest does not want or that is no executable file. Nothing is changed then: the
        revision before stays in force.
        """
        files = read_source(source)
        pack, fault = _parsed(files)
        with self._change("pack.install", operator=False) as change:
            self._allowed(change, pack)
            if pack is None:
                raise fault or AssertionError
            change.pack_id = change.subject = pack.pack_id
            if pack.manifest.adapter.kind == "composite":
                pack = read_pack(*files, self._others(change, pack.pack_id))
            bins = _binaries(pack, allow_bins or {})
            generation, new = packs.store_revision(
                change.connection, change.acting.tenant, pack, bins, change.acting.principal, change.now
            )
            change.subject = f"{pack.pack_id} generation {generation}"
            change.nothing = not new
            view = _view(packs.in_force(change.connection, change.acting.tenant, pack.pack_id)[0], pack)
            tenant = change.acting.tenant
        packs.write_copy(self.settings.home, tenant, pack)
        return view

    def list_packs(self) -> list[PackView]:
        """Return the packs in force."""
        with self._reading() as (connection, acting):
            return [_view(row, _readable(row)) for row in packs.in_force(connection, acting.tenant)]

    def show_pack(self, pack_id: str) -> PackView:
        """Return the revision in force. Raises NotFound."""
        with self._reading() as (connection, acting):
            found = packs.in_force(connection, acting.tenant, pack_id)
        if not found:
            raise NotFound("pack", f"{pack_id!r} is not installed", "see `sense-worker pack list`")
        return _view(found[0], _readable(found[0]))

    def remove_pack(self, pack_id: str) -> PackView:
        """Take a pack out of force: its events are refused and its deliveries end, from the next attempt on."""
        with self._change("pack.remove", pack_id, operator=False) as change:
            change.pack_id = pack_id
            found = packs.in_force(change.connection, change.acting.tenant, pack_id)
            pack = _readable(found[0]) if found else None
            self._allowed(change, pack)
            if not found:
                raise NotFound("pack", f"{pack_id!r} is not installed", "see `sense-worker pack list`")
            packs.take_out(change.connection, change.acting.tenant, pack_id)
            tenant = change.acting.tenant
        packs.remove_copy(self.settings.home, tenant, pack_id)
        return _view(found[0], pack)

    @staticmethod
    def _others(change: Change, pack_id: str) -> dict[str, Pack]:
        """Return the other packs in force: a composite is linted against the commands its steps name."""
        rows = packs.in_force(change.connection, change.acting.tenant)
        others = {row.pack_id: _readable(row) for row in rows if row.pack_id != pack_id}
        return {name: other for name, other in others.items() if other is not None}

    def _allowed(self, change: Change, pack: Pack | None) -> None:
        """Raise Denied: control plane first, then the grant (DESIGN §7). A pack that fails its parse has no plane."""
        acting = change.acting
        if pack is not None and pack.plane == "control" and not acting.operator:
            raise Denied(errors.CONTROL_PLANE.text())
        table = self._grants_of(change.connection, acting)
        pack_id = "" if pack is None else pack.pack_id
        if table.find(Capability.PACK_INSTALL, pack_id, None, None, change.now) is None:
            raise Denied(errors.MISSING_PACK_INSTALL.text())


def _parsed(files: tuple[bytes, bytes, bytes]) -> tuple[Pack | None, PackError | None]:
    try:
        return read_pack(*files), None
    except PackError as fault:
        return None, fault


def _readable(row: Any) -> Pack | None:
    """Return the pack of a stored revision, or None where this release no longer accepts it."""
    return _parsed((row.surface, row.policy, row.harness))[0]


def _binaries(pack: Pack, given: Mapping[str, str]) -> dict[str, str]:
    """Return the allowed binaries; each is wanted by the manifest and is an executable file (DESIGN §3)."""
    wanted = set(pack.manifest.sandbox.bins)
    for name, place in given.items():
        if name not in wanted:
            known = ", ".join(sorted(wanted)) or "none"
            raise UsageError("--allow-bin", f"{pack.pack_id} wants no {name!r}", f"it wants: {known}")
        path = Path(place)
        if not path.is_absolute() or not path.is_file() or not os.access(path, os.X_OK):
            raise UsageError("--allow-bin", f"{place!r} is no executable file", "give NAME=/absolute/path")
        if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not path.is_symlink():
            raise UsageError("--allow-bin", f"{place!r} may be written by others", "chmod go-w")
    return dict(given)


def _view(row: Any, pack: Pack | None) -> PackView:
    commands: tuple[CommandView, ...] = ()
    triggers: tuple[TriggerView, ...] = ()
    if pack is not None:
        commands = tuple(
            CommandView(key, entry.operation, entry.privacy.land, entry.confirm)
            for key, entry in sorted(pack.policy.verbs.items())
        )
        triggers = tuple(TriggerView(one.ref, one.land, one.summary) for _, one in sorted(pack.triggers.items()))
    return PackView(
        pack_id=row.pack_id,
        version="?" if pack is None else pack.version,
        title=row.pack_id if pack is None else pack.title,
        plane="?" if pack is None else pack.plane,
        generation=row.generation,
        digest=row.digest,
        installed_by=row.installed_by,
        installed_at=row.installed_at,
        allowed_bins=dict(row.allowed_bins),
        warnings=(NOT_SERVED,) if pack is None else tuple(pack.manifest.warnings),
        commands=commands,
        triggers=triggers,
    )
