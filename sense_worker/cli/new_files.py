"""What `sink new` and `pack new` have in common: a new folder, written from templates."""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING

from runtime_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_new(folder: Path, templates: Mapping[str, str], names: Mapping[str, str]) -> list[str]:
    """Write files whose paths and contents are templates, `names` filled in, and return their paths, sorted.

    Raises UsageError where something is there already, or the folder cannot be written.
    """
    files = {Template(file).substitute(names): Template(text).substitute(names) for file, text in templates.items()}
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError("--path", f"{folder} is there already, and nothing is overwritten", "name another folder")
        for file, text in files.items():
            place = folder / file
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("x", encoding="utf-8") as written:
                written.write(text)
    except OSError as error:
        raise UsageError("--path", f"{folder}: {error.strerror}", "name a folder that can be written") from None
    return sorted(files)
