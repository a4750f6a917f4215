"""`schema`: the JSON Schema 2020-12 of each document that people write, for editors and other languages.

Made from the models that read the documents. What a document may be and its schema cannot say, the parser alone says:

- all: keys that stand twice, size, nesting, encoding, integers outside 64 bit, NUL; and that 1.0 is not 1;
- moments: that the day is in the calendar, that a leap second ends a month, that a scenario ends before the year 5138;
- manifest: fields that belong to one kind of adapter only, steps that refer to later steps, references that leave a
  JSON Schema; everything that `pack lint` looks for;
- scenario: that names stand for something, that each case has one kind, that packs and their folders can be read.
"""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sense_worker.cli.values import example

if TYPE_CHECKING:
    from pydantic import BaseModel


class Document(StrEnum):
    """What people write."""

    POLICY = "policy"
    MANIFEST = "manifest"
    EVENT = "event"
    SCENARIO = "scenario"


_ABOUT: Final = {
    Document.POLICY: ("policy.json", "Operation, land and confirm of every command and trigger of a pack (HCP §4)."),
    Document.MANIFEST: ("surface.json", "Identity, adapter, binding, commands and triggers of a pack (HCP §1)."),
    Document.EVENT: ("Event body", "What an adapter announces: field `b` of a stream entry (docs/wire.md)."),
    Document.SCENARIO: ("Scenario", "A policy with its people and its cases, for `sense-worker check`."),
}


def register(app: typer.Typer, *, panel: str) -> None:
    """Add the command."""
    app.command(rich_help_panel=panel, epilog=example("schema policy"))(schema)


def schema(document: Annotated[Document, typer.Argument(metavar="DOCUMENT", help=", ".join(Document))]) -> None:
    """Print the JSON Schema 2020-12 of a policy, a manifest, an event body or a scenario."""
    sys.stdout.write(json.dumps(schema_of(document), indent=2) + "\n")


def schema_of(document: Document) -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of a document, closed where its parser is; it fetches nothing."""
    from runtime_core.event import BODY_SCHEMA
    from runtime_core.manifest import Manifest
    from runtime_core.policy import Policy
    from runtime_core.schemas import DIALECT
    from sense_worker.scenario.model import Scenario

    models: dict[Document, type[BaseModel]] = {
        Document.POLICY: Policy,
        Document.MANIFEST: Manifest,
        Document.SCENARIO: Scenario,
    }
    body = BODY_SCHEMA if document is Document.EVENT else _of_model(models[document])
    title, description = _ABOUT[document]
    return {"$schema": DIALECT, **body, "title": title, "description": description}


def _of_model(model: type[BaseModel]) -> dict[str, Any]:
    from pydantic.json_schema import GenerateJsonSchema

    class Plain(GenerateJsonSchema):
        """As the parser reads: null is never absent, and a key outside its pattern is refused."""

        ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012 - pydantic's attribute

        def field_title_should_be_set(self, schema: Any) -> bool:
            del schema
            return False

        def nullable_schema(self, schema: Any) -> dict[str, Any]:
            return self.generate_inner(schema["schema"])

        def dict_schema(self, schema: Any) -> dict[str, Any]:
            found = super().dict_schema(schema)
            if "patternProperties" in found:
                found["additionalProperties"] = False
            return found

        def default_schema(self, schema: Any) -> dict[str, Any]:
            found = super().default_schema(schema)
            if not found.get("default", True) and found["default"] is not False:
                del found["default"]  # nothing, as the absent field is
            return found

    return model.model_json_schema(schema_generator=Plain)
