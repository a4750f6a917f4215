"""The names an operator may give, and how a wrong one is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runtime_core.errors import UsageError
from runtime_core.event import ANY_REF, NAME, PACK_ID
from runtime_core.grants import ANY_PACK, Capability

if TYPE_CHECKING:
    from collections.abc import Sequence

TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}", re.ASCII)
"""Principals, projects and sinks."""
KINDS = ("human", "service", "agent", "mothership")
LIMIT = 10_000
"""Rows of one answer at most."""
HUNDRED_YEARS_S = 3_155_760_000


def tenant_name(text: str) -> str:
    """Return a tenant's name; raises UsageError."""
    return _matched(TENANT, "tenant", text, "1 to 64 of a-z 0-9 . _ -, a letter or digit first")


def plain_id(what: str, text: str) -> str:
    """Return the name of a principal, project or sink; raises UsageError."""
    return _matched(ID, what, text, "1 to 128 of A-Z a-z 0-9 . _ @ -, a letter or digit first")


def pack_name(text: str, *, any_pack: bool = False) -> str:
    """Return a pack id, or `*` where that is allowed; raises UsageError."""
    if any_pack and text == ANY_PACK:
        return text
    return _matched(PACK_ID, "pack", text, "1 to 128 of a-z 0-9 . _ -, a letter or digit first")


def ref_name(text: str) -> str:
    """Return a ref, or `*`; raises UsageError."""
    return text if text == ANY_REF else _matched(NAME, "ref", text, "a ref of the pack, or * for all")


def keys_of(keys: Sequence[str] | None) -> list[str] | None:
    """Return the keys of a grant; None means all. Raises UsageError for a pattern: there are none (DESIGN §3)."""
    if keys is None:
        return None
    form = "whole verb_keys or refs; for all of a pack leave the keys out"
    if isinstance(keys, str):
        raise UsageError("keys", f"{keys!r} is no list", form)
    return sorted({_matched(NAME, "keys", key, form) for key in keys})


def capability_of(text: str) -> Capability:
    """Return the capability; raises UsageError naming the axes of §9.4."""
    try:
        return Capability(text)
    except ValueError:
        raise UsageError(
            "capability", f"{text!r} is none", f"one of {', '.join(one.value for one in Capability)}"
        ) from None


def kind_of(text: str) -> str:
    """Return a principal's kind (§9.1.3); raises UsageError."""
    if text not in KINDS:
        raise UsageError("kind", f"{text!r} is none", f"one of {', '.join(KINDS)}")
    return text


def audience_of(text: str) -> tuple[str, str | None]:
    """Split `tenant`, `principal:ID` or `project:ID`; raises UsageError."""
    shape, _, who = text.partition(":")
    if shape == "tenant" and not who:
        return shape, None
    if shape in ("principal", "project") and who:
        return shape, plain_id(shape, who)
    raise UsageError("audience", f"{text!r} is none", "tenant, principal:ID or project:ID")


def is_whole(value: object) -> bool:
    """Say whether a host gave a whole number: True is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Say whether a host gave a number: True is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def need_texts(**named: object) -> None:
    """Raise UsageError, at its name, for what a host gave that is neither a text nor None."""
    for name, value in named.items():
        if value is not None and not isinstance(value, str):
            raise UsageError(name, f"{value!r} is no text", "give a text, or leave it out")


def row_limit(limit: int) -> int:
    """Return how many rows an answer may have; raises UsageError."""
    if not is_whole(limit) or not 0 < limit <= LIMIT:
        raise UsageError("limit", f"{limit!r} is none", f"1 to {LIMIT}")
    return limit


def span_of(seconds: float, what: str) -> int:
    """Return a span in microseconds; raises UsageError, at `what`, where it is none or longer than anybody lives."""
    if not is_number(seconds) or not 0 < seconds <= HUNDRED_YEARS_S:
        raise UsageError(what, "must be between a moment and a hundred years", "such as 12h or 30d")
    return int(seconds * 1e6)


def lasting(seconds: float, now: int, what: str = "expires") -> int:
    """Return the moment `seconds` from now; raises UsageError like `span_of`."""
    return now + span_of(seconds, what)


def end_of(seconds: float | None, now: int) -> int | None:
    """Return the moment `seconds` from now, None for what has no end; raises UsageError like `lasting`."""
    return None if seconds is None else lasting(seconds, now)


def _matched(pattern: re.Pattern[str], what: str, text: str, form: str) -> str:
    if pattern.fullmatch(text) is None:
        raise UsageError(what, f"{text!r} is no name for one", form)
    return text
