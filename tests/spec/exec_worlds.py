"""A world in memory for one command `mail.act`, in which every slot can be wrong; its ports tell what reached them."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.adapters.composite import CompositeAdapter
from runtime_core.binding import HubUnavailable, NotConnected
from runtime_core.envelope import Envelope
from runtime_core.errors import AuditUnavailable
from runtime_core.execution import ExecFacts, execute
from runtime_core.grants import Grant
from runtime_core.identity import Activation, Credential, Principal, Session
from runtime_core.memory import MemoryAudit, MemoryAuthority
from runtime_core.pack import Pack, PackRevision, read_pack
from runtime_core.runtime import Ran, Runtime
from tests.spec.documents import entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_core.audit import AuditRecord
    from runtime_core.execution import Call

NOW = 1_780_000_000_000_000
HOUR = 3_600_000_000
N_ARGS = {"type": "object", "properties": {"n": {"type": "integer"}}}
LEAF = {"pack_id": "leaves", "verb_key": "leaf.read"}
INNER: dict[str, dict[str, Any]] = {
    "inner": {
        "inner.half": {"steps": [LEAF] * 20},
        "inner.d1": {"steps": [{"verb_key": "inner.d2"}]},
        "inner.d2": {"steps": [{"verb_key": "inner.d3"}]},
        "inner.d3": {"steps": [{"verb_key": "inner.d4"}]},
        "inner.d4": {"steps": [LEAF]},
    },
    "leaves": {"leaf.read": {}},
}
"""What the steps run: `half` is 20 commands, `d1` four composites deep. Lint of `mail` has not seen these packs."""
STEPS = {"one": ["inner.half"], "wide": ["inner.half", "inner.half"], "deep": ["inner.d1"]}
"""The steps of `mail.act` where it is a composite: within the limits, over 32 commands, over 4 deep."""


class Outcome(NamedTuple):
    """What came of a command, and what it reached."""

    error: str | None
    asked: int
    """How often the hub was asked for a credential."""
    minted: int
    entered: int
    lines: list[tuple[str, bool, str | None]]
    """Action, ok and reason of each line of the audit."""


class RecordingHub:
    """Gives a credential to whoever is connected, unless it is locked."""

    def __init__(self, *, connected: bool = True, locked: bool = False) -> None:
        self.asked = self.minted = 0
        self._connected = connected
        self._locked = locked

    def connected(self, _: object) -> bool:
        return self._connected

    def mint(self, _: object) -> tuple[str, dict[str, str]]:
        self.asked += 1
        if self._locked:
            raise HubUnavailable
        if not self._connected:
            raise NotConnected
        self.minted += 1
        return "ana@service", {"secret": "kept"}

    def keep(self, *_: object) -> None:
        if self._locked:
            raise HubUnavailable


class RecordingAdapter:
    """Counts what it was entered with; a connect command answers a credential."""

    def __init__(self) -> None:
        self.entered: list[str] = []

    def run(self, call: Call, runtime: object) -> Ran:
        del runtime
        self.entered.append(call.chosen.key)
        return Ran({"identity": "ana@service", "secret": "kept"} if call.chosen.verb.connect else {})


class AwayAudit:
    """An audit whose disk is full."""

    records: list[AuditRecord]

    def __init__(self) -> None:
        self.records = []

    def probe(self) -> None:
        raise AuditUnavailable("audit", "is full", "make room")

    def append(self, _: Sequence[AuditRecord]) -> None:
        raise AuditUnavailable("audit", "is full", "make room")


def outcome(slots: dict[str, Any]) -> Outcome:
    """Return what comes of ana's `mail.act` in the world of these slots; what is left open is as it should be."""
    rows = MemoryAuthority()
    _people(rows, slots)
    _packs(rows, slots)
    hub = RecordingHub(connected=slots.get("connected", True), locked=slots.get("hub") == "locked")
    adapter = RecordingAdapter()
    audit = AwayAudit() if slots.get("audit") == "away" else MemoryAudit()
    runtime = Runtime(
        authority=rows.snapshot,
        audit=audit,
        hubs={} if slots.get("hub") == "absent" else {"keyring": hub},
        adapters={"wrap": adapter, "composite": CompositeAdapter()},
        now=lambda: NOW,
        may_begin=lambda _: slots.get("may_begin", True),
    )
    args = {"n": "x" if slots.get("args") == "wrong" else 1}
    given: dict[str, Any] = {"confirm": True} if slots.get("confirmed", True) else slots.get("instead", {})
    facts = ExecFacts("acme", "s1", _asked_project(slots), Envelope("mail", "mail.act", {**args, **given}), "request-1")
    answer = execute(runtime, facts).envelope()
    lines = [(one.action, one.ok, one.reason) for one in audit.records]
    return Outcome(answer.error, hub.asked, hub.minted, len(adapter.entered), lines)


def _asked_project(slots: dict[str, Any]) -> str | None:
    if slots.get("activation") == "of another project":
        return "zeus"
    project: str | None = slots.get("project", "apollo")
    return project


def _people(rows: MemoryAuthority, slots: dict[str, Any]) -> None:
    disabled = slots.get("principal")
    if disabled != "gone":
        operator = slots.get("operator", True)
        rows.put_principal(Principal("acme", "ana", "human", operator=operator, disabled=disabled == "disabled"))
    expires_at = NOW - 1 if slots.get("expired") else NOW + HOUR
    rows.put_session(Session("s1", "acme", "ana", expires_at, revoked=slots.get("session") == "revoked"))
    if slots.get("member", True):
        rows.join("acme", "apollo", "ana")
    for capability, slot in (
        ("pack.connect", "may_connect"),
        ("verb.exec.read", "may_run"),
        ("verb.exec.write", "may_run"),
    ):
        held = slots.get(slot, "yes")
        if held != "no":
            keys = ("mail.other",) if held == "another key" else None
            expires = NOW if held == "expired" else None
            rows.put_grant(Grant(f"g-{capability}", "acme", "ana", capability, "mail", keys, None, expires))
    for pack_id in INNER:
        rows.put_grant(Grant(f"g-{pack_id}", "acme", "ana", "verb.exec.read", pack_id, None, None, None))


def _packs(rows: MemoryAuthority, slots: dict[str, Any]) -> None:
    binding = (slots.get("mode", "user"), "keyring")
    shape = (
        *(slots.get("land", "personal"), slots.get("operation", "read"), slots.get("plane", "runtime")),
        *(slots.get("gated", False), slots.get("connect", False), slots.get("declared", True), slots.get("steps")),
    )
    if slots.get("installed", True):
        rows.put_revision(PackRevision("acme", 1, _mail(binding, *shape), {}))
    for pack_id in INNER:
        rows.put_revision(PackRevision("acme", 1, _inner(pack_id), {}))
    standing = slots.get("activation", "yes")
    project = slots.get("project", "apollo")
    workspace = "/srv/work" if slots.get("workspace", True) else None
    for pack_id in ("mail", *INNER):
        if standing != "none" or pack_id != "mail":
            place = (pack_id, project, workspace, standing == "revoked" and pack_id == "mail")
            rows.put_activation(Activation(f"a-{pack_id}", "acme", "s1", *place, Credential(b"x")))


@cache
def _mail(
    binding: tuple[str, str],
    land: str,
    operation: str,
    plane: str,
    gated: bool,
    connect: bool,
    declared: bool,
    steps: str | None,
) -> Pack:
    verb: dict[str, Any] = {"args": N_ARGS, "connect": connect}
    if steps is not None:
        verb["steps"] = [{"pack_id": "inner", "verb_key": key} for key in STEPS[steps]]
    rule = entry(land, operation, **({"confirm": True} if gated else {}))
    other = {"mail.other": {} if steps is None else {"steps": [LEAF]}}
    surface = {
        "id": "mail",
        "version": "1.0.0",
        "plane": plane,
        "adapter": "wrap" if steps is None else "composite",
        "binding": {"mode": binding[0], "hub": binding[1]},
        "verbs": {**other, **({"mail.act": verb} if declared else {})},
    }
    verbs = {"mail.other": entry(), **({"mail.act": rule} if declared else {})}
    return _pack(surface, {"surface_id": "mail", "version": 1, "verbs": verbs})


@cache
def _inner(pack_id: str) -> Pack:
    verbs = INNER[pack_id]
    surface = {"id": pack_id, "version": "1.0.0", "verbs": verbs, "binding": {"mode": "public", "hub": "none"}}
    surface["adapter"] = "composite" if pack_id == "inner" else "wrap"
    return _pack(surface, {"surface_id": pack_id, "version": 1, "verbs": {key: entry() for key in verbs}})


def _pack(surface: dict[str, Any], policy: dict[str, Any]) -> Pack:
    return read_pack(json.dumps(surface).encode(), json.dumps(policy).encode(), b"# Mail\n")
