"""What a sink may have besides the contract; what of it a class has is checked when it is registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping


class Renewed(NamedTuple):
    """Options with a new secret, which is told this once."""

    options: dict[str, Any]
    secret: str


@runtime_checkable
class KeyedSink(Protocol):
    """A sink that signs with a secret of its own, which the host makes where none is given, and replaces."""

    secret_options: ClassVar[tuple[str, ...]]
    """The options that hold it, and those it has replaced."""

    @classmethod
    def renew(cls, options: Mapping[str, Any], now: int, until: int) -> Renewed:
        """Return `options` (as they are kept, perhaps without a secret) with a new one.

        The one before is good until `until`, and no longer where that is not after `now`; both are microseconds since
        the epoch. What was replaced earlier keeps its own end.
        """
        ...


@runtime_checkable
class ProbedSink(Protocol):
    """A sink that has something to look at when it is added or changed, before its first delivery."""

    def probe(self) -> None:
        """Look without delivering anything, within a few seconds; raises UsageError for what cannot work."""
        ...
