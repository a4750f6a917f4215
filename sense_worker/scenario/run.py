"""Run the cases of a scenario through the real pipeline and tell what each expected and got (DESIGN §10)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core import pipeline
from runtime_core.errors import MISSING_PACK_INSTALL, MISSING_SENSE_ENABLE, UsageError
from runtime_core.grants import Capability
from runtime_core.install import install_refusal, session_refusal
from runtime_core.signing import SECOND
from sense_worker.filters import Filtering
from sense_worker.intake.candidates import Announced, matching
from sense_worker.intake.door import Admitted, Turned, admit
from sense_worker.intake.stream import StreamEntry
from sense_worker.scenario.commands import Commands
from sense_worker.scenario.model import AgainCase, AvailableCase, ExecCase, InstallCase, SenseCase, StepCase
from sense_worker.scenario.read import ScenarioError
from sense_worker.scenario.world import World
from sense_worker.wire import build_entry, stream_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runtime_core.identity import Route
    from runtime_core.pipeline import Attempt
    from sense_worker.scenario.model import AnyCase, Asked, Sense
    from sense_worker.scenario.packs import Listed
    from sense_worker.scenario.read import Loaded

FRESHNESS_S = 300.0
_BODY_FIELDS = ("ref", "data", "subject")
_BEGINNING = "…"
_WIRE_WORDS = {"c": "activation", "i": "id"}
"""What a sense case calls the fields of the entry (docs/wire.md)."""


class Decided(NamedTuple):
    """What decided: a step of the pipeline with the clause, or a door with what was wrong there."""

    step: str
    clause: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case: what it expected, what it got, and for each of the latter which step decided."""

    name: str
    kind: str
    expected: Mapping[str, Any]
    got: Mapping[str, Any]
    decided: Mapping[str, Decided] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether it holds. Sense names every route; the other kinds are compared by the names they give."""
        if self.kind in ("sense", "again") and self.expected.keys() != self.got.keys():
            return False
        return holds(self.expected, self.got)


@dataclass(slots=True)
class _Accepted:
    """An event of this scenario, with the deliveries it gave birth to."""

    admitted: Admitted
    outcomes: dict[str, str]
    decided: dict[str, Decided]
    born: tuple[Route, ...]


def run(loaded: Loaded, folder: Path, replaced: list[tuple[int, Listed]] | None = None) -> list[CaseResult]:
    """Run a scenario: what is said of its packs, then its cases in order; steps that hold have no result.

    `replaced` collects the packs of `replace` steps that were refused, each with the index of its case. Raises
    ScenarioError for a case that cannot be meant.
    """
    return [*_pack_results(loaded), *_Run(loaded, folder, replaced).results()]


def _pack_results(loaded: Loaded) -> Iterator[CaseResult]:
    """Compare what the file says of its packs: the file that fails, and the lint kinds."""
    found = {one.pack_id: one for one in loaded.listed if one.pack_id is not None}
    nameless = [one for one in loaded.listed if one.pack_id is None]
    for pack_id, state in loaded.scenario.rejected.items():
        # A file whose id nobody can read is the one that is expected to fail and was not found by name.
        one = found.get(pack_id) or (nameless.pop(0) if nameless else None)
        got = "no such pack" if one is None else one.state or "installed"
        yield CaseResult(f"pack {pack_id}", "pack", {"rejected": state}, {"rejected": got})
    for pack_id, kinds in loaded.scenario.lint.items():
        one = found.get(pack_id)
        got_kinds = ["no such pack"] if one is None else list(one.kinds)
        yield CaseResult(f"lint {pack_id}", "pack", {"lint": sorted(set(kinds))}, {"lint": got_kinds})


class _Run:
    def __init__(self, loaded: Loaded, folder: Path, replaced: list[tuple[int, Listed]] | None = None) -> None:
        self._loaded = loaded
        self._replaced = [] if replaced is None else replaced
        self._folder = folder
        self._world = World(loaded)
        self._commands = Commands(self._world)
        self._events: dict[bytes, _Accepted] = {}
        self._by_name: dict[str, _Accepted | CaseResult] = {}

    def results(self) -> Iterator[CaseResult]:
        for index, case in enumerate(self._loaded.scenario.cases):
            if isinstance(case, StepCase):
                self._change(index, case)
                continue
            yield self._case(index, case, case.name or f"case {index + 1}")

    def _change(self, index: int, case: StepCase) -> None:
        try:
            self._world.change(*case.step.change, self._folder)
        except UsageError as error:
            place = f"{self._loaded.place} /cases/{index}/step/{error.place}"
            raise ScenarioError(place, error.reason, error.way_out) from None
        replaced = self._world.replaced.pop() if self._world.replaced else None
        if replaced is not None and replaced.error is not None:
            self._replaced.append((index, replaced))

    def _case(self, index: int, case: AnyCase, name: str) -> CaseResult:
        match case:
            case SenseCase():
                return self._sense(index, case, name)
            case AgainCase():
                return self._again(case, name)
            case InstallCase():
                return CaseResult(name, "install", case.expect, *self._install(case.install))
            case ExecCase():
                done = self._commands.run(case.exec, index)
                decided = Decided(done.step, done.clause, done.detail)
                return CaseResult(name, "exec", case.expect, done.got, {"ok" if done.got["ok"] else "error": decided})
            case AvailableCase():
                return CaseResult(name, "available", case.expect, _available(self._commands, case))
        raise AssertionError(case)

    def _sense(self, index: int, case: SenseCase, name: str) -> CaseResult:
        world = self._world
        tenant = world.tenant_of(case.sense.activation)
        entry = StreamEntry(
            tenant, stream_of(tenant), f"{world.now // 1000}-{index}", _fields(case.sense, index, world), 1
        )
        verdict = admit(entry, world.authority(tenant), world.now, FRESHNESS_S)
        if isinstance(verdict, Turned):
            place, colon, reason = verdict.detail.partition(": ")
            return self._refused(name, case, verdict.word, f"{_WIRE_WORDS.get(place, place)}{colon}{reason}")
        known = self._events.get(verdict.facts.event_id)
        if known is not None:
            if known.admitted.body_digest != verdict.body_digest:
                return self._refused(name, case, "conflict", "the message id was used with another body")
            self._by_name[name] = known
            return CaseResult(name, "sense", case.expect, {"repeat": True})
        accepted = self._events[verdict.facts.event_id] = self._by_name[name] = _accept(verdict)
        if not case.sense.hold:
            self._attempt(accepted)
        return CaseResult(name, "sense", case.expect, dict(accepted.outcomes), dict(accepted.decided))

    def _refused(self, name: str, case: SenseCase, word: str, detail: str) -> CaseResult:
        decided = {"refused": Decided("intake", detail=detail)}
        result = CaseResult(name, "sense", case.expect, {"refused": word}, decided)
        self._by_name[name] = result
        return result

    def _again(self, case: AgainCase, name: str) -> CaseResult:
        known = self._by_name[case.again]
        if isinstance(known, CaseResult):
            return CaseResult(name, "again", case.expect, known.got, known.decided)
        self._attempt(known)
        return CaseResult(name, "again", case.expect, dict(known.outcomes), dict(known.decided))

    def _attempt(self, accepted: _Accepted) -> None:
        """Attempt every delivery that is not delivered yet: hold, judge, hand over, audit, as the drain does."""
        facts = accepted.admitted.facts
        authority = self._world.authority(facts.tenant)
        due: list[Attempt] = []
        for route in accepted.born:
            if accepted.outcomes[route.id] == "delivered":
                continue
            sink = authority.sink(route.sink)
            if sink is None or sink.held is not None:
                accepted.outcomes[route.id] = "held"
                accepted.decided[route.id] = Decided("sink")
                continue
            due.append(pipeline.decide(authority, facts, route, self._world.now))
        attempts = pipeline.deliver(due, lambda admitted: [None] * len(admitted))
        pipeline.audit(attempts, self._world.audit)
        for one in attempts:
            refused = one.refused
            accepted.outcomes[one.route.id] = "delivered" if refused is None else refused.text
            step = Decided("deliver") if refused is None else Decided(refused.step, refused.clause)
            if refused is not None and refused.text == MISSING_SENSE_ENABLE.text():
                step = step._replace(detail=self._world.near_miss(one.route.owner, Capability.SENSE_ENABLE))
            accepted.decided[one.route.id] = step

    def _install(self, asked: Asked) -> tuple[dict[str, Any], dict[str, Decided]]:
        world, now = self._world, self._world.now
        session = world.session(asked.principal)
        if session is None:
            return _failed("denied: session revoked", Decided("authenticate", "9.1.2"))
        authority = world.authority(session.tenant)
        principal = authority.principal(session.principal)
        disabled = principal is None or principal.disabled
        refusal = session_refusal(revoked=session.revoked, expires_at=session.expires_at, disabled=disabled, now=now)
        pack_id = asked.pack if isinstance(asked.pack, str) else ""
        one = world.listed.get(pack_id)
        if refusal is None:
            grant = authority.grant(session.principal, Capability.PACK_INSTALL, pack_id, None, None, now)
            plane = None if one is None else one.plane
            operator = principal is not None and principal.operator
            refusal = install_refusal(operator=operator, plane=plane, grant=grant)
        if refusal is not None:
            missing = refusal is MISSING_PACK_INSTALL
            near = world.near_miss(session.principal, Capability.PACK_INSTALL) if missing else None
            return _failed(refusal.text(), Decided(refusal.step, refusal.clause, near))
        if one is None or one.pack is None:
            error = UsageError(pack_id, "is no pack of this scenario") if one is None else one.error
            return _failed(str(error), Decided("read_pack", "4.4.reject"))
        world.install(one.pack, session.tenant)
        return {"ok": True, "error": None}, {"ok": Decided("install", "1.6.install")}


def _failed(error: str, decided: Decided) -> tuple[dict[str, Any], dict[str, Decided]]:
    return {"ok": False, "error": error}, {"error": decided}


def _accept(admitted: Admitted) -> _Accepted:
    """Split the matching routes as intake does: a delivery for a candidate, a text for the others."""
    outcomes: dict[str, str] = {}
    decided: dict[str, Decided] = {}
    of = (admitted.authority, admitted.activation, admitted.facts, admitted.land, admitted.arrival)
    seen = Filtering(lambda: admitted.event, len(admitted.wire.b))
    for route, reason in matching(Announced(*of, seen)):
        outcomes[route.id] = "pending" if reason is None else reason.text
        decided[route.id] = Decided("intake" if reason is None else "candidates")
    return _Accepted(admitted, outcomes, decided, admitted.routes)


def _available(commands: Commands, case: AvailableCase) -> dict[str, Any]:
    """Return the report; of a command that the pack in force does not have, nothing is executable."""
    got = commands.available(case.available)
    asked = case.expect.get("executable")
    names = asked if isinstance(asked, dict) else {}
    return {**got, "executable": {**dict.fromkeys(names, False), **got["executable"]}}


def _fields(sense: Sense, index: int, world: World) -> dict[bytes, bytes]:
    """Return the entry that an adapter would publish: signed with the activation's secret, or a stranger's."""
    name = _text(sense.activation)
    activation = world.source.activation(world.tenant_of(sense.activation), name)
    secret = b"a stranger's secret" if activation is None else activation.credential.current
    message_id = _text(sense.id) if "id" in sense.model_fields_set else f"scenario-{index}"
    signed_at = f"{world.now // SECOND}.{world.now % SECOND:06d}"
    entry = build_entry(secret, name, message_id, signed_at, _body(sense))
    return {key.encode(): value if isinstance(value, bytes) else value.encode() for key, value in entry.items()}


def _body(sense: Sense) -> bytes:
    if sense.raw is not None:
        return sense.raw.encode()
    members = {name: getattr(sense, name) for name in _BODY_FIELDS if name in sense.model_fields_set}
    members.update(sense.message)
    gone = {name for name, value in sense.message.items() if value is None}
    return json.dumps({name: value for name, value in members.items() if name not in gone}, ensure_ascii=False).encode()


def _text(value: object) -> str:
    """Return what stands in the place of a text: as it is, or as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def holds(expected: Any, got: Any) -> bool:
    """Tell whether a value is as expected: objects by the names they give, a text that ends in `…` as a beginning."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        return all(name in got and holds(value, got[name]) for name, value in expected.items())
    if isinstance(expected, str) and isinstance(got, str) and expected.endswith(_BEGINNING):
        return got.startswith(expected.removesuffix(_BEGINNING))
    return type(expected) is type(got) and expected == got
