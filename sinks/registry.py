"""Which kinds of sinks there are in this process, and building one of them from its row."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runtime_core.errors import UsageError
from sinks.console import Console
from sinks.declared import Misdeclared, check
from sinks.extras import EXTRAS
from sinks.guarded import Guard, unmarked
from sinks.inbox import Inbox
from sinks.jsonl import Jsonl
from sinks.memory import Memory
from sinks.notify import Notify
from sinks.optional import KeyedSink, ProbedSink, Renewed
from sinks.options import MASK, secret_names, shown, validated
from sinks.plugins import Fault, load_plugins
from sinks.protocol import NETWORKS_SETTING, NOTHING_ALLOWED, SERVICES_SETTING, HostedSink
from sinks.raised import kept, origin
from sinks.redis_stream import RedisStream
from sinks.webhook import Webhook

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sinks.guarded import Mark
    from sinks.protocol import Host, Sink

BUILT_IN: tuple[type[Sink], ...] = (Inbox, Jsonl, Console, Memory, RedisStream, Notify, Webhook)
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

    def __init__(self, host: Host = NOTHING_ALLOWED, mark: Mark = unmarked) -> None:
        self._host = host
        self._guard = Guard(mark)
        self._kinds = {sink.kind: check(sink, built_in=True) for sink in BUILT_IN}
        self._faults: tuple[Fault, ...] = ()

    @classmethod
    def load(
        cls,
        host: Host = NOTHING_ALLOWED,
        verdicts: Path | None = None,
        *,
        fresh: bool = False,
        mark: Mark = unmarked,
    ) -> Registry:
        """Return the built-in kinds and every plugin that loads; what does not load is in `faults`, never raised.

        Plugins are imported in a process of their own first. `verdicts` is the file in which this host keeps what came
        of it, None: nothing is kept; `fresh` tries again whatever it says. `mark`: see `sinks.guarded`.
        """
        registry = cls(host, mark)
        plugins, faults = load_plugins(registry._kinds, verdicts, fresh=fresh)
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
        if sink in BUILT_IN:
            return self._built(sink, name, options)
        return self._guard.build(kind, repr(options), lambda: self._built(sink, name, options))

    def _built(self, sink: type[Sink], name: str, options: Mapping[str, object]) -> Sink:
        with _own_code(sink.kind, "built"):
            built = sink(name, validated(sink, options))
            if isinstance(built, HostedSink):
                built.admit(self._host)
            workspace = built.workspace
        if not isinstance(workspace, bool):
            raise UsageError(f"sink kind {sink.kind}", "its property workspace answers neither True nor False")
        return built

    def try_out(self, kind: str, name: str, options: Mapping[str, object]) -> None:
        """Build a sink as `build` does, and look what it lacks here: it shows at once, not at the first delivery.

        One that has a `probe` looks by itself; one of a `local` kind is opened and closed. Raises UsageError; of an
        exception of another class the kind and the place, never the text.
        """
        sink = self.build(kind, name, options)
        with _own_code(kind, "tried out"):
            if isinstance(sink, ProbedSink):
                sink.probe()
            elif sink.local:
                sink.open()
                sink.close()

    def masked_options(self, kind: str) -> frozenset[str]:
        """Return the options of a kind that are secrets; none for a kind that is missing."""
        sink = self._kinds.get(kind)
        return frozenset() if sink is None else secret_names(sink.Options)

    def own_secrets(self, kind: str) -> tuple[str, ...]:
        """Return the options that hold the secret a sink of this kind signs with; none where it does not sign."""
        sink = self._kinds.get(kind)
        return sink.secret_options if isinstance(sink, KeyedSink) else ()

    def renew(self, kind: str, options: Mapping[str, object], now: int, until: int) -> Renewed:
        """Return the options with a new secret of its own; moments are microseconds since the epoch.

        The secret before is good until `until`. Raises UsageError for a kind that signs with none.
        """
        sink = self._kinds.get(kind)
        if not isinstance(sink, KeyedSink):
            raise UsageError(
                "sink", f"kind {kind!r} has no secret of its own", "`sense-worker sink set` changes options"
            )
        with _own_code(kind, "given a new secret"):
            return sink.renew(options, now, until)

    def shown(self, kind: str, options: Mapping[str, object]) -> dict[str, Any]:
        """Return the options for people, secrets masked; where they cannot be read here every value is masked."""
        sink = self._kinds.get(kind)
        if sink is not None:
            with suppress(UsageError):
                return shown(validated(sink, options))
        return dict.fromkeys(options, MASK)

    def fault(self, kind: str, options: Mapping[str, object]) -> str | None:
        """Return why no sink of this kind with these options can be used in this process; None where one can."""
        try:
            self.build(kind, kind, options)
        except UsageError as error:
            return str(error)
        extra = EXTRAS.get(kind)
        return None if extra is None else extra.lack()

    def note(self, kind: str, options: Mapping[str, object]) -> str | None:
        """Return a line where such a sink, which can be used here, is allowed by this process's settings alone."""
        sink = self._kinds.get(kind)
        if sink not in BUILT_IN:
            return None
        built = sink(kind, validated(sink, options))
        if not isinstance(built, HostedSink):
            return None
        without = {
            NETWORKS_SETTING: self._host._replace(networks=()),
            SERVICES_SETTING: self._host._replace(services=()),
        }
        named = []
        for setting, host in without.items():
            try:
                built.admit(host)
            except UsageError:
                named.append(setting)
        return f"allowed by this shell's {' and '.join(named)}; a worker needs the same setting" if named else None

    def traits(self, kind: str, options: Mapping[str, object]) -> Traits | str:
        """Return what a sink of this kind with these options is; where `build` would refuse, why, in one line."""
        try:
            sink = self.build(kind, kind, options)
        except UsageError as error:
            return kept(str(error))
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


@contextmanager
def _own_code(kind: str, doing: str) -> Iterator[None]:
    """Run a sink's own code, which may be a plugin's: what it raises concerns this sink only."""
    try:
        yield
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises
        # Neither its text nor its traceback: both may hold option values, and those may be secret (C53).
        what = f"raised {type(error).__name__} while it was {doing}, {origin(error)}"
        raise UsageError(f"sink kind {kind}", what, "a sink that raises UsageError gives its reason") from None
