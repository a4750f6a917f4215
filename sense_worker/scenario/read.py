"""From a file to a scenario whose form and names are right (DESIGN §10). A wrong one is refused with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.closed import Misfit, fit
from runtime_core.errors import DoorError, UsageError
from runtime_core.exact_json import pointer
from runtime_core.strict_json import parse
from sense_worker.regular_file import read_regular
from sense_worker.scenario.model import (
    ActivationRow,
    AgainCase,
    GrantRow,
    Membership,
    NamedActivation,
    PackSource,
    ProjectSink,
    Scenario,
    SenseCase,
    StepCase,
)
from sense_worker.scenario.packs import Listed, id_of, read_listed
from sense_worker.scenario.yaml_text import YamlFault, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from runtime_core.pack import Pack

FILE_LIMIT = 16 * 1024 * 1024
"""Bytes of one file: some 100,000 cases."""


class ScenarioError(UsageError):
    """A scenario file that is wrong: unreadable, of another form, or naming something that is not there."""


class Loaded(NamedTuple):
    """A scenario with its packs read."""

    place: str
    scenario: Scenario
    listed: tuple[Listed, ...]


def load_file(path: Path) -> Loaded:
    """Read a scenario file: JSON where its name ends in .json, else YAML. Folders in it are relative to it.

    Raises ScenarioError naming the file and the place in it.
    """
    place = str(path)
    try:
        raw = read_regular(path, FILE_LIMIT)
    except OSError as error:
        raise ScenarioError(place, error.strerror or "cannot be read", "name a scenario file") from None
    if len(raw) > FILE_LIMIT:
        raise ScenarioError(place, f"over the limit of {FILE_LIMIT} bytes", "split it into several files")
    return load(_document(raw, place, is_json=path.suffix == ".json"), place, path.parent)


def load(document: Any, place: str, folder: Path) -> Loaded:
    """Make a scenario of a parsed document; `place` names it in errors. Raises ScenarioError."""
    try:
        scenario = fit(Scenario, document)
    except Misfit as misfit:
        raise _wrong(place, misfit.at, misfit.reason) from None
    listed = _named(scenario, _read_packs(scenario, place, folder))
    _Names(scenario, place, listed).check()
    return Loaded(place, scenario, tuple(listed))


def _document(raw: bytes, place: str, *, is_json: bool) -> Any:
    try:
        return parse(raw, limit=FILE_LIMIT, what=place) if is_json else parse_yaml(raw.decode())
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{place} byte {error.start}", "not UTF-8", "save it as UTF-8") from None
    except DoorError as error:
        raise ScenarioError(error.place, error.reason, error.way_out) from None
    except YamlFault as fault:
        raise ScenarioError(f"{place} line {fault.line}", fault.reason, fault.way_out) from None


def _read_packs(scenario: Scenario, place: str, folder: Path) -> list[Listed]:
    listed: list[Listed] = []
    good: dict[str, Pack] = {}
    for at, source in enumerate(scenario.packs):
        try:
            one = read_listed(source, folder, good)
        except UsageError as error:
            raise _wrong(place, ["packs", at], f"{error.place}: {error.reason}") from None
        twin = next((seen for seen, other in enumerate(listed) if one.pack_id and other.pack_id == one.pack_id), None)
        if twin is not None:
            raise _wrong(place, ["packs", at], f"the pack {one.pack_id!r} is packs[{twin}] already; list it once")
        if one.pack is not None:
            good[one.pack.pack_id] = one.pack
        listed.append(one)
    return listed


def _named(scenario: Scenario, listed: list[Listed]) -> list[Listed]:
    """Give packs that hold no readable id the names that no other pack has, those of `rejected` first.

    Their grants, activations and routes stay valid names (DESIGN §10).
    """
    activated = [row.pack for row in scenario.activations.values()]
    routed = [row.pack for row in scenario.routes.values()]
    wanted = dict.fromkeys([*scenario.rejected, *scenario.lint, *activated, *routed])
    known = {one.pack_id for one in listed}
    free = (name for name in wanted if name not in known)
    return [one._replace(pack_id=next(free, None)) if one.pack_id is None else one for one in listed]


def _wrong(place: str, at: Iterable[str | int], reason: str) -> ScenarioError:
    return ScenarioError(f"{place} {pointer(list(at))}".rstrip(), reason, "see docs/scenarios.md")


def _projects(scenario: Scenario) -> set[str]:
    """Return every project that a row names: a step may join it, also as its first member."""
    people = {project for person in scenario.principals.values() for project in person.projects}
    rows = {row.project for row in scenario.activations.values()} | {row.project for row in scenario.grants}
    routes = (row.sink for row in scenario.routes.values())
    sinks = {sink.project for sink in routes if isinstance(sink, ProjectSink)}
    return {*scenario.projects, *people, *filter(None, rows), *sinks}


_Named = tuple["list[str | int]", str, Any, str]
"""Where a name stands, the name, what is known, and what it should be."""


class _Names:
    """Every name above `cases`, and every name in a step, stands for something."""

    def __init__(self, scenario: Scenario, place: str, listed: Iterable[Listed]) -> None:
        self._scenario = scenario
        self._place = place
        self._sessions = {*scenario.principals, *scenario.sessions}
        self._activations = set(scenario.activations)
        self._packs = {one.pack_id for one in listed if one.pack_id}
        self._unread = [(at, one.error) for at, one in enumerate(listed) if one.files is None]
        self._projects = _projects(scenario)
        self._cases: dict[str, int] = {}
        self._doubled: dict[str, int] = {}

    def check(self) -> None:
        """Raise ScenarioError for the first name that stands for nothing, or for two sessions."""
        for name in self._scenario.sessions.keys() & self._scenario.principals.keys():
            raise _wrong(self._place, ["sessions", name], "a principal's own session has this name")
        for at, name, known, what in self._named():
            if name not in known:
                causes = self._unread if what == "pack" else []
                why = "".join(f"; packs[{one}] was refused: {error}" for one, error in causes)
                raise _wrong(self._place, at, f"there is no {what} {name!r} in this scenario{why}")

    def _named(self) -> Iterator[_Named]:
        one, people = self._scenario, self._scenario.principals
        for section in ("rejected", "lint"):
            for name in getattr(one, section):
                yield [section, name], name, self._packs, "pack"
        for name, session in one.sessions.items():
            yield ["sessions", name, "principal"], session.principal, people, "principal"
        for at, grant in enumerate(one.grants):
            yield from self._of_grant(["grants", at], grant)
        for name, activation in one.activations.items():
            yield from self._of_activation(["activations", name], activation)
        for name, route in one.routes.items():
            yield ["routes", name, "principal"], route.principal, people, "principal"
            yield ["routes", name, "pack"], route.pack, self._packs, "pack"
        for at, pair in enumerate(one.connected):
            yield from self._of_pair(["connected", at], pair)
        yield from self._of_cases()

    def _of_cases(self) -> Iterator[_Named]:
        for index, case in enumerate(self._scenario.cases):
            if isinstance(case, StepCase):
                yield from self._of_step(["cases", index, "step"], *case.step.change)
            elif isinstance(case, AgainCase):
                yield ["cases", index, "again"], case.again, self._cases, "earlier sense case"
                if case.again in self._doubled:
                    first, second = self._cases[case.again], self._doubled[case.again]
                    reason = f"cases[{first}] has the name {case.again!r} too, and `again` names it; give it another"
                    raise _wrong(self._place, ["cases", second, "name"], reason)
            elif isinstance(case, SenseCase) and case.name is not None:
                (self._doubled if case.name in self._cases else self._cases).setdefault(case.name, index)

    def _of_grant(self, at: list[str | int], grant: GrantRow) -> Iterator[_Named]:
        # A grant may be for a pack that is not here, as in a tenant: `grant add` asks for no installed pack either.
        yield [*at, "principal"], grant.principal, self._scenario.principals, "principal"

    def _of_activation(self, at: list[str | int], row: ActivationRow) -> Iterator[_Named]:
        word = "session" if row.session is not None else "principal"
        known = self._sessions if row.session is not None else self._scenario.principals
        yield [*at, word], row.on, known, word
        yield [*at, "pack"], row.pack, self._packs, "pack"

    def _of_pair(self, at: list[str | int], pair: str) -> Iterator[_Named]:
        principal, _, pack = pair.partition("/")
        yield at, principal, self._scenario.principals, "principal"
        yield at, pack, self._packs, "pack"

    def _of_step(self, at: list[str | int], change: str, about: Any) -> Iterator[_Named]:
        at = [*at, change]
        if isinstance(about, GrantRow):
            yield from self._of_grant(at, about)
        elif isinstance(about, NamedActivation):
            yield from self._of_activation(at, about)
            self._activations.add(about.name)
        elif isinstance(about, Membership):
            yield [*at, "principal"], about.principal, self._scenario.principals, "principal"
            yield [*at, "project"], about.project, self._projects, "project"
        elif change in ("connect", "disconnect"):
            yield from self._of_pair(at, about)
        elif change in ("disable", "enable"):
            yield at, about, self._scenario.principals, "principal"
        elif change == "revoke_session":
            yield at, about, self._sessions, "session"
        elif change == "deactivate":
            yield at, about, self._activations, "activation"
        elif change == "remove":
            yield at, about, self._packs, "pack"
        elif isinstance(about, PackSource):
            self._packs.add(id_of(about) or "")
