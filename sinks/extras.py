"""Which kinds that ship need an extra of the package, and whether this process has it."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple


class Extra(NamedTuple):
    """What a kind imports when its sink is opened; `name` is both the kind's and the extra's."""

    name: str
    module: str
    package: str

    def lack(self) -> str | None:
        """Return what is missing here and the way out, in one line; None where it is there."""
        if importlib.util.find_spec(self.module) is not None:
            return None
        return f"sink kind {self.name}: needs {self.package} (pip install 'sense-worker[{self.name}]')"


EXTRAS = {one.name: one for one in (Extra("webhook", "aiohttp", "aiohttp"), Extra("notify", "apprise", "Apprise"))}
