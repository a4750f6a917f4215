"""The doors by name; each is loaded on its own, so that a process pays for one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.door import Door

MODULES = {
    "strict_json": "json_doors",
    "body": "json_doors",
    "policy": "pack_doors",
    "manifest": "pack_doors",
    "pack": "pack_doors",
    "archive": "archive_door",
    "entry": "entry_door",
    "scenario": "scenario_door",
    "sinks": "sink_doors",
    "sink_class": "sink_doors",
    "values": "value_door",
}


def door_named(name: str) -> Door:
    """Return the door."""
    doors: dict[str, Door] = importlib.import_module(f"tests.fuzz.{MODULES[name]}").DOORS
    return doors[name]
