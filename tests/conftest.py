"""Fixtures that every room's tests may ask for; each line names the module that makes them."""

from __future__ import annotations

pytest_plugins = ["tests.redis_servers"]
