"""Lint of composites: their steps name commands, and no composite is weaker than what it runs (DESIGN §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from runtime_core.errors import LintIssue
from runtime_core.exact_json import pointer
from runtime_core.manifest_models import RESERVED_ARGS
from runtime_core.pack_file import FILE_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runtime_core.manifest import Manifest
    from runtime_core.manifest_models import Step
    from runtime_core.policy import Policy

DEPTH_LIMIT: Final = 4
"""Composites inside each other, the outermost counted; what is no composite adds nothing."""
STEPS_LIMIT: Final = 32
"""Commands that one composite runs, with those of the composites among its steps: the pre-flight walks them all."""

_Node = tuple[str, str]
"""pack_id and verb_key."""


class Judged(Protocol):
    """A pack as lint sees it."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def policy(self) -> Policy: ...


class _Own(NamedTuple):
    manifest: Manifest
    policy: Policy


class _Weight(NamedTuple):
    """What running a command amounts to, its steps included."""

    write: bool
    confirm: bool
    commands: int
    depth: int
    """Composites inside each other; 0 for a command that is none."""


_UNKNOWN: Final = _Weight(write=False, confirm=False, commands=1, depth=0)


def composite_issues(manifest: Manifest, policy: Policy, others: Mapping[str, Judged]) -> Iterator[LintIssue]:
    """Yield the issues of every composite of the pack; steps of packs that are not in `others` weigh nothing."""
    composites = {key: verb.steps for key, verb in manifest.verbs.items() if verb.steps}
    if not composites:
        return
    graph = _Graph({**others, manifest.id: _Own(manifest, policy)})
    for key, steps in composites.items():
        graph.add((manifest.id, key))
        for index, step in enumerate(steps):
            yield from _step_issues(graph, manifest.id, key, index, step)
    graph.weigh()
    for key in composites:
        yield from _weight_issues(graph, manifest.id, key)


def _step_issues(graph: _Graph, pack_id: str, key: str, index: int, step: Step) -> Iterator[LintIssue]:
    place: list[str | int] = ["verbs", key, "steps", index]
    node = (step.pack_id or pack_id, step.verb_key)
    if not graph.may_exist(node):
        yield _issue("missing_verb", [*place, "verb_key"], f"no command {_name(node)}", "1.3.command")
    for name in sorted(step.args.keys() & RESERVED_ARGS):
        value = step.args[name]
        if not (isinstance(value, dict) and value.get("$arg") in RESERVED_ARGS):
            reason = 'belongs to the runtime; a step may pass it only as {"$arg": "confirm"}'
            yield _issue("reserved_arg", [*place, "args", name], reason, "4.5.2")


def _weight_issues(graph: _Graph, pack_id: str, key: str) -> Iterator[LintIssue]:
    node = (pack_id, key)
    place: list[str | int] = ["verbs", key, "steps"]
    own = graph.entry(node)
    for index, step in enumerate(graph.steps[node] if graph.has_entry(node) else ()):
        weight = graph.weights.get(step) or graph.entry(step)
        if weight.write and not own.write:
            reason = f"a read that runs {_name(step)}, a write"
            yield _issue("composite_escalation", [*place, index], reason, "9.4.axes")
        if weight.confirm and not own.confirm:
            reason = f"without confirm, and runs {_name(step)}, which wants it"
            yield _issue("composite_escalation", [*place, index], reason, "4.5.5")
    if node not in graph.weights:
        yield _issue("composite_escalation", place, graph.way_down(node), "9.5.order")
    elif graph.weights[node].commands > STEPS_LIMIT:
        reason = f"runs {graph.weights[node].commands} commands, the limit is {STEPS_LIMIT}"
        yield _issue("composite_escalation", place, reason, "9.5.order")


class _Graph:
    """Commands and the steps between them, over this pack and the known others."""

    def __init__(self, packs: Mapping[str, Judged]) -> None:
        self._packs = packs
        self.steps: dict[_Node, list[_Node]] = {}
        self.weights: dict[_Node, _Weight] = {}

    def add(self, node: _Node) -> None:
        """Take in a composite and all it leads to."""
        waiting = [node]
        while waiting:
            pack_id, key = node = waiting.pop()
            pack = self._packs.get(pack_id)
            if node in self.steps or pack is None or key not in pack.manifest.verbs:
                continue
            steps = pack.manifest.verbs[key].steps
            self.steps[node] = [(step.pack_id or pack_id, step.verb_key) for step in steps]
            waiting += self.steps[node]

    def may_exist(self, node: _Node) -> bool:
        pack = self._packs.get(node[0])
        return pack is None or node[1] in pack.manifest.verbs

    def has_entry(self, node: _Node) -> bool:
        pack = self._packs.get(node[0])
        return pack is not None and node[1] in pack.policy.verbs

    def entry(self, node: _Node) -> _Weight:
        """Return the weight that the policy itself gives a command."""
        if not self.has_entry(node):
            return _UNKNOWN
        entry = self._packs[node[0]].policy.verbs[node[1]]
        return _Weight(entry.operation == "write", entry.confirm, 1, 0)

    def weigh(self) -> None:
        """Weigh from the bottom, a level a round; what has no weight then is too deep, or runs in a circle."""
        for _ in range(DEPTH_LIMIT + 1):
            found = {node: self._weight(node) for node in self.steps if node not in self.weights}
            self.weights.update((node, weight) for node, weight in found.items() if weight is not None)

    def _weight(self, node: _Node) -> _Weight | None:
        own, steps = self.entry(node), self.steps[node]
        parts = [self.weights.get(step) if step in self.steps else self.entry(step) for step in steps]
        known = [part for part in parts if part is not None]
        depth = 1 + max((part.depth for part in known), default=-1)
        if len(known) < len(parts) or depth > DEPTH_LIMIT:
            return None
        return _Weight(
            write=any(part.write for part in (own, *known)),
            confirm=any(part.confirm for part in (own, *known)),
            commands=sum(part.commands for part in known) if known else 1,
            depth=depth,
        )

    def way_down(self, node: _Node) -> str:
        """Tell how a composite without a weight leads too deep, or back to itself."""
        way = [node]
        while len(way) <= DEPTH_LIMIT and self.steps.get(way[-1]):
            way.append(max(self.steps[way[-1]], key=self._depth))
            if way[-1] in way[:-1]:
                return f"runs in a circle: {' → '.join(map(_name, way))}"
        return f"more than {DEPTH_LIMIT} composites deep: {' → '.join(map(_name, way))}"

    def _depth(self, node: _Node) -> int:
        if node not in self.steps:
            return 0
        weight = self.weights.get(node)
        return DEPTH_LIMIT + 1 if weight is None else weight.depth


def _name(node: _Node) -> str:
    return f"{node[1]} of {node[0]}"


def _issue(kind: str, steps: list[str | int], reason: str, clause: str) -> LintIssue:
    return LintIssue(kind, f"{FILE_NAMES['surface']} {pointer(steps)}", reason, clause)
