"""The exec envelope and the result envelope (§1.5, DESIGN §4)."""

from __future__ import annotations

from typing import Any, NamedTuple

from runtime_core.errors import DoorError
from runtime_core.event import NAME, PACK_ID
from runtime_core.exact_json import pointer, shown
from runtime_core.manifest_models import RESERVED_ARGS
from runtime_core.strict_json import kind_of, parse_object

ENVELOPE_LIMIT = 256 * 1024
"""Bytes of an envelope (DESIGN §4)."""

_WHAT = "envelope"
_FIELDS = frozenset({"pack_id", "verb_key", "args"})
_ALIAS = "surface_id"


class Envelope(NamedTuple):
    """Exactly `{pack_id, verb_key, args}` (§1.5.envelope)."""

    pack_id: str
    verb_key: str
    args: dict[str, Any]

    @property
    def says_confirm(self) -> bool:
        """Whether args carry the boolean true under `confirm` or `apply`; nothing else confirms (§4.5.2)."""
        return any(self.args.get(name) is True for name in RESERVED_ARGS)

    @property
    def own_args(self) -> dict[str, Any]:
        """The args of the command: what belongs to the runtime is taken out (DESIGN §5)."""
        return {name: value for name, value in self.args.items() if name not in RESERVED_ARGS}


class ResultEnvelope(NamedTuple):
    """`{ok, pack_id, verb_key, result?, error?}` (§1.5.result)."""

    ok: bool
    pack_id: str
    verb_key: str
    result: Any = None
    error: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return the envelope as JSON holds it; what is absent is left out."""
        found: dict[str, Any] = {"ok": self.ok, "pack_id": self.pack_id, "verb_key": self.verb_key}
        if self.result is not None:
            found["result"] = self.result
        if self.error is not None:
            found["error"] = self.error
        return found


def parse_envelope(raw: bytes) -> Envelope:
    """Return the envelope of a JSON text. `surface_id` is read in place of `pack_id` (§1.2.pack-id).

    Raises DoorError with the word `too_large`, `malformed` or `unknown_field`, in this order.
    """
    return check_envelope(parse_object(raw, limit=ENVELOPE_LIMIT, what=_WHAT))


def check_envelope(fields: dict[str, Any]) -> Envelope:
    """Return the envelope of a parsed object. Raises DoorError with the word `malformed` or `unknown_field`."""
    if _ALIAS in fields and "pack_id" in fields:
        raise DoorError("malformed", f"{_WHAT} /{_ALIAS}", "stands beside pack_id", "give one of them")
    alias = _ALIAS if _ALIAS in fields else "pack_id"
    pack_id, verb_key, args = fields.get(alias), fields.get("verb_key"), fields.get("args")
    if type(pack_id) is not str or PACK_ID.fullmatch(pack_id) is None:
        raise _malformed(fields, alias, "must be the id of a pack")
    if type(verb_key) is not str or NAME.fullmatch(verb_key) is None:
        raise _malformed(fields, "verb_key", "must be 1 to 128 letters, digits, dots, dashes and underscores")
    if type(args) is not dict:
        raise _malformed(fields, "args", "must be an object")
    unknown = sorted(fields.keys() - _FIELDS - {alias})
    if unknown:
        raise DoorError("unknown_field", f"{_WHAT} {pointer(unknown[:1])}", "unknown field", "put it into args")
    return Envelope(pack_id, verb_key, args)


def _malformed(fields: dict[str, Any], name: str, rule: str) -> DoorError:
    value = fields.get(name)
    found = "missing" if name not in fields else f"not {shown(value) if isinstance(value, str) else kind_of(value)}"
    return DoorError("malformed", f"{_WHAT} /{name}", f"{found}; {rule}")
