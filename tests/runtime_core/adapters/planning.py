"""What the tests of documents and of requests share: a pack with one command, and what it plans or refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime_core.adapters.openapi_document import DocumentFault
from runtime_core.adapters.openapi_plan import plan_of
from runtime_core.adapters.openapi_request import RequestFault, build
from runtime_core.manifest import parse_manifest
from tests.runtime_core.adapters.calling import document

HOST = "https://api.test"
BOTH = pytest.mark.parametrize("version", ["3.0.0", "3.0.4", "3.1.0", "3.1.1"])


def manifest(found: Any, operation_id: str = "act") -> Any:
    """Return the manifest of a pack with one command."""
    adapter = {"kind": "openapi", "document": found}
    surface = {"id": "tools", "adapter": adapter, "verbs": {"tools.run": {"operationId": operation_id, "args": True}}}
    return parse_manifest(json.dumps(surface).encode())


def request(paths: dict[str, Any], args: dict[str, Any], version: str = "3.1.0", **more: Any) -> Any:
    """Return the request of the operation `act` for args."""
    read = manifest(document(HOST, paths, version, **more))
    return build(plan_of(read, read.verbs["tools.run"]), args)


def refused(paths: dict[str, Any], args: dict[str, Any], version: str = "3.1.0", **more: Any) -> str:
    """Return why args are refused."""
    with pytest.raises(RequestFault) as fault:
        request(paths, args, version, **more)
    return str(fault.value)


def unserved(found: Any, operation_id: str = "act") -> str:
    """Return why a document cannot be called; `pack lint` warns with the same words."""
    read = manifest(found, operation_id)
    with pytest.raises(DocumentFault) as fault:
        plan_of(read, read.verbs["tools.run"])
    (warning,) = read.warnings
    assert warning.endswith(f": {fault.value}")
    assert warning.startswith(("surface.json /adapter/document: ", "surface.json /verbs/tools.run/operationId: "))
    return str(fault.value)
