"""A policy that changes while events flow: every decision is one revision's, whole, and never an old one's (C24)."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.errors import PackLintError, PackParseError
from sense_worker.drain import Drain, Work
from sense_worker.intake.record import Recorder
from sense_worker.operator import Operator
from sense_worker.wiring import build_ports
from sinks.memory import Memory
from sinks.protocol import SinkBase
from sinks.registry import Registry
from tests.intake_bench import IntakeBench
from tests.provision import POLICY, SURFACE, write_pack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sense_worker.storage.engine import Database

BRAIN = "denied: privacy.land brain requires project_id"
LATEST = (
    "SELECT e.generation, d.state, d.reason FROM sense_event e JOIN sense_delivery d ON d.event_id = e.id "
    "WHERE e.message_id = ?"
)


def revision(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return surface and policy of a generation: an odd one delivers `odd` data, an even one denies `even` data.

    What neither does: deny `odd` data for its land (the surface of one, the policy of the other), or deliver `even`.
    """
    name, land = (("odd", "personal"), ("even", "brain"))[number % 2 == 0]
    schema = {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]}
    trigger = {"ref": "new_item", "summary": f"Revision {number}", "data": {**schema, "additionalProperties": False}}
    stimuli = {"new_item": {"operation": "read", "privacy": {"land": land}}}
    return {**SURFACE, "stimulusTriggers": [trigger]}, {**POLICY, "stimuli": stimuli}


class Slow(SinkBase):
    """A sink that is not local: its deliveries wait for a drain."""

    kind = "slow"

    def deliver(self, batch):
        return Memory.of("slow").take(batch)


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Iterator[IntakeBench]:
    """A recorder on each of the two databases, with ana granted and routed to the inbox."""
    Memory.forget()
    registry = Registry.load()
    registry.register(Slow)
    bench = IntakeBench(tmp_path, database, registry)
    bench.rows.grant("ana")
    bench.rows.route("ana")
    yield bench
    bench.close()


@pytest.fixture
def operator(bench: IntakeBench) -> Iterator[Operator]:
    """The operator of the tenant, who may install."""
    made = Operator.initialize(bench.settings, tenant="t-red")
    with Operator.open(bench.settings, session_file=bench.settings.home / made.session_file) as operator:
        operator._ring = lambda _lanes: None
        yield operator


class Flow(threading.Thread):
    """A recorder that shares nothing but the database with its neighbours, as a process does, and its judgements."""

    def __init__(self, bench: IntakeBench, name: str, installed: list[int]) -> None:
        super().__init__(name=name, daemon=True)
        self.bench = bench
        self.installed = installed
        self.ports = build_ports(bench.settings)
        self.recorder = Recorder(self.ports)
        self.stop = threading.Event()
        self.turned = threading.Condition()
        self.turns = 0
        self.wrong: list[object] = []
        self.seen: set[tuple[str, str, int]] = set()

    def run(self) -> None:
        """Record one event of each kind after the other until told to stop."""
        try:
            while not self.stop.is_set():
                for kind in ("odd", "even"):
                    self.wrong += self.judge(kind)
                with self.turned:
                    self.turns += 1
                    self.turned.notify_all()
        except Exception as error:  # noqa: BLE001 - told to the test
            self.wrong.append(error)
        finally:
            self.ports.audit.close()
            self.ports.database.dispose()

    def judge(self, kind: str) -> list[object]:
        """Record one event; return what is wrong with the judgement on it."""
        name = f"{self.name}-{kind}-{len(self.seen)}-{time.monotonic_ns()}"
        entry = self.bench.entry(data={kind: 1}, message_id=name)
        oldest = self.installed[-1]
        (recorded,) = self.recorder.record([entry], int(time.time() * 1e6))
        newest = self.installed[-1] + 1  # one may have committed that the installer has not told of yet
        found = self.bench.query(LATEST, name)
        if not found:
            parity = {"odd": 0, "even": 1}[kind]
            self.seen.add((kind, "refused", parity))
            possible = any(number % 2 == parity for number in range(oldest, newest + 1))
            return [] if recorded.counts.get("invalid_data") == 1 and possible else [(name, recorded.counts)]
        generation, state, reason = found[0]
        self.seen.add((kind, state, generation % 2))
        whole = (state, reason) == {"odd": ("delivered", None), "even": ("denied", BRAIN)}[kind]
        sound = whole and generation % 2 == (kind == "odd") and oldest <= generation <= newest
        return [] if sound else [(name, oldest, generation, newest, state, reason)]

    def turn(self) -> None:
        """Wait until everything of a turn that begins now has been judged."""
        with self.turned:
            wanted = self.turns + 2
            assert self.turned.wait_for(lambda: self.turns >= wanted or self.wrong, 60), "the flow stands still"


@pytest.mark.case("C24")
@pytest.mark.parametrize(
    "installs", [pytest.param(4, id="quick"), pytest.param(100, id="literal", marks=pytest.mark.long)]
)
def test_under_a_flow_of_events_every_decision_is_one_of_the_two_revisions(bench, operator, tmp_path, installs):
    """Two recorders judge by a revision whole, by none older than was in force, and by each new one at once."""
    source = tmp_path / "source"
    installed = [operator.install_pack(write_pack(source, *revision(2))).generation]
    flows = [Flow(bench, name, installed) for name in ("one", "two")]
    for flow in flows:
        flow.start()

    for number in range(installed[0] + 1, installed[0] + 1 + installs):
        assert operator.install_pack(write_pack(source, *revision(number))).generation == number
        installed.append(number)
        for flow in flows:
            flow.turn()
    (source / "policy.json").write_text(
        '{"surface_id": "mail", "version": 1, "verbs": {}, "stimuli": {}, "stimuli": {}}'
    )
    with pytest.raises(PackParseError):
        operator.install_pack(source)
    for flow in flows:
        flow.turn()
        flow.stop.set()
        flow.join(60)

    assert [flow.wrong for flow in flows] == [[], []]
    seen = {("odd", "delivered", 1), ("even", "refused", 1), ("odd", "refused", 0), ("even", "denied", 0)}
    assert [flow.seen for flow in flows] == [seen, seen]
    restarted = Flow(bench, "restarted", installed)
    assert (restarted.judge("odd"), restarted.judge("even")) == ([], [])
    restarted.ports.audit.close()
    restarted.ports.database.dispose()


@pytest.mark.case("C24")
def test_what_waits_is_attempted_under_the_newest_revision(bench, operator, tmp_path):
    """Deliveries born under one revision and attempted after the next are decided by the next, and say so."""
    bench.rows.sink("slow", "slow", audience="principal:ana")
    route = bench.rows.route("ana", sink="slow")
    source, digests = tmp_path / "source", {}
    for number in (3, 4, 5):
        digests[number] = operator.install_pack(write_pack(source, *revision(number))).digest
        if number == 3:
            bench.record(bench.entry(data={"odd": 1}))
        if number == 4:
            work = Drain(bench.ports).claim("t-red/slow")
            assert (work.batches, Memory.of("slow").attempts) == ([], [])
            bench.record(bench.entry(data={"even": 1}))
    work = Drain(bench.ports).claim("t-red/slow")
    Drain(bench.ports).hand_over(work.opened, work.batches[0], work.claimed_at)

    found = bench.query(
        "SELECT state, reason, d.digest FROM sense_delivery d JOIN sense_event e ON e.id = d.event_id "
        "WHERE route_id = ? ORDER BY accepted_at, stream_id",
        route,
    )
    assert found == [("denied", BRAIN, digests[4]), ("delivered", None, digests[5])]


def attempt(bench: IntakeBench) -> list[tuple[str, str | None, str | None]]:
    """Attempt all that waits for the slow sink, as a doorbell does; return state, reason and digest of each."""
    drain = Drain(bench.ports)
    while isinstance(work := drain.claim("t-red/slow"), Work):
        for batch in work.batches:
            drain.hand_over(work.opened, batch, work.claimed_at)
    return bench.query(
        "SELECT d.state, d.reason, d.digest FROM sense_delivery d JOIN sense_event e ON e.id = d.event_id "
        "WHERE d.route_id LIKE '%-slow' ORDER BY e.accepted_at, e.stream_id"
    )


def without_trigger(folder: Path) -> Path:
    """Write a revision that no longer declares the ref of what waits."""
    stimuli = {ref: entry for ref, entry in POLICY["stimuli"].items() if ref != "new_item"}
    triggers = [one for one in SURFACE["stimulusTriggers"] if one["ref"] != "new_item"]
    return write_pack(folder, {**SURFACE, "stimulusTriggers": triggers}, {**POLICY, "stimuli": stimuli})


def another_land(folder: Path) -> Path:
    """Write a revision in which the data belongs into the workspace."""
    stimuli = {**POLICY["stimuli"], "new_item": {"operation": "read", "privacy": {"land": "local"}}}
    return write_pack(folder, SURFACE, {**POLICY, "stimuli": stimuli})


@pytest.mark.case("C24")
@pytest.mark.spec("1.3.trigger")
@pytest.mark.parametrize(
    ("change", "text", "word"),
    [
        (another_land, "denied: privacy.land local requires a workspace sink", None),
        (without_trigger, "trigger not declared: new_item", "undeclared_ref"),
        (None, "pack not installed: mail", "pack_missing"),
    ],
    ids=["another land", "no trigger", "removed"],
)
def test_a_change_in_flight_decides_what_was_accepted_before_it(bench, operator, tmp_path, change, text, word):
    """Accepted under generation 1, attempted when the pack was upgraded or removed: the sink is not shown it.

    It stays denied when the first revision is back, which what comes then is delivered under.
    """
    bench.rows.sink("slow", "slow", audience="principal:ana")
    bench.rows.route("ana", sink="slow")
    first = operator.install_pack(write_pack(tmp_path / "first"))
    assert bench.record(bench.entry()) == {"accepted": 1}

    changed = None if change is None else operator.install_pack(change(tmp_path / "second"))
    if changed is None:
        operator.remove_pack("mail")
    ((state, reason, digest),) = attempt(bench)
    assert (state, reason, Memory.of("slow").attempts) == ("denied", text, [])
    assert digest in {None if changed is None else changed.digest, first.digest}
    assert bench.record(bench.entry()).get(word or "accepted") == 1

    operator.install_pack(tmp_path / "first")
    bench.record(bench.entry())
    attempted = attempt(bench)
    assert (attempted[0], attempted[-1]) == ((state, reason, digest), ("delivered", None, first.digest))


@pytest.mark.case("C24")
def test_a_failed_upgrade_in_flight_changes_nothing(bench, operator, tmp_path):
    """What waits is delivered under the revision that stayed in force."""
    bench.rows.sink("slow", "slow", audience="principal:ana")
    bench.rows.route("ana", sink="slow")
    first = operator.install_pack(write_pack(tmp_path / "first"))
    bench.record(bench.entry())
    with pytest.raises(PackLintError):
        operator.install_pack(write_pack(tmp_path / "second", SURFACE, {**POLICY, "stimuli": {}}))

    assert attempt(bench) == [("delivered", None, first.digest)]
