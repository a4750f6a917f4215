"""The CLI face of a command: what it turns into the envelope before there is one (§1.7.faces, §4.5.2)."""

from __future__ import annotations

from typing import Any

from runtime_core.manifest_models import RESERVED_ARGS


def cli_args(args: dict[str, Any]) -> dict[str, Any]:
    """Return args with exactly the text `true` under `confirm` or `apply` as the boolean; all else as it is."""
    return {name: True if name in RESERVED_ARGS and value == "true" else value for name, value in args.items()}
