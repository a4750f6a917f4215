"""What is the same for thousands of tests and is done once a test process, so that its cost is not paid in each.

None of it is looked at by a test of this project: how SQLAlchemy compiles a statement, how importlib reads the lists of
entry points of installed packages, and whether the built-in sinks are declared right, which a registry asks each time.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from sinks import declared, plugins, registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoints

_patched = pytest.MonkeyPatch()


def pytest_configure() -> None:
    """Begin. Of the CPU time of the operator's tests this is the half: of test_rows.py 17 s without, 8.5 s with it."""
    _patched.setattr(sa, "create_engine", _sharing(sa.create_engine))
    _patched.setattr(plugins, "entry_points", _kept(entry_points))
    _patched.setattr(registry, "check", functools.cache(declared.check))


def pytest_unconfigure() -> None:
    """End."""
    _patched.undo()


class _Compiled:
    """A cache of compiled statements for all engines of one kind: each test makes engines of its own, 2 ms a query."""

    def __init__(self, kind: tuple[object, ...], kept: dict[tuple[object, ...], Any]) -> None:
        self._kind = kind
        self._kept = kept

    def get(self, key: tuple[Any, ...]) -> Any:
        return self._kept.get((self._kind, *key[1:]))  # the key of SQLAlchemy begins with the engine's dialect

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        self._kept[self._kind, *key[1:]] = compiled


def _sharing(create_engine: Callable[..., sa.Engine]) -> Callable[..., sa.Engine]:
    kept: dict[tuple[object, ...], Any] = {}

    @functools.wraps(create_engine)
    def sharing(url: Any, **options: Any) -> sa.Engine:
        engine = create_engine(url, **options)
        engine._compiled_cache = _Compiled((type(engine.dialect), repr(sorted(options))), kept)  # type: ignore[assignment]
        return engine

    return sharing


def _kept(read_all: Callable[..., EntryPoints]) -> Callable[..., EntryPoints]:
    read = functools.lru_cache(maxsize=8)(lambda group, _seen: read_all(group=group))

    def kept(group: str) -> EntryPoints:
        return read(group, tuple(map(_state, sys.path)))

    return kept


def _state(folder: str) -> tuple[str, int]:
    """Return when an entry of sys.path last got or lost a package."""
    try:
        return folder, os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 - asked for thousands of times
    except OSError:
        return folder, 0
