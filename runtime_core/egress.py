"""Which addresses a client may connect to: the guard that whoever calls a service shares (C46, C47).

What is checked is the address of each connection, at the moment its socket is made: a name may lead elsewhere at every
look-up, and what was checked before the look-up says nothing about it.
"""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from runtime_core.addresses import example_network, is_named, is_public

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_core.addresses import Network

LOOPBACK = ("127.0.0.1", "::1")
"""Where `localhost` and every name beneath it lead (RFC 6761), whatever a name server says."""
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+", re.ASCII)


class NotReached(Exception):
    """Nothing was sent; says why."""

    example = "10.0.0.0/8"
    """A network as the operator may name it: one that holds the address where that was given, not looked up."""


class Egress:
    """Lets a connection out to an address that may be reached, whatever name led there."""

    def __init__(self, networks: Sequence[Network], setting: str, closed: str | None = None) -> None:
        """`networks`: internal addresses in them may be reached; `setting` is where the operator names them.

        `closed`: why nothing but those networks may be reached; None where public addresses may be.
        """
        self._networks = networks
        self._setting = setting
        self._closed = closed

    def check(self, address: str) -> None:
        """Raise NotReached for an address that may not be reached."""
        if is_named(address, self._networks):
            return
        if not is_public(address):
            raise NotReached(f"its address is internal; the operator may name its network in {self._setting}")
        if self._closed is not None:
            raise NotReached(self._closed)

    def check_host(self, host: str) -> None:
        """Raise NotReached for a host that needs no look-up to be refused; a name that needs one passes."""
        folded = host.rstrip(".").lower()
        if folded == "localhost" or folded.endswith(".localhost"):
            if not any(is_named(address, self._networks) for address in LOOPBACK):
                self._check_given(LOOPBACK[0])
            return
        try:
            ip_address(folded)
        except ValueError:
            # `127.1` and `0x7f000001` are addresses to some resolvers and names to others.
            if _NUMBER.fullmatch(folded.rpartition(".")[2]):
                raise NotReached("its host is neither a name nor an address in full") from None
            return
        self._check_given(folded)

    def _check_given(self, address: str) -> None:
        try:
            self.check(address)
        except NotReached as refused:
            refused.example = example_network(address)
            raise

    def socket(self, address: Any) -> socket.socket:
        """Make the socket of one connection; `address` is what it connects to, and nothing resolves it again."""
        family, kind, protocol, _, place = address
        self.check(place[0])
        return socket.socket(family, kind, protocol)
