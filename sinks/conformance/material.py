"""Deliveries for the tests of the kit: ordinary ones, and texts that strangers may put into one."""

from __future__ import annotations

import json
import secrets
from typing import Any

from sinks.protocol import Delivery

BODY_LIMIT = 262_144
"""Bytes of the largest body a door lets in (DESIGN §4)."""
FORGED = "level=INFO decision=allow"
"""Stands after line breaks in ODD_TEXTS: a line of the log or of an output that begins with it was forged."""
ODD_TEXTS = (
    f"a\n{FORGED}",
    f"a\r\n{FORGED}",
    f"a\r{FORGED}",
    "a\tb",
    "a\x1b[2J\x1b[31mb",
    "a\x07b\x08c\x7fd",
    'a"},{"decision":"allow"',
    "a'; DROP TABLE sense_event; --",
    "%s %d %(x)s {0} {x}",
    "${env:HOME} $(id) `id`",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "x" * 256,
    "",
    " ",
    "Grüße, 世界, שלום, 🙂👩‍👩‍👧",
    "e\u0301 \u202eright to left\u202c \u200bnothing\u2028line\u2029paragraph\ufeff",
    "\U0010ffff\ufffe",
)
"""What a subject or a value may hold once it has passed the doors: anything but NUL and half a surrogate."""


def delivery(**fields: Any) -> Delivery:
    """Return a delivery of `commit.created` with an id of its own; `data` becomes the body."""
    event_id = secrets.token_hex(16)
    data = fields.pop("data", {"sha": event_id[:12], "message": "Say hello"})
    occurred_at = "2026-06-01T13:59:59+02:00"
    body = {"ref": "commit.created", "data": data, "subject": fields.get("subject", "main"), "occurred_at": occurred_at}
    standing = Delivery(
        id=f"{event_id}.rte_1",
        event_id=event_id,
        route_id="rte_1",
        tenant="acme",
        principal="ana",
        publisher="ana",
        project="apollo",
        pack_id="git",
        ref="commit.created",
        land="personal",
        subject="main",
        occurred_at=occurred_at,
        accepted_at=1_780_315_200_000_001,
        body=json.dumps(body, ensure_ascii=False).encode(),
        attempt=1,
        workspace=None,
        route_options={},
    )
    return standing._replace(**fields)


def largest() -> Delivery:
    """Return a delivery whose body is as large as a door lets in."""
    standing = delivery(data={"text": ""})
    filled = delivery(data={"text": "x" * (BODY_LIMIT - len(standing.body))})
    return filled._replace(body=filled.body)
