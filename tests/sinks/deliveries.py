"""Deliveries for the tests of the sinks, and reading back what was written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sinks.protocol import Delivery

if TYPE_CHECKING:
    from pathlib import Path

ACCEPTED_AT = 1_780_315_200_000_001
"""2026-06-01T12:00:00.000001Z."""


def delivery(number: int = 0, **fields: Any) -> Delivery:
    """Return a delivery of `commit.created`; `data` becomes the body, any other field stands for itself."""
    data = fields.pop("data", {"number": number})
    body = {"ref": "commit.created", "data": data, "occurred_at": "2026-06-01T13:59:59+02:00"}
    event_id = f"{number:032x}"
    standing = Delivery(
        id=f"{event_id}.rte_1",
        event_id=event_id,
        route_id="rte_1",
        tenant="acme",
        principal="ana",
        publisher="ben",
        project="apollo",
        pack_id="git",
        ref="commit.created",
        land="brain",
        subject="main",
        occurred_at="2026-06-01T13:59:59+02:00",
        accepted_at=ACCEPTED_AT,
        body=json.dumps(body, ensure_ascii=False).encode(),
        attempt=1,
        workspace=None,
        route_options={},
    )
    return standing._replace(**fields)


def numbers(path: Path) -> list[int]:
    """Return the numbers of the lines of a file, each of which has to be a whole JSON object."""
    content = path.read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line)["data"]["number"] for line in content.splitlines()]
