"""Addresses of receivers: whatever may be a secret in one is never shown (C53)."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, SecretStr

ADDRESS_LIMIT = 2048
_MASKED = "***"


class Address(SecretStr):
    """An address whose user, path, query and fragment are secrets: shown are the scheme and the host."""

    def _display(self) -> str:
        parts = _split(self.get_secret_value())
        return _MASKED if parts is None else f"{parts.scheme}://{place(parts)}/{_MASKED}"


def place(parts: SplitResult) -> str:
    """Return host and port of an address, as they stand in its reasons."""
    host = parts.hostname or ""
    named = f"[{host}]" if ":" in host else host
    return named if parts.port is None else f"{named}:{parts.port}"


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        _ = parts.port  # parsed when asked for
    except ValueError:
        return None
    return parts if parts.hostname else None


def _is_http(address: Address) -> Address:
    text = address.get_secret_value()
    if len(text) > ADDRESS_LIMIT:
        raise ValueError(f"must be an address of at most {ADDRESS_LIMIT} characters")
    parts = _split(text)
    # What urlsplit drops in silence (a line break) or another reader takes for something else (a backslash).
    odd = any(not "!" <= character <= "~" or character in '\\<>"{}^`|' for character in text)
    if parts is None or parts.scheme not in ("http", "https") or odd:
        raise ValueError("must be an address such as https://hook.example/path, in ASCII")
    return address


HttpAddress = Annotated[Address, AfterValidator(_is_http)]
