"""How long a receiver asks to wait: the header Retry-After (RFC 9110 §10.2.3), as far as it can be trusted (C41)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CAP_S = 3600.0
"""A receiver may not push a delivery further away than this."""
_SECONDS = re.compile(r"[0-9]+", re.ASCII)
_DATE = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? [0-9A-Za-z: -]{16,30}", re.ASCII)
_DIGITS = len(str(int(CAP_S)))


def retry_after(values: Sequence[str], now: float) -> float | None:
    """Return the seconds that are asked for, from 0 to `CAP_S`; None where the ledger's own schedule decides.

    `values` are all the header's lines, `now` is seconds since the epoch. Whole seconds and HTTP dates are honoured;
    anything else, a date that is over and a header given twice are not.
    """
    if len(values) != 1:
        return None
    text = values[0].strip(" \t")
    if _SECONDS.fullmatch(text):
        digits = text.lstrip("0")
        # By length first: a number of ten thousand digits is not worth its conversion.
        return CAP_S if len(digits) > _DIGITS else min(float(digits or "0"), CAP_S)
    if not _DATE.fullmatch(text):
        return None
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    ahead = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.fromtimestamp(now, UTC)
    return min(ahead.total_seconds(), CAP_S) if ahead.total_seconds() > 0 else None
