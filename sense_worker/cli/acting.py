"""Opens what a command works on: the settings of this process, and the operator module as the acting session."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sense_worker.cli import render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sense_worker.operator import Operator
    from sense_worker.settings import Settings


def settings() -> Settings:
    """Return the validated settings; raises SettingsError. Names under SENSE_ that mean nothing are warned about."""
    from sense_worker.settings import Settings

    loaded = Settings.load()
    for warning in loaded.unknown_warnings:
        render.warn(warning)
    return loaded


@contextmanager
def operator() -> Iterator[Operator]:
    """Act as the session in SENSE_SESSION_FILE (default: the operator's), in its tenant (DESIGN §3)."""
    from sense_worker.operator import Operator

    with Operator.open(settings()) as acting:
        yield acting
