"""What a command of an openapi pack will send: its operation with the schemas compiled, or why it cannot be called."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from runtime_core.adapters.openapi_document import DocumentFault, read_document
from runtime_core.adapters.openapi_schema import compiled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runtime_core.adapters.openapi_document import Document, Operation
    from runtime_core.manifest import Manifest
    from runtime_core.manifest_models import Verb
    from runtime_core.schemas import Schema


class Plan(NamedTuple):
    """An operation with its schemas compiled."""

    operation: Operation
    checks: Mapping[tuple[str, str], Schema]
    """By name and place of the parameter."""
    body_check: Schema | None


def plan_of(manifest: Manifest, verb: Verb) -> Plan:
    """Return the plan of a command. Raises DocumentFault."""
    return _plan(read_document(manifest.adapter.document), manifest, verb)


def faults(manifest: Manifest) -> Iterator[tuple[list[str | int], str]]:
    """Yield place and reason of everything in a manifest of kind openapi that cannot be called."""
    try:
        document = read_document(manifest.adapter.document)
    except DocumentFault as fault:
        yield ["adapter", "document"], str(fault)
        return
    for key, verb in manifest.verbs.items():
        try:
            _plan(document, manifest, verb)
        except DocumentFault as fault:
            yield ["verbs", key, "operationId"], str(fault)


def _plan(document: Document, manifest: Manifest, verb: Verb) -> Plan:
    operation = document.operation(verb.operation_id)
    # What carries the credential is no arg; a connect command has none yet.
    carrying = set() if verb.connect else {name.lower() for name in manifest.binding.headers}
    parameters = tuple(one for one in operation.parameters if one.place != "header" or one.name.lower() not in carrying)
    checks = {}
    for one in parameters:
        check = compiled(document, one.schema, f"parameter {one.name!r}")
        if check is not None:
            checks[one.name, one.place] = check
    body = operation.body
    body_check = None if body is None else compiled(document, body.schema, "request body")
    return Plan(operation._replace(parameters=parameters), checks, body_check)
