"""The policy step alone: SENSE_GATES for one delivery after another, with 10,000 grants loaded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.world import HARNESS, policy_bytes, surface_bytes
from runtime_core.grants import Grant
from runtime_core.identity import Activation, Credential, Principal, Route, Session, Sink
from runtime_core.memory import MemoryAuthority
from runtime_core.pack import PackRevision, read_pack
from runtime_core.pipeline import Facts, attempt, decide, judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_core.authority import Authority
    from runtime_core.pipeline import Attempt

TENANT = "bench"
NOW = 1_800_000_000_000_000
PRINCIPALS, GRANTS_EACH = 1_000, 10


def world() -> list[tuple[Authority, Facts, Route]]:
    """Return one event and route for each of 1,000 principals, who hold 10 grants each, all against one snapshot."""
    rows = MemoryAuthority()
    pack = read_pack(surface_bytes(), policy_bytes(), HARNESS)
    rows.put_revision(PackRevision(TENANT, 1, pack, {}))
    rows.put_sink(Sink(TENANT, "inbox", "inbox", "tenant", None, partitioned=True, workspace=False, held=None))
    for number in range(PRINCIPALS):
        who = f"p{number}"
        rows.put_principal(Principal(TENANT, who, "human", operator=False, disabled=False))
        rows.put_session(Session(f"s{number}", TENANT, who, NOW * 2, revoked=False))
        rows.put_activation(Activation(f"a{number}", TENANT, f"s{number}", "mail", None, None, False, Credential(b"x")))
        for grant in range(GRANTS_EACH):
            keys = ("new_item",) if grant == 0 else (f"other_{grant}",)
            rows.put_grant(Grant(f"g{number}-{grant}", TENANT, who, "sense.enable", "mail", keys, None, None))
    authority = rows.snapshot(TENANT)
    made = []
    for number in range(PRINCIPALS):
        facts = Facts(number.to_bytes(16, "big"), TENANT, "mail", "new_item", f"a{number}", f"p{number}")
        route = Route(f"r{number}", TENANT, f"p{number}", "mail", "new_item", "inbox", None, None)
        made.append((authority, facts, route))
    return made


def walked(authority: Authority, facts: Facts, route: Route, now: int) -> Attempt:
    """Look the rows up and walk every gate, as for the first decision of a snapshot."""
    return judge(attempt(authority, facts, route, now))


def run(seconds: float = 2.0) -> dict[str, Any]:
    """Return decisions per second of one core: as the worker makes them, and with every gate walked again."""
    return {"decisions_per_s": rate(decide, seconds), "walked_per_s": rate(walked, seconds), "grants": 10_000}


def rate(step: Callable[[Authority, Facts, Route, int], Attempt], seconds: float) -> int:
    """Return how many decisions a second of CPU makes, over 1,000 principals in turn."""
    batch = world()
    if any(step(*one, NOW).refused is not None for one in batch):
        raise AssertionError("every attempt of this world is allowed")
    done = 0
    cpu = time.process_time()
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for authority, facts, route in batch:
            step(authority, facts, route, NOW)
        done += len(batch)
    return round(done / (time.process_time() - cpu))
