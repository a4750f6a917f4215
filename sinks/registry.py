"""Which kinds of sinks there are in this process, and building one of them from its row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from runtime_core.errors import UsageError
from sinks.console import Console
from sinks.declared import Misdeclared, check
from sinks.inbox import Inbox
from sinks.jsonl import Jsonl
from sinks.memory import Memory
from sinks.plugins import Fault, load_plugins
from sinks.protocol import NOTHING_ALLOWED, HostedSink
from sinks.raised import origin
from sinks.redis_stream import RedisStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sinks.protocol import Host, Sink

BUILT_IN: tuple[type[Sink], ...] = (Inbox, Jsonl, Console, Memory, RedisStream)
"""Every kind that ships; a plugin cannot take one of these names."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What the runtime and the land rules need to know of a sink before it is opened (DESIGN §6)."""

    partitioned: bool
    workspace: bool
    transactional: bool
    local: bool
    deadline_s: float
    """Seconds one hand-over may take."""
    concurrency: int
    batch_size: int
    lands: tuple[str, ...]


class Registry:
    """The kinds of this process. `Registry()` has the built-in ones, `Registry.load()` the plugins' too.

    `host` is what the host's operator allows their sinks.
    """

    def __init__(self, host: Host = NOTHING_ALLOWED) -> None:
        self._host = host
        self._kinds = {sink.kind: check(sink, built_in=True) for sink in BUILT_IN}
        self._faults: tuple[Fault, ...] = ()

    @classmethod
    def load(cls, host: Host = NOTHING_ALLOWED) -> Registry:
        """Return the built-in kinds and every plugin that loads; what does not load is in `faults`, never raised."""
        registry = cls(host)
        plugins, faults = load_plugins(registry._kinds)
        registry._kinds.update(plugins)
        registry._faults = tuple(faults)
        return registry

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every plugin that was left out, and why."""
        return self._faults

    def kinds(self) -> tuple[str, ...]:
        """Return the names of all kinds, sorted."""
        return tuple(sorted(self._kinds))

    def get(self, kind: str) -> type[Sink] | None:
        """Return the class of a kind, or None."""
        return self._kinds.get(kind)

    def register(self, plugin: type) -> None:
        """Add a class of this process, for hosts and tests; raises UsageError where the contract is not met."""
        try:
            sink = check(plugin, built_in=False)
        except Misdeclared as error:
            raise UsageError("sink plugin", str(error), "see docs/sinks.md") from None
        if sink.kind in self._kinds:
            raise UsageError("sink plugin", f"kind {sink.kind!r} of {sink.__qualname__} is taken")
        self._kinds[sink.kind] = sink

    def build(self, kind: str, name: str, options: Mapping[str, object]) -> Sink:
        """Return a new sink, not opened; its options are checked as JSON by the kind's model, strictly.

        Raises UsageError naming the option (`options.path: …`) and never a value; also for a kind that is missing, for
        what the host does not allow, and for a plugin that fails while it is built.
        """
        sink = self._kinds.get(kind)
        if sink is None:
            raise UsageError("kind", self._missing(kind), f"kinds: {', '.join(self.kinds())}")
        try:
            built = sink(name, _validated(sink, options))
            if isinstance(built, HostedSink):
                built.admit(self._host)
            workspace = built.workspace
        except UsageError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's own code: it concerns this sink only
            # Neither its text nor its traceback: both may hold option values, and those may be secret (C53).
            what = f"raised {type(error).__name__} while it was built, {origin(error)}"
            raise UsageError(f"sink kind {kind}", what, "a sink that raises UsageError gives its reason") from None
        if not isinstance(workspace, bool):
            raise UsageError(f"sink kind {kind}", "its property workspace answers neither True nor False")
        return built

    def try_out(self, kind: str, name: str, options: Mapping[str, object]) -> None:
        """Build a sink as `build` does, and open and close one of a `local` kind: what it lacks here shows at once.

        Raises UsageError; of an exception of another class the kind and the place, never the text.
        """
        sink = self.build(kind, name, options)
        if not sink.local:
            return
        try:
            sink.open()
            sink.close()
        except UsageError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's own code
            what = f"raised {type(error).__name__} while it was opened, {origin(error)}"
            raise UsageError(f"sink kind {kind}", what, "a sink that raises UsageError gives its reason") from None

    def fault(self, kind: str, options: Mapping[str, object]) -> str | None:
        """Return why no sink of this kind with these options can be built in this process; None where one can."""
        try:
            self.build(kind, kind, options)
        except UsageError as error:
            return str(error)
        return None

    def traits(self, kind: str, options: Mapping[str, object]) -> Traits | None:
        """Return what a sink of this kind with these options is; None where `build` would refuse."""
        try:
            sink = self.build(kind, kind, options)
        except UsageError:
            return None
        return Traits(
            partitioned=sink.partitioned,
            workspace=sink.workspace,
            transactional=sink.transactional,
            local=sink.local,
            deadline_s=float(sink.deadline_s),
            concurrency=sink.concurrency,
            batch_size=sink.batch_size,
            lands=sink.lands,
        )

    def _missing(self, kind: str) -> str:
        for fault in self._faults:
            if fault.entry_point == kind:
                return f"{kind!r} is left out: {fault}"
        return f"there is no sink kind {kind!r}"


def _validated(sink: type[Sink], options: Mapping[str, object]) -> BaseModel:
    """Return the options, read by the kind's model as the JSON they are kept as, strictly like at every door."""
    names = ", ".join(sink.Options.model_fields) or "none"
    way_out = f"options of {sink.kind}: {names}; see docs/sinks.md"
    try:
        text = json.dumps(dict(options), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise UsageError("options", "hold a value that is not JSON", way_out) from None
    try:
        return sink.Options.model_validate_json(text, strict=True)
    except ValidationError as error:
        # Not `str(error)`, and no cause: both show the values.
        first, *others = error.errors(include_url=False, include_context=False, include_input=False)
        place = ".".join(("options", *(str(part) for part in first["loc"])))
        reason = first["msg"].removeprefix("Value error, ")
        more = f", and {len(others)} more" if others else ""
        raise UsageError(place, f"{reason[:1].lower()}{reason[1:]}{more}", way_out) from None
