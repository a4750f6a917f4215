"""Runtime: the ports through which a command reaches the world, in one frozen bundle (DESIGN §2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runtime_core.audit import AuditLog
    from runtime_core.authority import Authority
    from runtime_core.binding import Hub
    from runtime_core.execution import Call
    from runtime_core.identity import Micros
    from runtime_core.pack import PackRevision


class Ran(NamedTuple):
    """What an adapter answered: a JSON value, and where the command failed, why."""

    result: Any = None
    error: str | None = None


class Adapter(Protocol):
    """Reaches the world for one kind of pack (§1.5.adapters)."""

    def run(self, call: Call, runtime: Runtime) -> Ran:
        """Run an admitted command; its args are valid and its binding is minted. Answers a failure, raises nothing."""
        ...


class Runtime(NamedTuple):
    """The ports. `authority` answers the newest snapshot of a tenant, `now` the moment.

    `may_begin` is asked, by request id, before a write begins: it notes durably that the write is about to, and answers
    False where the request is no longer this process's to run. `barred` tells why no command of a revision can run,
    whoever asks; None: nothing bars them.
    """

    authority: Callable[[str], Authority]
    audit: AuditLog
    hubs: Mapping[str, Hub]
    adapters: Mapping[str, Adapter]
    now: Callable[[], Micros]
    may_begin: Callable[[str], bool] = lambda _: True
    barred: Callable[[PackRevision], str | None] = lambda _: None
