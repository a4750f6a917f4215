"""The packs of a scenario: read like any other; one that fails is simply not installed (DESIGN §10)."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.archive import SUFFIXES, read_source
from runtime_core.errors import PackError, PackLintError, PackParseError, UsageError
from runtime_core.manifest import parse_manifest
from runtime_core.pack import Pack, PackFiles, read_pack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sense_worker.scenario.model import PackSource

_HARNESS = b"# A pack of a scenario\n"
_ID = r'"{}"\s*:\s*"([a-z0-9][a-z0-9._-]{{0,127}})"'
KEPT = 256
"""Packs kept parsed by their bytes: a schema is compiled in about a millisecond, and files share packs."""


class Listed(NamedTuple):
    """One pack of the file, with what became of it."""

    pack_id: str | None
    """None where no id can be made out."""
    files: PackFiles | None
    pack: Pack | None
    error: PackError | None

    @property
    def state(self) -> str | None:
        """`surface`, `policy`, `harness` or `lint` where it was refused; None: it can be installed."""
        if isinstance(self.error, PackParseError):
            return self.error.file
        return None if self.error is None else "lint"

    @property
    def plane(self) -> str | None:
        """The plane of the manifest, also of a pack that was refused later; None where it cannot be read."""
        if self.files is None:
            return None
        try:
            return parse_manifest(self.files.surface).plane
        except PackError:
            return None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The lint kinds found, sorted."""
        issues = self.error.issues if isinstance(self.error, PackLintError) else ()
        return tuple(sorted({issue.kind for issue in issues}))


def read_listed(source: str | PackSource, folder: Path, others: Mapping[str, Pack]) -> Listed:
    """Read one pack; `others` are those read before it, for the steps of composites.

    Raises UsageError for a path that leads nowhere, or to an archive that is refused whole.
    """
    named = source if isinstance(source, str) else None
    try:
        files = read_source(folder / named) if named is not None else _inline(source)
    except PackParseError as error:
        return Listed(_last_name(named), None, None, error)
    except PackError as error:
        raise UsageError(error.place, error.reason) from None
    pack_id = _id_of(files.surface, "id") or _id_of(files.policy, "surface_id") or _last_name(named)
    try:
        return Listed(pack_id, files, _read(files, others), None)
    except PackError as error:
        return Listed(pack_id, files, None, error)


def id_of(source: PackSource) -> str | None:
    """Return the id that an inline pack gives itself, or None."""
    files = _inline(source)
    return _id_of(files.surface, "id") or _id_of(files.policy, "surface_id")


def _read(files: PackFiles, others: Mapping[str, Pack]) -> Pack:
    # Only a composite is judged by what other packs say.
    return read_pack(*files, others) if b"composite" in files.surface else _read_alone(files)


@functools.lru_cache(KEPT)
def _read_alone(files: PackFiles) -> Pack:
    return read_pack(*files)


def _inline(source: Any) -> PackFiles:
    surface = _text(source.surface_text, source.surface)
    return PackFiles(surface, _text(source.policy_text, source.policy), _HARNESS)


def _text(raw: str | None, value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False) if raw is None else raw).encode()


def _id_of(raw: bytes, name: str) -> str | None:
    """Return the id that a file of a pack gives, also where it is no JSON."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        match = re.search(_ID.format(name), raw.decode(errors="replace"), re.ASCII)
        return None if match is None else match[1]
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, str) and found else None


def _last_name(path: str | None) -> str | None:
    name = "" if path is None else path.rstrip("/").rpartition("/")[2]
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name) or None
