"""ExecRequest: what a web app signs (DESIGN §8). Closed and strict, like every other door."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints

from runtime_core.closed import Closed, Misfit, VersionOne, fit
from runtime_core.envelope import ENVELOPE_LIMIT
from runtime_core.errors import DoorError
from runtime_core.exact_json import pointer
from runtime_core.strict_json import parse_object

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUEST_LIMIT = ENVELOPE_LIMIT + 4_096
"""Bytes of a plain request: an envelope at its limit, and the fields around it."""
TIMEOUT_LIMIT_MS = 24 * 3_600_000
"""A day: who waits longer does not wait."""
_WHAT = "request"

Lane = Literal["interactive", "bulk"]
MessageId = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,128}$")]


class ExecRequest(Closed):
    """One command to run. `envelope` stays as given: it is judged at the envelope's own door."""

    v: VersionOne
    session_id: str
    message_id: MessageId
    project_id: str | None
    timeout_ms: Annotated[int, Field(gt=0, le=TIMEOUT_LIMIT_MS)]
    idempotency_key: MessageId | None
    lane: Lane
    envelope: dict[str, Any]

    def plain(self) -> bytes:
        """Return the request as JSON, as it is sealed."""
        return _encoded(self.model_dump())


class CancelRequest(Closed):
    """Ask that an earlier request of the same session is not started, or ended; a running write only with `force`."""

    v: VersionOne
    session_id: str
    message_id: MessageId
    cancel: MessageId
    force: bool

    def plain(self) -> bytes:
        """Return the request as JSON, as it is sealed."""
        return _encoded(self.model_dump())


def parse_request(plain: bytes) -> ExecRequest | CancelRequest:
    """Return the request of a JSON text. Raises DoorError `too_large`, `malformed` or `unknown_field`."""
    fields = parse_object(plain, limit=REQUEST_LIMIT, what=_WHAT)
    model: type[ExecRequest | CancelRequest] = CancelRequest if "cancel" in fields else ExecRequest
    try:
        return fit(model, fields)
    except Misfit as misfit:
        unknown = bool(misfit.at) and misfit.at[0] not in model.model_fields
        word = "unknown_field" if unknown else "malformed"
        raise DoorError(word, f"{_WHAT} {pointer(misfit.at)}".rstrip(), misfit.reason) from None


def _encoded(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
