"""Fixtures that every room's tests may ask for, and what every test has to have."""

from __future__ import annotations

import os

import pytest

# No test reaches the keyring of whoever runs it, nor one that it starts.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"

pytest_plugins = ["tests.databases", "tests.redis_servers"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that does not say in a docstring which behaviour it holds."""
    silent = [item.nodeid for item in items if isinstance(item, pytest.Function) and not item.function.__doc__]
    if silent:
        raise pytest.UsageError(f"without a docstring that says the behaviour: {', '.join(silent)}")
