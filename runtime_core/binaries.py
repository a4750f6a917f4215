"""The binary of a wrap pack: whether it may run, and what to do where it may not (§1.5.sandbox)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from runtime_core.errors import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime_core.manifest import Manifest
    from runtime_core.pack import PackRevision

_REFUSED: Final = "binary not allowed: "
_REFUSED_NAME: Final = re.compile(rf"{_REFUSED}(\S+)")


def allowed_binary(manifest: Manifest, allowed: Mapping[str, str]) -> str | None:
    """Return the absolute path of the one binary that a wrap pack runs; None where it does not want it, or may not."""
    place = allowed.get(manifest.bin) if manifest.bin in manifest.sandbox.bins else None
    return place if place is not None and os.path.isabs(place) else None  # noqa: PTH117 - the text as it was given


def not_allowed(name: str) -> str:
    """Return the error of a command whose binary may not run."""
    return f"{_REFUSED}{printable(name)}"


def binary_refusal(revision: PackRevision) -> str | None:
    """Return the error that every command of this revision would have, for its binary may not run; else None."""
    manifest = revision.pack.manifest
    if manifest.adapter.kind != "wrap" or allowed_binary(manifest, revision.allowed_bins) is not None:
        return None
    return not_allowed(manifest.bin)


def way_to_allow(name: str) -> str:
    """Return what an operator does to allow a binary."""
    return f"pack install … --allow-bin {name}=/absolute/path"


def way_out_of(error: str) -> str | None:
    """Return the way out of an error that is, or begins with, one of `not_allowed`; None for any other."""
    found = _REFUSED_NAME.match(error)
    return None if found is None else way_to_allow(found[1])
