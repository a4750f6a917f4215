"""Fixtures that every room's tests may ask for, and what every test has to have."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from pathlib import Path

import pytest

from tests.guard import sitecustomize as guard

TESTS = Path(__file__).resolve().parent

# No test reaches the keyring of whoever runs it, nor one that it starts.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"

# pytest-socket guards this process; the processes that tests start guard themselves, and write down what they refused.
os.environ.setdefault(guard.NOTES, tempfile.mkstemp(prefix="guarded-")[1])
_paths = filter(None, (str(Path(guard.__file__).parent), os.environ.get("PYTHONPATH")))
os.environ["PYTHONPATH"] = os.pathsep.join(_paths)

pytest_plugins = ["tests.once", "tests.databases", "tests.redis_servers"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each worker of xdist begin with another part of the modules, where all are collected without bytecode.

    pytest rewrites their assertions in 9 s of CPU, and what one worker has rewritten the others load.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or [Path(one).resolve() for one in session.config.args] != [TESTS]:
        return
    modules = sorted(TESTS.rglob("test_*.py"))
    first = len(modules) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for module in modules[first:] + modules[:first]:
        # What cannot be imported, or skips itself, is met again and told by the collection.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(module.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that does not say in a docstring which behaviour it holds."""
    silent = [item.nodeid for item in items if isinstance(item, pytest.Function) and not item.function.__doc__]
    if silent:
        raise pytest.UsageError(f"without a docstring that says the behaviour: {', '.join(silent)}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where a process that a test started would have left this machine."""
    if hasattr(session.config, "workerinput"):
        return  # of xdist: the session that started it looks
    notes = Path(os.environ[guard.NOTES])
    left = notes.read_text().splitlines()
    notes.unlink()
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.config.get_terminal_writer().line(f"\nleft this machine: {'; '.join(left[:20])}", red=True)
