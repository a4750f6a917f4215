"""`<home>/up.json`: how commands on a home find the server of the `up` that runs there."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from sense_worker.server import answers

if TYPE_CHECKING:
    from pathlib import Path

    from sense_worker.settings import Settings

_LARGEST = 4_096


def write_up_file(home: Path, redis_url: str) -> None:
    """Say, for this account alone, which server this process works on. The file changes whole or not at all."""
    place = _place(home)
    new = place.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "redis_url": redis_url}, file)
    new.replace(place)


def remove_up_file(home: Path) -> None:
    """Take the file away at an orderly end; what a killed process leaves behind is found out by asking the server."""
    _place(home).unlink(missing_ok=True)


def discover_redis_url(settings: Settings) -> str | None:
    """Return SENSE_REDIS_URL, or the address of the `up` of this home if its server answers now; None otherwise."""
    if settings.redis_url is not None:
        return settings.redis_url
    try:
        with _place(settings.home).open("rb") as file:
            found = json.loads(file.read(_LARGEST))
        url = str(found["redis_url"])
        return url if answers(url) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _place(home: Path) -> Path:
    return home / "up.json"
