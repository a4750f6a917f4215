"""When a delivery is tried again: the schedule lives in the row, never in Celery's countdown (DESIGN §6.6)."""

from __future__ import annotations

import random
from typing import NamedTuple

AFTER_CEILING_S = 86_400.0
"""A sink may ask for a delay of at most a day: a longer one would outlive nobody's patience and hide a dead sink."""


class Schedule(NamedTuple):
    """Delays in seconds after the first, second, … failed attempt, each spread by ± `jitter` of itself."""

    delays: tuple[float, ...]
    jitter: float

    def delay_micros(self, attempt: int, asked: float | None = None) -> int | None:
        """Return how long to wait after the failed attempt number `attempt`, or None when none is left.

        A sink that asks for a delay gets it, clamped to a day; the number of attempts stays the schedule's. "At once"
        is taken at the first failure only: asked again and again, it would use the attempts up within a second (C41).
        Jitter keeps a burst that failed together from coming back together.
        """
        if attempt > len(self.delays):
            return None
        if asked is not None and (asked > 0 or (asked == 0 and attempt == 1)):
            return int(min(asked, AFTER_CEILING_S) * 1e6)
        delay = self.delays[attempt - 1]
        return int(delay * random.uniform(1 - self.jitter, 1 + self.jitter) * 1e6)  # noqa: S311 - jitter, no secret
