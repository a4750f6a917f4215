"""Fixtures of the sinks' tests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sinks import notify_process
from tests.guard import sitecustomize as guard

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def guarded_notifications() -> Iterator[None]:
    """Apprise's process, which gets little of the environment, takes on the guard of those that tests start."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(notify_process, "_KEPT_ENV", (*notify_process._KEPT_ENV, guard.NOTES))
        patched.syspath_prepend(Path(guard.__file__).parent)
        yield


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; it ends with the test."""
    where = tmp_path / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(where)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield where
    subprocess.run(["umount", str(where)], check=True)


@pytest.fixture
def no_leak() -> Iterator[None]:
    """The test leaves as many open files as it found."""
    before = _open_files()
    yield
    assert _open_files() == before


def _open_files() -> list[str]:
    return sorted(handle.name for handle in Path("/proc/self/fd").iterdir())
