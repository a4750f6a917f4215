"""What the tests of the audit chain share: a record, a chain with a clock that stands, and places that fail."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.audit import AuditRecord
from runtime_core.audit_chain import ChainedAudit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = b"an audit key of thirty-two bytes"
MOMENT = 1_780_315_200_000_001
"""2026-06-01T12:00:00.000001Z."""


def chain(path: Path, **options: Any) -> ChainedAudit:
    """Return a chain over `path` under KEY whose clock stands at MOMENT."""
    return ChainedAudit(path, options.pop("key", KEY), clock=lambda: MOMENT, **options)


def record(number: int = 0, **fields: Any) -> AuditRecord:
    """Return a delivery of ana's, told apart by `number`."""
    values = {"action": "sense.deliver", "ok": True, "tenant": "t-red", "principal": "ana", "subject": f"d{number}"}
    return AuditRecord(**{**values, **fields})


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a file system of 1 MiB at `folder`; skips where this process may not mount."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no mount here: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def immutable(place: Path) -> Iterator[None]:
    """Make `place` unchangeable, also for root; skips where the file system cannot."""
    done = subprocess.run(["chattr", "+i", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no chattr here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", place], check=True)
