"""SENSE_STEPS over the memory authority: the order of §9.5, who may have what where, and the first refusal wins."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core import errors, pipeline
from runtime_core.errors import SENSE_REFUSALS
from runtime_core.grants import Grant, GrantTable
from runtime_core.identity import Activation, Credential, Principal, Route, Session, Sink
from runtime_core.memory import MemoryAudit, MemoryAuthority
from runtime_core.pack import PackRevision, read_pack
from runtime_core.pipeline import SENSE_STEPS, Facts, attempt, decide, deliver, judge, sense_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_core.pipeline import Attempt

NOW = 1_780_000_000_000_000
TENANT = "acme"
LANDS = ("personal", "brain", "local")


def revision(plane: str = "runtime", refs: tuple[str, ...] = LANDS, generation: int = 1) -> PackRevision:
    """Return a pack with one trigger for each land, named like it."""
    surface = {
        "id": "mail",
        "version": "1.0.0",
        "plane": plane,
        "adapter": "sense_only",
        "binding": {"mode": "public", "hub": "none"},
        "verbs": {},
        "stimulusTriggers": [{"ref": ref, "summary": ref} for ref in refs],
    }
    stimuli = {ref: {"operation": "read", "privacy": {"land": ref}} for ref in refs}
    policy = {"surface_id": "mail", "version": 1, "verbs": {}, "stimuli": stimuli}
    pack = read_pack(json.dumps(surface).encode(), json.dumps(policy).encode(), b"# Mail\n")
    return PackRevision(TENANT, generation, pack, {})


def grant(**values: Any) -> Grant:
    """Return ana's grant for all keys of the pack, with other values where given."""
    facts: dict[str, Any] = {"id": "g1", "tenant": TENANT, "principal": "ana", "capability": "sense.enable"}
    return Grant(**(facts | {"pack_id": "mail", "keys": None, "project": None, "expires_at": None} | values))


def sink(**values: Any) -> Sink:
    """Return the partitioned sink `inbox`, with other values where given."""
    facts: dict[str, Any] = {"tenant": TENANT, "name": "inbox", "kind": "inbox", "audience": "tenant"}
    rest = {"audience_id": None, "partitioned": True, "workspace": False, "held": None}
    return Sink(**(facts | rest | values))


def route(owner: str, route_id: str | None = None) -> Route:
    """Return a route to the inbox for whatever ref."""
    return Route(route_id or f"r-{owner}", TENANT, owner, "mail", "*", "inbox", None, None)


class World:
    """Ana publishes from project apollo, ben is a member too; all stands, all is granted."""

    def __init__(self) -> None:
        self.rows = MemoryAuthority()
        for who in ("ana", "ben"):
            self.rows.put_principal(Principal(TENANT, who, "human", operator=False, disabled=False))
            self.rows.put_grant(grant(id=f"g-{who}", principal=who))
            self.rows.join(TENANT, "apollo", who)
        self.rows.put_session(Session("s1", TENANT, "ana", NOW * 2, revoked=False))
        self.activation()
        self.rows.put_revision(revision())
        self.rows.put_sink(sink())

    def activation(self, **values: Any) -> None:
        """Put ana's activation, with other values where given."""
        facts: dict[str, Any] = {"id": "a1", "tenant": TENANT, "session_id": "s1", "pack_id": "mail"}
        rest = {"project_id": "apollo", "workspace": "/work", "revoked": False, "credential": Credential(b"x")}
        self.rows.put_activation(Activation(**(facts | rest | values)))

    def attempt(self, ref: str = "personal", owner: str = "ana", sink_name: str = "inbox") -> Attempt:
        """Return ana's event for a route of `owner`, before the gates."""
        facts = Facts(b"e" * 16, TENANT, "mail", ref, "a1", "ana")
        route = Route("r1", TENANT, owner, "mail", ref, sink_name, None, None)
        return attempt(self.rows.snapshot(TENANT), facts, route, NOW)

    def text(self, ref: str = "personal", owner: str = "ana") -> str | None:
        """Return the refusal, or None."""
        refused = judge(self.attempt(ref, owner)).refused
        return None if refused is None else refused.text


@pytest.fixture
def world() -> World:
    """A world in which everything is allowed."""
    return World()


@pytest.mark.spec("9.5.order")
def test_the_steps_are_those_of_the_chapter_in_its_order():
    """The tuple names the chapter's steps in their order; confirm and Binding are of exec alone."""
    chapter = (Path(__file__).parents[1] / "spec" / "09-authorization.md").read_text()
    listed = re.findall(r"^(\d)\. (\w+)", chapter.partition("```text")[2].partition("```")[0], re.MULTILINE)
    words = {"Resolve": "resolve_", "Authenticate": "authenticate", "Assert": "require_capability"}
    words |= {"Execute": "deliver", "Audit": "audit"}
    names = [step.__name__ for step in SENSE_STEPS]

    places = [
        max(at for at, name in enumerate(names) if name.startswith(words[word])) for _, word in listed if word in words
    ]
    assert places == sorted(places)
    assert names == [
        "resolve_pack",
        "resolve_activation",
        "resolve_trigger",
        "authenticate",
        "require_land",
        "require_capability",
        "deliver",
        "audit",
    ]


def test_the_table_of_refusals_is_in_the_order_of_the_steps():
    """A refusal of an earlier step stands before every one of a later step."""
    names = [step.__name__ for step in SENSE_STEPS]
    places = [names.index(refusal.step) for refusal in SENSE_REFUSALS]

    assert places == sorted(places)


FAULTS: list[tuple[str, Callable[[World], object]]] = [
    ("pack not installed: mail", lambda w: w.rows.drop_revision(TENANT, "mail")),
    ("denied: activation revoked", lambda w: w.activation(project_id=None, revoked=True)),
    ("trigger not declared: brain", lambda w: w.rows.put_revision(revision("control", ("personal",), 2))),
    ("denied: session revoked", lambda w: w.rows.put_session(Session("s1", TENANT, "ana", NOW, revoked=True))),
    (
        "denied: principal disabled",
        lambda w: w.rows.put_principal(Principal(TENANT, "ben", "human", operator=False, disabled=True)),
    ),
    ("denied: privacy.land brain requires project_id", lambda w: w.activation(project_id=None)),
    ("denied: not a member of the project", lambda w: w.rows.leave(TENANT, "apollo", "ben")),
    ("denied: control plane requires an operator", lambda w: w.rows.put_revision(revision("control", LANDS, 2))),
    ("denied: sink outside the project", lambda w: w.rows.put_sink(sink(partitioned=False))),
    ("denied: missing sense.enable", lambda w: w.rows.drop_grant("g-ben")),
]
"""Each fault applies to ben's route of ana's brain event; put on from the last to the first, the newest one wins."""


@pytest.mark.spec("9.5.order")
@pytest.mark.parametrize("first", range(len(FAULTS)), ids=[text for text, _ in FAULTS])
def test_with_a_fault_and_every_later_one_at_once_the_first_wins(world, first):
    """An attempt that fails at a step and at each later one is refused by the earliest."""
    for _, fault in reversed(FAULTS[first:]):
        fault(world)

    assert world.text("brain", "ben") == FAULTS[first][0]


def test_with_no_fault_everything_passes(world):
    """Every land is delivered where all stands and is granted."""
    world.rows.put_sink(sink(name="files", partitioned=False, workspace=True))

    assert [judge(world.attempt(ref)).refused for ref in ("personal", "brain")] == [None, None]
    assert judge(world.attempt("brain", "ben")).refused is None
    assert judge(world.attempt("local", "ana", "files")).refused is None


@pytest.mark.spec("9.5.order")
@pytest.mark.parametrize("who", ["ana", "ben"])
def test_the_publisher_and_the_owner_must_both_be_enabled(world, who):
    """Ben's route of ana's event is denied while either of them is disabled."""
    world.rows.put_principal(Principal(TENANT, who, "human", operator=False, disabled=True))

    assert world.text("brain", "ben") == "denied: principal disabled"


@pytest.mark.spec("4.3.personal")
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        ({"partitioned": False}, "denied: privacy.land personal"),
        ({"partitioned": False, "audience": "principal", "audience_id": "ana"}, None),
        ({"partitioned": False, "audience": "principal", "audience_id": "ben"}, "denied: privacy.land personal"),
        ({"partitioned": False, "audience": "project", "audience_id": "apollo"}, "denied: privacy.land personal"),
        ({"partitioned": False, "workspace": True}, None),
    ],
)
def test_personal_data_goes_only_where_its_principal_alone_reads(world, values, expected):
    """A partitioned sink, one whose audience is the owner, or the publisher's own workspace; nothing else."""
    world.rows.put_sink(sink(**values))

    assert world.text("personal") == expected


@pytest.mark.spec("4.3.personal")
def test_personal_data_goes_to_nobody_else(world):
    """Another principal's route of a personal event is refused whatever its sink."""
    assert world.text("personal", "ben") == "denied: privacy.land personal"


@pytest.mark.spec("4.3.brain")
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        ({"partitioned": False}, "denied: sink outside the project"),
        ({"partitioned": False, "audience": "project", "audience_id": "apollo"}, None),
        ({"partitioned": False, "audience": "project", "audience_id": "zeus"}, "denied: sink outside the project"),
        ({"partitioned": False, "audience": "principal", "audience_id": "ben"}, None),
        ({"partitioned": False, "audience": "principal", "audience_id": "cyd"}, "denied: sink outside the project"),
    ],
)
def test_project_data_stays_with_the_project(world, values, expected):
    """A partitioned sink, one of the project, or one of a member; membership is that of now."""
    world.rows.put_sink(sink(**values))

    assert world.text("brain") == expected


@pytest.mark.spec("4.3.local")
@pytest.mark.parametrize(
    ("values", "workspace", "owner", "expected"),
    [
        ({"workspace": True}, "/work", "ana", None),
        ({"workspace": True}, None, "ana", "denied: privacy.land local requires a workspace sink"),
        ({"workspace": False}, "/work", "ana", "denied: privacy.land local requires a workspace sink"),
        ({"workspace": True}, "/work", "ben", "denied: privacy.land local requires a workspace sink"),
    ],
)
def test_local_data_stays_in_the_workspace(world, values, workspace, owner, expected):
    """Only the publisher's own route, only a sink that writes under the activation's workspace."""
    world.rows.put_sink(sink(**values))
    world.activation(workspace=workspace)

    assert world.text("local", owner) == expected


@pytest.mark.spec("1.2.plane")
def test_a_control_plane_pack_delivers_to_operators(world):
    """The owner of the route must be an operator, besides the grant."""
    world.rows.put_revision(revision("control", LANDS, 2))
    assert world.text() == "denied: control plane requires an operator"
    world.rows.put_principal(Principal(TENANT, "ana", "human", operator=True, disabled=False))

    assert world.text() is None


@pytest.mark.spec("9.4.1")
@pytest.mark.spec("9.4.4")
@pytest.mark.parametrize(
    ("values", "ref", "allowed"),
    [
        ({}, "personal", True),
        ({"keys": ("personal",)}, "personal", True),
        ({"keys": ("brain",)}, "personal", False),
        ({"keys": ()}, "personal", False),
        ({"pack_id": "*"}, "personal", True),
        ({"pack_id": "*", "keys": ("personal",)}, "personal", True),
        ({"pack_id": "git"}, "personal", False),
        ({"tenant": "other"}, "personal", False),
        ({"principal": "ben"}, "personal", False),
        ({"capability": "verb.exec.read"}, "personal", False),
        ({"expires_at": NOW + 1}, "personal", True),
        ({"expires_at": NOW}, "personal", False),
        ({"project": "apollo"}, "brain", True),
        ({"project": "zeus"}, "brain", False),
        ({"project": "apollo"}, "personal", False),
    ],
)
def test_a_grant_matches_whole_and_fails_closed(world, values, ref, allowed):
    """Pack, key, project, principal, tenant, capability and end must all match; a project allows land brain alone."""
    world.rows.drop_grant("g-ana")
    world.rows.put_grant(grant(**values))

    assert world.text(ref) == (None if allowed else "denied: missing sense.enable")


def test_a_pack_wide_effect_needs_a_grant_for_all_keys():
    """A grant for some keys allows nothing that concerns the whole pack."""
    table = GrantTable([grant(capability="pack.install", keys=("personal",))])

    assert table.find("pack.install", "mail", None, None, NOW) is None


@pytest.mark.case("C15")
def test_a_revocation_is_in_the_next_snapshot_however_busy_the_last_was(world):
    """Use keeps nothing alive: the snapshot after a revocation denies, whatever the one before it answered."""
    assert [world.text() for _ in range(40)] == [None] * 40
    world.rows.drop_grant("g-ana")

    assert [world.text() for _ in range(40)] == ["denied: missing sense.enable"] * 40


@pytest.mark.spec("9.5.no-skip")
def test_no_sink_is_shown_what_was_refused(world):
    """`deliver` hands over the admitted ones alone, and marks what the sink did not take."""
    allowed, refused = judge(world.attempt()), judge(world.attempt("personal", "ben"))
    shown = []

    def hand_over(admitted):
        shown.extend(admitted)
        return ["answered 503"]

    after = deliver([refused, allowed], hand_over)

    assert shown == [allowed]
    assert [(one.refused is None, one.failure) for one in after] == [(False, None), (True, "answered 503")]


@pytest.mark.spec("9.1.1")
@pytest.mark.spec("9.6.3")
@pytest.mark.spec("9.6.4")
def test_a_decision_is_recorded_with_the_owner_as_principal_and_the_publisher_beside(world):
    """The tuple of §9.6: one Principal, the route's owner; binding is a field of its own and None for Sense."""
    log = MemoryAudit()
    world.rows.drop_grant("g-ben")
    pipeline.audit([judge(world.attempt("brain", "ben"))], log)

    assert log.records == [sense_record(judge(world.attempt("brain", "ben")))]
    line = log.records[0]
    assert (line.principal, line.publisher, line.tenant, line.project) == ("ben", "ana", TENANT, "apollo")
    assert (line.binding, line.pack_id, line.key, line.operation) == (None, "mail", "brain", "read")
    assert (line.ok, line.reason) == (False, errors.MISSING_SENSE_ENABLE.text())


@pytest.mark.case("C62")
def test_a_text_cannot_be_broken_by_a_name():
    """Control characters and braces in a name stay on the line and inside it."""
    assert errors.TRIGGER_NOT_DECLARED.text("a\nb{}") == "trigger not declared: a\\nb{}"


def test_a_decision_is_made_once_per_snapshot_and_fits_the_event_at_hand(world, monkeypatch):
    """What is decided alike is not walked again, and every attempt has its own event, route and moment."""
    calls = []
    monkeypatch.setattr(pipeline, "judge", lambda one, walk=judge: (calls.append(one), walk(one))[1])
    authority = world.rows.snapshot(TENANT)
    first = decide(authority, Facts(b"1" * 16, TENANT, "mail", "personal", "a1", "ana"), route("ana"), NOW)
    again = decide(authority, Facts(b"2" * 16, TENANT, "mail", "personal", "a1", "ana"), route("ana"), NOW + 1)
    other = decide(authority, Facts(b"3" * 16, TENANT, "mail", "brain", "a1", "ana"), route("ben"), NOW)

    assert len(calls) == 2
    assert (first.grant, again.grant, other.grant) == (
        grant(id="g-ana"),
        grant(id="g-ana"),
        grant(id="g-ben", principal="ben"),
    )
    assert (again.facts.event_id, again.now) == (b"2" * 16, NOW + 1)


@pytest.mark.spec("9.4.4")
@pytest.mark.case("C15")
def test_a_kept_decision_ends_with_its_grant_and_with_its_snapshot(world):
    """A grant's end is looked at every time; a revocation makes a new snapshot, in which nothing is kept."""
    world.rows.put_grant(grant(id="g-ana", expires_at=NOW + 5))
    authority = world.rows.snapshot(TENANT)
    facts = Facts(b"1" * 16, TENANT, "mail", "personal", "a1", "ana")

    assert [decide(authority, facts, route("ana"), NOW + at).refused is None for at in (0, 4, 5, 6)] == [
        True,
        True,
        False,
        False,
    ]
    world.rows.put_grant(grant(id="g-ana"))
    assert decide(world.rows.snapshot(TENANT), facts, route("ana"), NOW).refused is None
    world.rows.drop_grant("g-ana")
    assert decide(world.rows.snapshot(TENANT), facts, route("ana"), NOW).refused is not None


def test_kept_decisions_stay_bounded(world, monkeypatch):
    """However many routes meet one snapshot, no more than the bound is kept, and each is decided rightly."""
    monkeypatch.setattr(pipeline, "DECISIONS_KEPT", 3)
    authority = world.rows.snapshot(TENANT)
    facts = Facts(b"1" * 16, TENANT, "mail", "personal", "a1", "ana")

    decided = [decide(authority, facts, route("ana", f"r{number}"), NOW).refused for number in range(10)]

    assert decided == [None] * 10
    assert len(authority.decisions) <= 3
