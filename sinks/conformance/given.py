"""What an author gives the kit: the sink class, options it works with, and ways to look at what it delivers to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sinks.protocol import NOTHING_ALLOWED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sinks.protocol import Delivery, Host, RowWriter


@dataclass(frozen=True, slots=True)
class Given:
    """A sink class with options under which ordinary deliveries arrive; made anew for each test.

    Only the class is needed. Each further field lets the kit look closer.
    """

    sink: type
    options: Mapping[str, object] = field(default_factory=dict)
    """As they would stand in a row: JSON values. Values of secret options are looked for everywhere."""
    seen: Callable[[], Iterable[str]] | None = None
    """Read the ids of the deliveries back from where they arrived, one for each time it can be seen there."""
    repeats: bool = False
    """The same id may be there twice: who reads tells repeats by it. False: a repeat must leave one."""
    shared: bool = True
    """What another process delivered is seen here too."""
    away: Callable[[], AbstractContextManager[object]] | None = None
    """A block in which the place it delivers to cannot be reached or is busy: it has to answer Retry."""
    hanging: Callable[[], AbstractContextManager[object]] | None = None
    """A block in which the place it delivers to takes everything and never answers."""
    rejected: Callable[[Delivery], Delivery] | None = None
    """Make of a delivery one that this sink must answer with Rejected, though its neighbours arrive."""
    secrets: tuple[str, ...] | None = None
    """What must not appear anywhere; by default every value of an option that is secret by type or name. For an address
    that is shown but for its password, say the password."""
    workspace: Path | None = None
    """Of a sink that writes into the workspace: the folder its deliveries name, in which `seen` looks."""
    host: Host = NOTHING_ALLOWED
    """What the host's operator allows."""
    rows: Callable[[], AbstractContextManager[RowWriter]] | None = None
    """Of a transactional (built-in) kind: a transaction that commits at the end of the block."""
