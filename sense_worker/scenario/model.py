"""The form of a scenario file, version 1 (DESIGN §10): closed models, one for each kind of row, case and step.

The sections above `cases` are rows as given. What stands inside a case is not judged here: it goes to the product's own
doors, which is what a case is for.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from runtime_core.closed import Closed, VersionOne, found, whole
from runtime_core.event import MOMENT, is_moment
from runtime_core.grants import ANY_PACK, Capability

if TYPE_CHECKING:
    from runtime_core.identity import Micros

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HORIZON: Micros = 100_000_000_000_000_000
"""The year 5138: signed-at has at most 11 digits, so no scenario goes further."""
_SPAN = re.compile(r"([+-])([0-9]{1,9})(s|m|h|d)", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NAME_LIMIT = 256

Lasting = Field(strict=False)
"""On a tuple: JSON and YAML have lists."""
Name = Annotated[str, StringConstraints(min_length=1, max_length=_NAME_LIMIT)]


def micros(moment: str) -> Micros:
    """Return a moment in RFC 3339 as microseconds since the epoch."""
    return (datetime.fromisoformat(moment.upper()) - EPOCH) // timedelta(microseconds=1)


def span(text: str) -> Micros:
    """Return the microseconds of `+2h`, `-30s`, `+400s` or `+7d`."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ValueError(f"not {found(text)}; write +90s, +15m, +12h or +30d")
    return int(f"{match[1]}{int(match[2]) * _UNITS[match[3]]}") * 1_000_000


def _a_moment(text: str) -> str:
    if not is_moment(text) or text[17:19] == "60":
        raise ValueError(f"not {found(text)}; write RFC 3339 with a zone, as 2026-06-01T12:00:00Z")
    if not 0 <= micros(text) < HORIZON:
        raise ValueError(f"not {found(text)}; write a moment of the years 1970 to 5138")
    return text


def _a_span(text: str) -> str:
    span(text)
    return text


def _an_end(text: str) -> str:
    return text if is_moment(text) and text[17:19] != "60" else _a_span(text)


Moment = Annotated[str, AfterValidator(_a_moment), whole(MOMENT)]
Span = Annotated[str, AfterValidator(_a_span), whole(_SPAN)]
End = Annotated[str, AfterValidator(_an_end), whole(re.compile(f"{MOMENT.pattern}|{_SPAN.pattern}"))]
"""A moment, or a span from the moment at which the row is made."""


class Part(Closed):
    """A part of a scenario. Null is never absent (DESIGN §4): where a value may be anything, it is a value."""

    @model_validator(mode="after")
    def _null_is_not_absent(self) -> Self:
        for name in self.model_fields_set:
            if getattr(self, name) is None and type(self).model_fields[name].annotation is not Any:
                raise ValueError(f"{name} is null; leave it out")
        return self


def _or(*names: str) -> dict[str, Any]:
    """Return, in JSON Schema, that exactly one of the fields is there."""
    return {"oneOf": [{"required": [name]} for name in names]}


def _either(rule: str) -> Discriminator:
    """Choose between text and an object by what is there, so that a fault is one of the form that was meant."""

    def kind(value: Any) -> str | None:
        if isinstance(value, str):
            return "(text)"
        return "(object)" if isinstance(value, dict | Part) else None

    return Discriminator(kind, custom_error_type="either", custom_error_message=rule)


class PackSource(Part):
    """An inline pack: each of the two files as an object or as raw text."""

    model_config = ConfigDict(
        json_schema_extra={"allOf": [_or("surface", "surface_text"), _or("policy", "policy_text")]}
    )

    surface: Any = None
    policy: Any = None
    surface_text: str | None = None
    policy_text: str | None = None

    @model_validator(mode="after")
    def _each_once(self) -> PackSource:
        for file in ("surface", "policy"):
            if len(self.model_fields_set & {file, f"{file}_text"}) != 1:
                raise ValueError(f"an inline pack has either {file} or {file}_text")
        return self


class ProjectSink(Part):
    """A sink whose audience is one project."""

    project: Name


AnyPack = Annotated[
    Annotated[str, StringConstraints(min_length=1), Tag("(text)")] | Annotated[PackSource, Tag("(object)")],
    _either("must be a folder, or an inline pack"),
]
SinkWord = Annotated[
    Annotated[Literal["inbox", "workspace", "own", "tenant"], Tag("(text)")] | Annotated[ProjectSink, Tag("(object)")],
    _either("must be a sink's word, or {project: NAME}"),
]


class PrincipalRow(Part):
    """A principal, and the session named like it."""

    tenant: Name
    kind: str = "human"
    projects: Annotated[tuple[Name, ...], Lasting] = ()
    operator: bool = False
    expires: End | None = None
    """The end of the session named like the principal; absent: it has none within the scenario."""


class SessionRow(Part):
    """A further session."""

    principal: Name
    tenant: Name


class GrantRow(Part):
    """A grant in the tenant of its principal."""

    principal: Name
    capability: Capability = Field(strict=False)
    pack: Name = ANY_PACK
    keys: Annotated[tuple[Name, ...], Lasting] | None = None
    project: Name | None = None
    expires: End | None = None

    @property
    def same(self) -> tuple[Any, ...]:
        """What equal rows have in common: `keys` is a set, all else as written."""
        keys = None if self.keys is None else frozenset(self.keys)
        return self.principal, self.capability, self.pack, keys, self.project, self.expires


class ActivationRow(Part):
    """A pack on a session; `principal` names the session that is named like it."""

    model_config = ConfigDict(json_schema_extra=_or("session", "principal"))

    session: Name | None = None
    principal: Name | None = None
    pack: Name
    project: Name | None = None
    workspace: bool = False

    @model_validator(mode="after")
    def _one_session(self) -> ActivationRow:
        if (self.session is None) == (self.principal is None):
            raise ValueError("names either its session or its principal")
        return self

    @property
    def on(self) -> str:
        """The session's name."""
        return self.session or self.principal or ""


class RouteRow(Part):
    """A principal's wish to have a ref of a pack in a sink."""

    principal: Name
    pack: Name
    ref: Name
    sink: SinkWord


class NamedActivation(ActivationRow):
    """An activation made by a step."""

    name: Name


class Membership(Part):
    """A principal in a project."""

    principal: Name
    project: Name


class Sense(Part):
    """An announcement. `raw` stands in the place of the body's fields; null in `message` takes one away."""

    activation: Any
    ref: Any = None
    data: Any = None
    subject: Any = None
    id: Any = None
    hold: bool = False
    message: dict[str, Any] = Field(default_factory=dict)
    raw: str | None = None


class Exec(Part):
    """An exec envelope under a session. `raw` stands in the place of the envelope's fields."""

    activation: Any = None
    session: Any = None
    project: Any = None
    pack_id: Any = None
    verb_key: Any = None
    args: Any = None
    face: Literal["json", "cli"] = "json"
    envelope: dict[str, Any] = Field(default_factory=dict)
    raw: str | None = None


class Asked(Part):
    """Who asks about, or wants to install, which pack; the principal names its session."""

    principal: Any
    pack: Any


class Case(Part):
    """What all cases have."""

    name: Name | None = None


class SenseCase(Case):
    """Announce, and attempt every route at once unless `hold`."""

    sense: Sense
    expect: dict[str, Any]


class ExecCase(Case):
    """Run one command."""

    exec: Exec
    expect: dict[str, Any]


class InstallCase(Case):
    """Install one of the scenario's packs."""

    install: Asked
    expect: dict[str, Any]


class AvailableCase(Case):
    """Ask what of a pack may be used."""

    available: Asked
    expect: dict[str, Any]


class AgainCase(Case):
    """Attempt what is not delivered yet of an earlier case."""

    again: Name
    expect: dict[str, Any]


class Step(Part):
    """One change to the world."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    grant: GrantRow | None = None
    revoke: GrantRow | None = None
    join: Membership | None = None
    leave: Membership | None = None
    activate: NamedActivation | None = None
    deactivate: Name | None = None
    disable: Name | None = None
    enable: Name | None = None
    revoke_session: Name | None = None
    connect: Name | None = None
    disconnect: Name | None = None
    pause: SinkWord | None = None
    resume: SinkWord | None = None
    remove: Name | None = None
    replace: PackSource | None = None
    clock: Span | None = None

    @model_validator(mode="after")
    def _one_change(self) -> Step:
        if len(self.model_fields_set) != 1:
            raise ValueError("a step makes exactly one change")
        return self

    @property
    def change(self) -> tuple[str, Any]:
        """The name of the change, and what it is about."""
        name = next(iter(self.model_fields_set))
        return name, getattr(self, name)


class StepCase(Case):
    """Change the world."""

    step: Step


_KINDS = ("sense", "exec", "install", "available", "again", "step")
_ONE_KIND = "a case has exactly one of sense, exec, install, available, step, again"


def _kind(value: Any) -> str | None:
    # In brackets, so that the place of a fault never takes the name of a kind for the key of that name.
    if isinstance(value, Case):
        return next(f"({kind})" for kind in _KINDS if hasattr(value, kind))
    given = [kind for kind in _KINDS if kind in value] if isinstance(value, dict) else []
    return f"({given[0]})" if len(given) == 1 else None


def _of_one_kind(value: Any) -> Any:
    given = [kind for kind in _KINDS if kind in value] if isinstance(value, dict) else []
    if isinstance(value, dict) and len(given) != 1:
        has = f"has {' and '.join(given)}" if given else "has none of them"
        raise ValueError(f"{_ONE_KIND}; this one {has}")
    return value


AnyCase = Annotated[
    Annotated[SenseCase, Tag("(sense)")]
    | Annotated[ExecCase, Tag("(exec)")]
    | Annotated[InstallCase, Tag("(install)")]
    | Annotated[AvailableCase, Tag("(available)")]
    | Annotated[AgainCase, Tag("(again)")]
    | Annotated[StepCase, Tag("(step)")],
    Discriminator(
        _kind,
        custom_error_type="case_kind",
        custom_error_message=_ONE_KIND,
    ),
    BeforeValidator(_of_one_kind),
]


class Scenario(Part):
    """The whole file."""

    scenario: VersionOne
    now: Moment = "2026-06-01T12:00:00Z"
    packs: Annotated[tuple[AnyPack, ...], Lasting] = ()
    rejected: dict[Name, Literal["surface", "policy", "lint"]] = Field(default_factory=dict)
    lint: dict[Name, Annotated[tuple[str, ...], Lasting]] = Field(default_factory=dict)
    projects: dict[Name, Name] = Field(default_factory=dict)
    principals: dict[Name, PrincipalRow] = Field(default_factory=dict)
    sessions: dict[Name, SessionRow] = Field(default_factory=dict)
    grants: Annotated[tuple[GrantRow, ...], Lasting] = ()
    activations: dict[Name, ActivationRow] = Field(default_factory=dict)
    routes: dict[Name, RouteRow] = Field(default_factory=dict)
    connected: Annotated[tuple[Name, ...], Lasting] = ()
    cases: Annotated[tuple[AnyCase, ...], Lasting] = ()
