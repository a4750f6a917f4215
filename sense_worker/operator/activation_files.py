"""Where the files of activations stand: the adapter's with its secret, and SKILL.md in the session's folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def file_of(home: Path, activation_id: str) -> Path:
    """Return the file that an activation's adapter reads."""
    return home / "activations" / f"{activation_id}.json"


def skill_of(home: Path, session_id: str, pack_id: str) -> Path:
    """Return where a pack's HARNESS.md is copied to for a session (§1.6.activate)."""
    return home / "sessions" / session_id / pack_id / "SKILL.md"


def forget_files(home: Path, session_id: str, activations: Iterable[tuple[str, str]]) -> None:
    """Remove the files of a session's activations, each an id and a pack, and the folders that are empty then."""
    for activation_id, pack_id in activations:
        file_of(home, activation_id).unlink(missing_ok=True)
        skill = skill_of(home, session_id, pack_id)
        skill.unlink(missing_ok=True)
        for folder in (skill.parent, skill.parent.parent):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
