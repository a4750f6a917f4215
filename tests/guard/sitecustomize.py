"""Python imports this at the start of every process whose PYTHONPATH names this folder: those that tests start.

A connection that would leave this machine is refused before the socket connects, and written down, so that the test
session fails even where the product takes the refusal for an unreachable host.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from typing import Any

NOTES = "GUARDED_CONNECTIONS"
"""Environment: the file where refused connections are written down."""


def leaves(address: object) -> bool:
    """Tell whether a socket address is neither a path of this machine nor loopback; names count as leaving."""
    if not isinstance(address, tuple):
        return False
    host = address[0].decode() if isinstance(address[0], bytes) else str(address[0])
    if host in {"localhost", ""}:
        return False
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return True
    return not (getattr(found, "ipv4_mapped", None) or found).is_loopback


def _is_address(host: str | bytes) -> bool:
    try:
        ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host)
    except ValueError:
        return False
    return True


def guard(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what would leave this machine: an audit hook, which Python calls before the system is."""
    if event not in {"socket.connect", "socket.sendto", "socket.getaddrinfo"}:
        return
    # To find a name asks another machine; an address that is looked up, or none at all, does not.
    looked_up = event == "socket.getaddrinfo"
    address = (arguments[0] or "", arguments[1]) if looked_up else arguments[1]
    if leaves(address) and not (looked_up and _is_address(address[0])):
        notes = os.environ.get(NOTES)
        if notes:
            with open(notes, "a") as file:  # noqa: PTH123 - little may be imported this early
                file.write(f"{os.getpid()} {' '.join(sys.argv[:3])}: {address!r}\n")
        raise ConnectionRefusedError(f"a test would leave this machine: {address!r}")


if os.environ.get(NOTES):
    sys.addaudithook(guard)
