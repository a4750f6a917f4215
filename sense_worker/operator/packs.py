"""Packs in force: install, list, show, remove (§1.6.install, DESIGN §3)."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_core.adapters.launch import checked
from runtime_core.binaries import allowed_binary, way_to_allow
from runtime_core.errors import Denied, LintIssue, NotFound, PackError, PackLintError, UsageError
from runtime_core.grants import Capability, GrantTable
from runtime_core.install import install_refusal
from sense_worker.operator.desk import Desk
from sense_worker.operator.families import joined_family
from sense_worker.operator.names import pack_name
from sense_worker.operator.revisions import files_of, readable
from sense_worker.operator.views import CommandView, PackView, TriggerView
from sense_worker.storage import packs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime_core.manifest import Manifest
    from runtime_core.pack import Pack, PackFiles
    from sense_worker.operator.desk import Change

NOT_SERVED = "this release no longer accepts it; it is not served"


MOCK_NOT_ALLOWED = LintIssue(
    "binding_pair", "surface.json /binding/mode", "mock is legal only with SENSE_ALLOW_MOCK=true", "1.4.binding-modes"
)


class Packs(Desk):
    """Installing and removing need `pack.install` for the pack; a control-plane pack needs an operator first."""

    def install_pack(
        self, source: Path, *, allow_bins: Mapping[str, str] | None = None, join_family: str | None = None
    ) -> PackView:
        """Install a folder or archive; an equal one in force is left as it is, its copied files are written anew.

        `allow_bins` are all the binaries that it may run; None: those that the revision in force may run and this one
        still wants (`kept`).
        Raises Denied before it says anything about the content, then PackParseError or PackLintError, then UsageError
        for a binary that the manifest does not want or that is no executable file, or for a store that cannot take
        the files, and Denied for a pack that would join a family with live bindings other than by `join_family`
        (§1.4.family). Nothing is changed then: the revision before stays in force.
        """
        files, fault = _read(source)
        manifest = _manifest(files)
        with ExitStack() as stack:
            with self._change("pack.install", operator=False) as change:
                change.pack_id = change.subject = None if manifest is None else manifest.id
                self._allowed(change, manifest)
                if files is None:
                    raise fault or AssertionError
                from runtime_core.pack import read_pack  # late, as in `storage.authority`

                pack = read_pack(*files, self._others(change, manifest))
                if pack.manifest.binding.mode == "mock" and not self.settings.allow_mock:
                    raise PackLintError(pack.pack_id, [MOCK_NOT_ALLOWED])
                before = packs.in_force(change.connection, change.acting.tenant, pack.pack_id)
                kept = _kept(pack, before[0].allowed_bins) if before and allow_bins is None else {}
                bins = kept if allow_bins is None else _binaries(pack, allow_bins)
                family = joined_family(change, pack, join_family)
                tenant, pack_id = change.acting.tenant, pack.pack_id
                store = stack.enter_context(packs.Store(self.settings.home, tenant))
                draft = store.stage(pack)
                generation, new = packs.store_revision(
                    change.connection, tenant, pack, bins, change.acting.principal, change.now
                )
                change.subject = f"{pack_id} generation {generation}" + (f", joins family {family}" if family else "")
                change.nothing = not new
                view = _view(packs.in_force(change.connection, tenant, pack_id)[0], pack, tuple(sorted(kept)))
            store.publish(draft, pack_id, lambda: self._in_force(tenant, pack_id) == generation)
        return view

    def list_packs(self) -> list[PackView]:
        """Return the packs in force."""
        with self._reading() as (connection, acting):
            return [_view(row, readable(row)) for row in packs.in_force(connection, acting.tenant)]

    def show_pack(self, pack_id: str) -> PackView:
        """Return the revision in force. Raises NotFound."""
        with self._reading() as (connection, acting):
            found = packs.in_force(connection, acting.tenant, pack_id)
        if not found:
            raise NotFound("pack", f"{pack_id!r} is not installed", "see `sense-worker pack list`")
        return _view(found[0], readable(found[0]))

    def remove_pack(self, pack_id: str) -> PackView:
        """Take a pack out of force: its events are refused and its deliveries end, from the next attempt on."""
        pack_name(pack_id)
        with self._change("pack.remove", pack_id, operator=False) as change:
            change.pack_id, tenant = pack_id, change.acting.tenant
            found = packs.in_force(change.connection, tenant, pack_id)
            self._allowed(change, _manifest(files_of(found[0])) if found else None, pack_id)
            if not found:
                raise NotFound("pack", f"{pack_id!r} is not installed", "see `sense-worker pack list`")
            packs.take_out(change.connection, tenant, pack_id)
        with packs.Store(self.settings.home, tenant) as store:
            store.remove(pack_id, lambda: self._in_force(tenant, pack_id) is None)
        return _view(found[0], readable(found[0]))

    def _in_force(self, tenant: str, pack_id: str) -> int | None:
        with self._database.read() as connection:
            return packs.generation_in_force(connection, tenant, pack_id)

    @staticmethod
    def _others(change: Change, manifest: Manifest | None) -> dict[str, Pack]:
        """Return the other packs in force: a composite is linted against the commands its steps name."""
        if manifest is None or manifest.adapter.kind != "composite":
            return {}
        rows = packs.in_force(change.connection, change.acting.tenant)
        others = {row.pack_id: readable(row) for row in rows if row.pack_id != manifest.id}
        return {name: other for name, other in others.items() if other is not None}

    def _allowed(self, change: Change, manifest: Manifest | None, pack_id: str | None = None) -> None:
        """Raise Denied: control plane first, then the grant (DESIGN §7).

        A pack whose manifest cannot be read has neither plane nor id: whoever may install some pack learns why.
        """
        plane = None if manifest is None else manifest.plane
        pack_id = pack_id if manifest is None else manifest.id
        wanted = Capability.PACK_INSTALL
        grants = self._source(change.connection).grants(change.acting.tenant, change.acting.principal)
        if pack_id is None:
            every = (one for one in grants if one.capability == wanted and one.keys is None)
            grant = next((one for one in every if one.allows(None, change.now)), None)
        else:
            grant = GrantTable(grants).find(wanted, pack_id, None, None, change.now)
        refusal = install_refusal(operator=change.acting.operator, plane=plane, grant=grant)
        if refusal is not None:
            raise Denied(refusal.text())


def _read(source: Path) -> tuple[PackFiles | None, PackError | None]:
    """Return the three files, or why there are none. Raises UsageError for a path that leads nowhere."""
    from runtime_core.archive import read_source  # late, as in `storage.authority`

    try:
        return read_source(source), None
    except PackError as fault:
        return None, fault
    except ValueError:
        raise UsageError("source", f"{str(source)!r} is no path", "name a pack folder or archive") from None


def _manifest(files: PackFiles | None) -> Manifest | None:
    from runtime_core.manifest import parse_manifest  # late, as in `storage.authority`

    try:
        return None if files is None else parse_manifest(files.surface)
    except PackError:
        return None


def _kept(pack: Pack, allowed: Mapping[str, str]) -> dict[str, str]:
    """Return the allowed binaries that a pack still wants; whether they are still good is looked at by each spawn."""
    return {name: place for name, place in allowed.items() if name in pack.manifest.sandbox.bins}


def _binaries(pack: Pack, given: Mapping[str, str]) -> dict[str, str]:
    """Return the allowed binaries; each is wanted by the manifest and is an executable file (DESIGN §3)."""
    wanted = set(pack.manifest.sandbox.bins)
    for name, place in given.items():
        if name not in wanted:
            known = ", ".join(sorted(wanted)) or "none"
            way_out = f"it wants: {known}; what it may run stands in sandbox.bins of its surface.json"
            raise UsageError("--allow-bin", f"{pack.pack_id} wants no {name!r}", way_out)
        path = Path(place)
        if not path.is_absolute() or not path.is_file() or not os.access(path, os.X_OK):
            raise UsageError("--allow-bin", f"{place!r} is no executable file", "give NAME=/absolute/path")
        try:
            os.close(checked(place))  # what a spawn would refuse is refused here
        except OSError as error:
            raise UsageError("--allow-bin", f"{place!r}: {error.strerror}", "chmod go-w, or name another") from None
    return dict(given)


def _warnings(pack: Pack, allowed: Mapping[str, str]) -> tuple[str, ...]:
    """Return those of lint, and of a binary that the pack wants and may not run."""
    from runtime_core.lint import warnings  # late, as in `storage.authority`

    manifest, found = pack.manifest, warnings(pack.manifest, pack.policy)
    wanted = manifest.adapter.kind == "wrap" and manifest.verbs and manifest.bin in manifest.sandbox.bins
    if not wanted or allowed_binary(manifest, allowed) is not None:
        return found
    return (*found, f"{manifest.bin} is not allowed, so no command can run ({way_to_allow(manifest.bin)})")


def _view(row: Any, pack: Pack | None, kept: tuple[str, ...] = ()) -> PackView:
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
        kept=kept,
        warnings=(NOT_SERVED,) if pack is None else _warnings(pack, row.allowed_bins),
        commands=commands,
        triggers=triggers,
    )
