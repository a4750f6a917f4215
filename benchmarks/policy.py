"""The policy step alone: SENSE_GATES for one delivery after another, with 10,000 grants loaded.

Three rates of one core: every gate walked for every delivery; decisions as the worker makes them, kept with their
snapshot; and every gate walked after the event's signature was verified, as for a first delivery.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.world import HARNESS, REF, data, policy_bytes, surface_bytes
from runtime_core.grants import Grant
from runtime_core.identity import Activation, Credential, Principal, Route, Session, Sink
from runtime_core.memory import MemoryAuthority
from runtime_core.pack import PackRevision, read_pack
from runtime_core.pipeline import Facts, attempt, decide, judge
from runtime_core.signing import verify
from sense_worker.wire import Entry, build_entry, parse_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_core.authority import Authority
    from runtime_core.pipeline import Attempt

TENANT, PROJECT = "bench", "apollo"
NOW = 1_800_000_000_000_000
PRINCIPALS, GRANTS_EACH = 1_000, 10
SLICE_S = 0.1
"""Seconds of CPU in one sample; the result is the median, because a neighbour's burst is no part of the step."""


@dataclass(frozen=True, slots=True)
class Case:
    """One event for one route of a principal, as the door makes it: from the rows of the snapshot."""

    authority: Authority
    facts: Facts
    route: Route
    activation: Activation
    wire: Entry


def world(land: str) -> list[Case]:
    """Return one case for each of 1,000 principals of one project, who hold 10 grants each, against one snapshot."""
    rows = MemoryAuthority()
    pack = read_pack(surface_bytes(), policy_bytes(land), HARNESS)
    rows.put_revision(PackRevision(TENANT, 1, pack, {}))
    rows.put_sink(Sink(TENANT, "inbox", "inbox", "tenant", None, partitioned=True, workspace=False, held=None))
    for number in range(PRINCIPALS):
        _principal(rows, number)
    authority = rows.snapshot(TENANT)
    return [_case(authority, number) for number in range(PRINCIPALS)]


def _principal(rows: MemoryAuthority, number: int) -> None:
    who = f"p{number}"
    rows.put_principal(Principal(TENANT, who, "human", operator=False, disabled=False))
    rows.join(TENANT, PROJECT, who)
    rows.put_session(Session(f"s{number}", TENANT, who, NOW * 2, revoked=False))
    secret = Credential(number.to_bytes(32, "big"))
    rows.put_activation(Activation(f"a{number}", TENANT, f"s{number}", "mail", PROJECT, None, False, secret))
    for grant in range(GRANTS_EACH):
        keys = (REF,) if grant == 0 else (f"other_{grant}",)
        rows.put_grant(Grant(f"g{number}-{grant}", TENANT, who, "sense.enable", "mail", keys, None, None))
    rows.put_route(Route(f"r{number}", TENANT, who, "mail", REF, "inbox", None, None))


def _case(authority: Authority, number: int) -> Case:
    activation, session = authority.announcer(f"a{number}")
    if activation is None or session is None:
        raise AssertionError(number)
    facts = Facts(number.to_bytes(16, "big"), TENANT, activation.pack_id, REF, activation.id, session.principal)
    body = json.dumps({"ref": REF, "data": data(number)}).encode()
    built = build_entry(activation.credential.current, activation.id, f"m-{number}", f"{NOW // 1_000_000}", body)
    sent = {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in built.items()}
    return Case(authority, facts, authority.routes("mail", REF)[f"r{number}"], activation, parse_entry(sent))


def walked(one: Case) -> Attempt:
    """Look the rows up and walk every gate."""
    return judge(attempt(one.authority, one.facts, one.route, NOW))


def kept(one: Case) -> Attempt:
    """Decide as the worker does: from what was decided against the same snapshot."""
    return decide(one.authority, one.facts, one.route, NOW)


def signed(one: Case) -> Attempt:
    """Verify the signature of the event, then walk every gate."""
    wire = one.wire
    if not verify(one.activation.credential.live(NOW), wire.c, wire.i, wire.t, wire.b, wire.s):
        raise AssertionError(wire)
    return walked(one)


def run(seconds: float = 2.0) -> dict[str, Any]:
    """Return decisions per second of one core, by land."""
    steps = {"walked_per_s": walked, "kept_per_s": kept, "signed_per_s": signed}
    told: dict[str, Any] = {"grants": PRINCIPALS * GRANTS_EACH, "load": round(os.getloadavg()[0], 2)}
    for land in ("personal", "brain"):
        batch = world(land)
        told[land] = {name: rate(step, batch, seconds) for name, step in steps.items()}
    return told


def rate(step: Callable[[Case], Attempt], batch: list[Case], seconds: float) -> int:
    """Return how many decisions a second of CPU makes, over 1,000 principals in turn."""
    if any(step(one).refused is not None for one in batch):
        raise AssertionError("every attempt of this world is allowed")
    rates: list[float] = []
    while len(rates) < seconds / SLICE_S:
        done = 0
        begun = time.process_time()
        while (spent := time.process_time() - begun) < SLICE_S:
            for one in batch:
                step(one)
            done += len(batch)
        rates.append(done / spent)
    return round(statistics.median(rates))
