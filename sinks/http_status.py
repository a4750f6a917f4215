"""What a status of HTTP means for a delivery (C42), by the classes of RFC 9110."""

from __future__ import annotations

from typing import Final

_PASSING: Final = frozenset({408, 425, 429})


def succeeded(status: int) -> bool:
    """Return whether the receiver has taken it."""
    return 200 <= status < 300  # noqa: PLR2004 - the class of success


def redirects(status: int) -> bool:
    """Return whether it points elsewhere or is an interim one; neither is followed."""
    return status < 400 and not succeeded(status)  # noqa: PLR2004 - the class of redirects ends here


def passes(status: int) -> bool:
    """Return whether the same request may succeed later: the receiver has no time for it, or a fault of its own."""
    return status in _PASSING or status >= 500  # noqa: PLR2004 - the class of faults of the server
