"""surface.json: identity, adapter, Binding, commands and triggers of a pack (§1.2, DESIGN §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from runtime_core.adapters.openapi_plan import faults
from runtime_core.closed import Closed
from runtime_core.exact_json import pointer
from runtime_core.lint_wrap import wrap_faults
from runtime_core.manifest_models import (
    ABSENT,
    AnyAdapter,
    Binding,
    Lasting,
    Name,
    PackId,
    Sandbox,
    StimulusTrigger,
    Verb,
)
from runtime_core.pack_file import FILE_NAMES, faulty, read_document, read_model

if TYPE_CHECKING:
    from collections.abc import Iterator


_PUBLIC = Binding(mode="public", hub="none")
_Fault = tuple["list[str | int]", str]
"""The steps to a place, and the reason."""
_OWN_FIELDS = (("cli", "cli", "wrap"), ("steps", "steps", "composite"), ("operation_id", "operationId", "openapi"))
"""Fields of a command that belong to one kind of adapter: attribute, name in the file, kind."""


class Manifest(Closed):
    """The whole file. Unknown fields at its top are tolerated with a warning; everything below is closed."""

    model_config = ConfigDict(extra="allow")

    id: PackId
    version: Annotated[str, Field(min_length=1, max_length=64)] = "0.0.0"
    """Shown to people; a revision is told by its digest."""
    title: str = ""
    plane: Literal["runtime", "control"] = "runtime"
    family: PackId = ""
    """The packs that share one consent (§1.4.family); empty: the pack alone."""
    adapter: AnyAdapter
    binding: Binding = _PUBLIC
    sandbox: Sandbox = Sandbox()
    verbs: dict[Name, Verb] = Field(default_factory=dict)
    stimulus_triggers: Annotated[tuple[StimulusTrigger, ...], Lasting] = Field(default=(), alias="stimulusTriggers")
    allowed_subcommands: Any = Field(default=ABSENT, alias="allowedSubcommands")
    max_argv: Any = Field(default=ABSENT, alias="maxArgv")

    @property
    def bin(self) -> str:
        """The plain name of the binary that a wrap adapter runs; the operator allows it by path."""
        return self.adapter.bin or self.id

    @property
    def unknown(self) -> dict[str, Any]:
        """The tolerated fields at the top, as written."""
        return self.model_extra or {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each tolerated field, in file order, and for what keeps a command from working as declared."""
        found: list[_Fault] = [([name], "unknown field, ignored") for name in self.unknown]
        if self.adapter.kind == "openapi":
            found += faults(self)
        if self.adapter.kind == "wrap":
            found += wrap_faults(self)
        return tuple(f"{FILE_NAMES['surface']} {pointer(place)}: {reason}" for place, reason in found)


def parse_manifest(raw: bytes) -> Manifest:
    """Return the manifest, its schemas compiled; raises PackParseError with file `surface`, place and reason."""
    manifest = read_model(Manifest, "surface", read_document("surface", raw))
    faults = list(_kind_faults(manifest))
    if faults:
        raise faulty("surface", faults)
    return manifest


def _kind_faults(manifest: Manifest) -> Iterator[_Fault]:
    """Yield what does not belong to this kind of adapter, and what it misses."""
    adapter, kind = manifest.adapter, manifest.adapter.kind
    for field, owner in (("bin", "wrap"), ("document", "openapi")):
        if field in adapter.model_fields_set and kind != owner:
            yield ["adapter", field], f"belongs to adapters of kind {owner}, not {kind}"
    if kind == "openapi" and not adapter.document:
        yield ["adapter", "document"], "required field is missing"
    if kind == "sense_only" and manifest.verbs:
        yield ["verbs"], "a sense_only pack has no commands"
    for key, verb in manifest.verbs.items():
        for attribute, name, owner in _OWN_FIELDS:
            if attribute in verb.model_fields_set and kind != owner:
                yield ["verbs", key, name], f"belongs to adapters of kind {owner}, not {kind}"
        if kind == "composite" and not verb.steps:
            yield ["verbs", key, "steps"], "a composite command has at least one step"
        if kind == "openapi" and not verb.operation_id:
            yield ["verbs", key, "operationId"], "required field is missing"
        yield from _step_faults(key, verb)


def _step_faults(key: str, verb: Verb) -> Iterator[_Fault]:
    for index, step in enumerate(verb.steps):
        for name, value in step.args.items():
            earlier = value.get("$step") if isinstance(value, dict) else None
            if earlier is not None and earlier[0] >= index:
                place: list[str | int] = ["verbs", key, "steps", index, "args", name]
                yield place, f"step {earlier[0]} has not run before step {index}"
