"""The options of a webhook: where to, signed with what, and how much of the event."""

from __future__ import annotations

import base64
import binascii
import secrets
import string
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, SecretStr

from sinks.address import HttpAddress

PREFIX = "whsec_"
KEY_BYTES = range(24, 65)
"""Standard Webhooks: a key has 24 to 64 bytes."""
NEW_KEY_BYTES = 32
PREVIOUS_LIMIT = 8
"""Each adds a signature of 48 characters to one header, which servers bound."""
IN_FLIGHT = 64
IN_FLIGHT_LIMIT = 256
TOTAL_LIMIT_S = 60.0

LINK_FIELDS: Final = ("id", "event_id", "route_id", "tenant", "principal", "project", "pack_id", "ref", "subject")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def new_secret() -> str:
    """Return a new secret in the form of Standard Webhooks."""
    return PREFIX + base64.b64encode(secrets.token_bytes(NEW_KEY_BYTES)).decode("ascii")


def _key(secret: SecretStr) -> bytes:
    return base64.b64decode(secret.get_secret_value().removeprefix(PREFIX), validate=True)


def _is_key(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    try:
        key = _key(secret)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(PREFIX) or len(key) not in KEY_BYTES:
        raise ValueError(f"must be {PREFIX} and {KEY_BYTES[0]} to {KEY_BYTES[-1]} bytes in base64")
    return secret


def _is_template(link: str) -> str:
    names = ", ".join(f"{{{name}}}" for name in LINK_FIELDS)
    try:
        parts = list(string.Formatter().parse(link))
    except ValueError:
        raise ValueError(f"must be an address with any of {names}") from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in LINK_FIELDS or form or conversion):
            raise ValueError(f"must be an address with any of {names}")
    if not link.startswith(("https://", "http://")) or not link.isprintable():
        raise ValueError("must be an address that starts with https:// or http://")
    return link


SigningSecret = Annotated[SecretStr, AfterValidator(_is_key)]


class PreviousSecret(BaseModel):
    """A secret that was replaced, and until when it signs too."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    secret: SigningSecret
    until: AwareDatetime


class WebhookOptions(BaseModel):
    """See docs/sinks.md."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    url: HttpAddress
    secret: SigningSecret
    previous: tuple[PreviousSecret, ...] = Field((), max_length=PREVIOUS_LIMIT)
    mode: Literal["standard", "cloudevents"] = "standard"
    payload: Literal["thin", "full"] = "thin"
    link: Annotated[str, Field(max_length=2048), AfterValidator(_is_template)] | None = None
    in_flight: int = Field(IN_FLIGHT, ge=1, le=IN_FLIGHT_LIMIT)
    """Requests at once, in each process of a worker's pool."""
    total_s: float = Field(10.0, ge=0.1, le=TOTAL_LIMIT_S)
    """Seconds for one attempt, from the look-up of the name to the end of the answer."""
    connect_s: float = Field(3.0, ge=0.1, le=TOTAL_LIMIT_S)
    """Seconds of these for the look-up, the connection and its TLS."""

    def signing(self, now: float) -> list[bytes]:
        """Return the keys that sign at a moment (seconds since the epoch), the current one first."""
        at = datetime.fromtimestamp(now, UTC)
        return [_key(self.secret), *(_key(one.secret) for one in self.previous if one.until > at)]


def renewed(options: dict[str, Any], secret: str, now: int, until: int) -> dict[str, Any]:
    """Return options with a new secret; the one before, and those whose overlap lasts, sign too until they end.

    `now` and `until` are microseconds since the epoch. Options without a secret get their first.
    """
    kept = [one for one in options.get("previous", ()) if datetime.fromisoformat(one["until"]) > _moment(now)]
    if "secret" in options and until > now:
        kept.insert(0, {"secret": options["secret"], "until": _moment(until).isoformat()})
    rest = {name: value for name, value in options.items() if name != "previous"}
    previous = {"previous": kept[:PREVIOUS_LIMIT]} if kept else {}
    return {**rest, "secret": secret, **previous}


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
