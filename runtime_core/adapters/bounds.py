"""What bounds the command of every adapter: the time it has, and what of its answer may be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime_core.signing import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runtime_core.execution import Call
    from runtime_core.runtime import Runtime

MASK = "***"
"""Stands where a credential stood."""
_SHORTEST_SECRET = 4
"""Characters: what is shorter stands in any output by chance."""


def seconds_left(call: Call, runtime: Runtime) -> float:
    """Return how long the command may run: its own time, and no longer than somebody waits."""
    own = call.pack.manifest.sandbox.timeout_s
    deadline = call.facts.deadline
    return own if deadline is None else min(own, round((deadline - runtime.now()) / SECOND, 3))


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text without the material that was minted for its command, and without NUL, which no door takes."""
    text = text.replace("\0", "\ufffd")
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    return text
