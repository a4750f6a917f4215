"""The parts of surface.json (DESIGN §5): closed models, one for each object of the manifest profile."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
)

from runtime_core.closed import Closed, whole
from runtime_core.event import NAME, PACK_ID
from runtime_core.exact_json import shown
from runtime_core.schemas import ANY_OBJECT, DIALECT, NO_PROPERTIES, Schema, compile_schema

RESERVED_ARGS = frozenset({"confirm", "apply"})
"""Args that belong to the runtime: taken out before args are validated (§4.5.2)."""

ABSENT: Final = ()
"""The default of a field whose presence counts whatever it holds: no JSON value is a tuple."""

_BIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}", re.ASCII)
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_TIMEOUT_LIMIT_S = 86_400
"""A command that runs longer than a day is not one command."""
_OUTPUT_LIMIT = 64 * 1024 * 1024
"""The adapter holds the whole output in memory."""


def _matching(pattern: re.Pattern[str], rule: str) -> AfterValidator:
    def check(value: str) -> str:
        if pattern.fullmatch(value) is None:
            raise ValueError(f"must be {rule}")
        return value

    return AfterValidator(check)


_NAME_RULE = "1 to 128 letters, digits, dots, dashes and underscores, a letter or digit first"
_PACK_RULE = "1 to 128 of a-z, 0-9, dot, dash and underscore, a letter or digit first"
_BIN_RULE = "the plain name of a binary, no path; the operator says where it is"
Name = Annotated[str, _matching(NAME, _NAME_RULE), whole(NAME)]
PackId = Annotated[str, _matching(PACK_ID, _PACK_RULE), whole(PACK_ID)]
BinName = Annotated[str, _matching(_BIN, _BIN_RULE), whole(_BIN)]
EnvName = Annotated[str, _matching(_ENV, "the name of an environment variable"), whole(_ENV)]
HeaderName = Annotated[str, _matching(_HEADER, "the name of an HTTP header"), whole(_HEADER)]
Lasting = Field(strict=False)
"""On a tuple: JSON has lists, and a frozen model keeps them as tuples; the items stay strict."""

CompiledSchema = Annotated[Schema, PlainValidator(compile_schema), WithJsonSchema({"$ref": DIALECT})]


_Kind = Literal["wrap", "composite", "openapi", "sense_only"]


class Adapter(Closed):
    """How commands reach the world (§1.5); `"wrap"` is short for `{"kind": "wrap"}`.

    `bin` belongs to wrap and stands for the pack id where it is absent; `document` to openapi. `allowedSubcommands` and
    `maxArgv` are the pass-through of HCP/1.1: known here so that lint reports them (§1.5.passthrough).
    """

    kind: _Kind
    bin: BinName = ""
    document: dict[str, Any] | str = ""
    allowed_subcommands: Any = Field(default=ABSENT, alias="allowedSubcommands")
    max_argv: Any = Field(default=ABSENT, alias="maxArgv")


class Binding(Closed):
    """The credential mode and the hub that mints it (§1.4); `env` and `headers` say where minted fields go."""

    mode: Literal["public", "user", "local", "mothership", "mock"]
    hub: Literal["keyring", "local-credential", "public", "none"]
    env: dict[EnvName, str] = Field(default_factory=dict)
    headers: dict[HeaderName, str] = Field(default_factory=dict)


class Sandbox(Closed):
    """How a wrapped binary runs (§1.5.sandbox); `native-local` is the explicit opt-out. `env` is passed through."""

    posture: Literal["sandbox", "native-local"] = "sandbox"
    bins: Annotated[tuple[BinName, ...], Lasting] = ()
    timeout_s: Annotated[float, Field(gt=0, le=_TIMEOUT_LIMIT_S)] = 30.0
    output_limit: Annotated[int, Field(gt=0, le=_OUTPUT_LIMIT)] = 1024 * 1024
    """Bytes."""
    env: Annotated[tuple[EnvName, ...], Lasting] = ()


class Flag(Closed):
    """A flag that stands in the argv when the arg `when` is true; `host`: for the runtime, not passed on."""

    flag: Annotated[str, Field(min_length=1)]
    when: Annotated[str, Field(min_length=1)]
    host: bool = False


def _kind_of_element(value: object) -> str | None:
    if isinstance(value, str):
        return "(element)"
    if isinstance(value, list):
        return "(group)"
    return "(flag)" if isinstance(value, dict) else None


CliElement = Annotated[
    Annotated[str, Tag("(element)")]
    | Annotated[tuple[str, ...], Field(strict=False, min_length=1), Tag("(group)")]
    | Annotated[Flag, Tag("(flag)")],
    Discriminator(
        _kind_of_element,
        custom_error_type="cli_element",
        custom_error_message='must be text, a list of text, or {"flag", "when"}',
    ),
]
"""A string is one argv element, a tuple a group that is left out where an arg of it is absent."""


def _references(args: dict[str, Any]) -> dict[str, Any]:
    """Check the form of `{"$arg": NAME}` and `{"$step": [INDEX, KEY…]}`."""
    for name, value in args.items():
        if isinstance(value, dict) and value.keys() & {"$arg", "$step"} and not _is_reference(value):
            raise ValueError(f'{shown(name)} must be {{"$arg": "name"}} or {{"$step": [0, "path"]}} and nothing else')
    return args


def _is_reference(value: dict[str, Any]) -> bool:
    if value.keys() == {"$arg"}:
        return isinstance(value["$arg"], str) and bool(value["$arg"])
    path = value.get("$step")
    if len(value) != 1 or not isinstance(path, list) or not path:
        return False
    return type(path[0]) is int and path[0] >= 0 and all(type(key) in {str, int} for key in path)


_LITERAL = {"not": {"type": "object", "anyOf": [{"required": ["$arg"]}, {"required": ["$step"]}]}}
_ARG = {"properties": {"$arg": {"type": "string", "minLength": 1}}, "required": ["$arg"], "maxProperties": 1}
_PATH = {"type": "array", "prefixItems": [{"type": "integer", "minimum": 0}], "minItems": 1}
_PATH["items"] = {"type": ["string", "integer"]}
_EARLIER = {"properties": {"$step": _PATH}, "required": ["$step"], "maxProperties": 1}
_ARGS = {"type": "object", "additionalProperties": {"anyOf": [_LITERAL, _ARG, _EARLIER]}}
"""What `_references` checks, in JSON Schema."""


class Step(Closed):
    """One command of a composite; without `pack_id` it is one of the same pack."""

    pack_id: PackId = ""
    verb_key: Name
    args: Annotated[dict[str, Any], AfterValidator(_references), WithJsonSchema(_ARGS)] = Field(default_factory=dict)


class Verb(Closed):
    """One command (§1.3); `cli` belongs to wrap, `steps` to composite, `operationId` to openapi."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    summary: str = ""
    args: CompiledSchema = NO_PROPERTIES
    connect: bool = False
    cli: Annotated[tuple[CliElement, ...], Lasting] = ()
    steps: Annotated[tuple[Step, ...], Lasting] = ()
    operation_id: Annotated[str, Field(min_length=1)] = Field(default="", alias="operationId")


class StimulusTrigger(Closed):
    """One trigger the pack may announce (§1.3)."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    ref: Name
    summary: str = ""
    data: CompiledSchema = ANY_OBJECT


def _long_form(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


AnyAdapter = Annotated[Adapter, BeforeValidator(_long_form, json_schema_input_type=_Kind | Adapter)]
