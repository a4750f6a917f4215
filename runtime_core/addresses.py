"""Which addresses a request may reach: public ones, and the networks that the operator has named (C46, C47)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

Network = IPv4Network | IPv6Network

_CARRIERS: Final = tuple(map(IPv6Network, ("::/96", "64:ff9b::/96")))
"""IPv6 ranges whose last 32 bits are the IPv4 address that is really reached: the old compatible form, and NAT64."""
_INTERNAL: Final = tuple(map(IPv6Network, ("64:ff9b:1::/48", "fec0::/10")))
"""Internal, and global to the standard library of some Python versions: local NAT64, and site-local addresses."""

_EXAMPLES: Final = tuple(
    map(ip_network, ("10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"))
)


def parse_networks(text: str) -> tuple[Network, ...]:
    """Return the networks of a list such as `10.0.0.0/8,fd00::/8`; raises ValueError, which says what is wrong."""
    return tuple(_network(part.strip()) for part in text.split(","))


def _network(text: str) -> Network:
    try:
        meant = ip_network(text, strict=False)
    except ValueError:
        raise ValueError("must be networks separated by commas, such as 10.0.0.0/8,fd00::/8") from None
    try:
        return ip_network(text)
    except ValueError:
        alone = f"{text.partition('/')[0]}/{meant.max_prefixlen}"
        raise ValueError(f"{text} has host bits set; write {meant}, or {alone} for that address alone") from None


def example_network(address: str) -> str:
    """Return a network to show as an example to whoever gave an internal address: one that holds it."""
    reached = _reached(address)
    return str(next((network for network in _EXAMPLES if reached in network), _EXAMPLES[0]))


def is_named(address: str, networks: Iterable[Network]) -> bool:
    """Tell whether an address lies in one of the networks, also where IPv6 only carries it."""
    reached = _reached(address)
    return any(reached in network for network in networks)


def is_public(address: str) -> bool:
    """Tell whether an address is one of the open internet: not internal, shared, link-local, multicast or reserved."""
    reached = _reached(address)
    if isinstance(reached, IPv6Address) and any(reached in network for network in _INTERNAL):
        return False
    return reached.is_global and not reached.is_multicast and not reached.is_reserved


def _reached(address: str) -> IPv4Address | IPv6Address:
    """Return the IPv4 address within an IPv6 one that only carries it, else the address itself."""
    found = ip_address(address)
    if isinstance(found, IPv4Address) or found in {IPv6Address("::"), IPv6Address("::1")}:
        return found
    carried = found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1]
    if carried is None and any(found in network for network in _CARRIERS):
        carried = IPv4Address(int(found) & 0xFFFF_FFFF)
    return carried or found
