"""A composite is never more than its steps: all are judged before one runs, and what ran is told (C33, C34)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.adapters.composite import CompositeAdapter
from runtime_core.binding import NotConnected
from runtime_core.errors import PackLintError
from runtime_core.pack import read_pack
from runtime_core.runtime import Ran
from tests.runtime_core.adapters.acting import Acting, files

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_core.binding import Holder
    from runtime_core.execution import Call

READ, WRITE, CONFIRM = "read", "write", ("write", True)
USER = {"mode": "user", "hub": "keyring"}


class Leaf:
    """Records what it was entered with; `answers` says what comes of a command, else its own key."""

    def __init__(self) -> None:
        self.entered: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Ran | Callable[[], Ran]] = {}

    def run(self, call: Call, runtime: object) -> Ran:
        key = call.chosen.key
        self.entered.append((key, call.facts.envelope.own_args))
        found = self.answers.get(key, Ran({"did": key}))
        return found if isinstance(found, Ran) else found()

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.entered]


class Hubs:
    """Counts what it was asked."""

    def __init__(self) -> None:
        self.mints = 0
        self.empty_for: str | None = None

    def connected(self, holder: object) -> bool:
        return True

    def mint(self, holder: Holder) -> tuple[str, dict[str, str]]:
        if holder.consent == self.empty_for:
            raise NotConnected
        self.mints += 1
        return "ana@service", {"secret": "canary-credential"}

    def keep(self, *_: object) -> None:
        raise AssertionError


class Flow(Acting):
    """The pack `leaf` has a read, a write, a gated write and one that needs a credential; `flow` is the composite."""

    def __init__(self) -> None:
        self.leaf = Leaf()
        super().__init__({"wrap": self.leaf, "composite": CompositeAdapter()})
        self.hub = Hubs()
        verbs = {key: {"cli": [], "args": True} for key in ("leaf.read", "leaf.write", "leaf.gated")}
        entries = {"leaf.read": READ, "leaf.write": WRITE, "leaf.gated": CONFIRM}
        self.install(files("leaf", "wrap", verbs, entries, binding=USER))
        self.activate("leaf")
        self.activate("flow")

    def flow(self, *steps: dict[str, Any], operation: Any = CONFIRM, key: str = "flow.run") -> None:
        """Install the composite; its pack knows nothing of the others, as where they came later."""
        verbs = {key: {"args": True, "steps": list(steps)}}
        self.install(files("flow", "composite", verbs, {key: operation}))

    def allow(self, *capabilities: str) -> None:
        for pack_id in ("leaf", "flow"):
            self.grant(pack_id, *capabilities)


def step(key: str, pack_id: str = "leaf", **args: Any) -> dict[str, Any]:
    return {"pack_id": pack_id, "verb_key": key, "args": args}


BOTH = ("verb.exec.read", "verb.exec.write")


@pytest.mark.case("C33")
class TestWithAWrite:
    @pytest.mark.spec("9.5.no-skip")
    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_a_declared_read_with_only_the_right_to_read(self, place: int) -> None:
        """A read composite with a write anywhere in it is refused by that write's name, and no step runs."""
        world = Flow()
        steps = [step("leaf.read"), step("leaf.read")]
        steps.insert(place, step("leaf.gated"))
        world.flow(*steps, operation=READ)
        world.allow("verb.exec.read")
        answer = world.run("flow", "flow.run", {"confirm": True})
        assert answer.error == "denied: missing verb.exec.write for leaf.gated"
        assert (world.leaf.entered, world.hub.mints) == ([], 0)
        assert world.told() == [("exec", "flow.run", False, "denied: missing verb.exec.write for leaf.gated")]

    def test_the_pack_is_refused_where_its_steps_are_known(self) -> None:
        """Lint sees a read that runs a write, and a composite without the confirm of its step."""
        leaf = files("leaf", "wrap", {"leaf.gated": {"cli": []}}, {"leaf.gated": CONFIRM})
        verbs = {"flow.run": {"steps": [step("leaf.gated")]}}
        for operation in (READ, WRITE):
            flow = files("flow", "composite", verbs, {"flow.run": operation})
            with pytest.raises(PackLintError) as refused:
                read_pack(*flow, {"leaf": read_pack(*leaf)})
            assert {issue.kind for issue in refused.value.issues} == {"composite_escalation"}

    @pytest.mark.spec("4.5.5")
    @pytest.mark.parametrize("operation", [READ, WRITE, CONFIRM], ids=str)
    @pytest.mark.parametrize("args", [{}, {"confirm": "true"}, {"confirm": 1}, {"apply": None}], ids=str)
    def test_both_rights_and_no_confirm(self, operation: Any, args: dict[str, Any]) -> None:
        """A gated step wants the caller's confirm, whatever the composite itself says; nothing was minted or ran."""
        world = Flow()
        world.flow(step("leaf.read"), step("leaf.gated"), operation=operation)
        world.allow(*BOTH)
        answer = world.run("flow", "flow.run", args)
        assert (answer.error, world.leaf.entered, world.hub.mints) == ("confirm required", [], 0)

    def test_a_step_cannot_confirm_by_itself(self) -> None:
        """A literal confirm in a step is refused at load; handed on by reference it is the caller's."""
        with pytest.raises(PackLintError, match="reserved_arg"):
            Flow().flow(step("leaf.gated", confirm=True))
        world = Flow()
        world.flow(step("leaf.gated", confirm={"$arg": "confirm"}))
        world.allow(*BOTH)
        assert world.run("flow", "flow.run", {}).error == "confirm required"
        assert world.run("flow", "flow.run", {"apply": True}).ok
        assert world.leaf.entered == [("leaf.gated", {})]

    @pytest.mark.spec("1.5.adapters")
    @pytest.mark.spec("9.6.4")
    def test_both_rights_and_confirm(self) -> None:
        """It runs, and each step has lines of its own with its own verb, a write also its begin."""
        world = Flow()
        world.flow(step("leaf.read"), step("leaf.gated"))
        world.allow(*BOTH)
        answer = world.run("flow", "flow.run", {"confirm": True})
        assert (answer.ok, world.leaf.keys, world.hub.mints) == (True, ["leaf.read", "leaf.gated"], 2)
        assert world.told() == [
            ("exec.begin", "flow.run", True, None),
            ("exec", "leaf.read", True, None),
            ("exec.begin", "leaf.gated", True, None),
            ("exec.end", "leaf.gated", True, None),
            ("exec.end", "flow.run", True, None),
        ]
        told = [(one.pack_id, one.operation, one.binding, one.subject) for one in world.audit.records]
        assert told[1:3] == [
            ("leaf", "read", "ana@service", "request-1"),
            ("leaf", "write", "ana@service", "request-1"),
        ]

    @pytest.mark.parametrize("place", [0, 1])
    def test_a_verb_of_another_pack_without_a_grant(self, place: int) -> None:
        """The right to the composite is no right to its steps."""
        world = Flow()
        steps = [step("leaf.read"), step("leaf.write")]
        world.flow(*(steps if place else reversed(steps)))
        world.grant("flow", *BOTH)
        world.grant("leaf", *BOTH, keys=("leaf.read",))
        answer = world.run("flow", "flow.run", {"confirm": True})
        assert answer.error == "denied: missing verb.exec.write for leaf.write"
        assert (world.leaf.entered, world.hub.mints) == ([], 0)

    @pytest.mark.parametrize(
        ("change", "error"),
        [
            (lambda world: world.rows.drop_revision("acme", "leaf"), "pack not installed: leaf"),
            (lambda world: world.flow(step("leaf.gone")), "unknown command: leaf.gone"),
            (lambda world: world.flow(step("other.read", "other")), "pack not installed: other"),
        ],
    )
    def test_a_step_that_does_not_resolve(self, change: Any, error: str) -> None:
        """A step of a pack that is not there is found before the first one runs."""
        world = Flow()
        world.flow(step("leaf.read"), step("leaf.read"))
        world.allow(*BOTH)
        change(world)
        answer = world.run("flow", "flow.run", {"confirm": True})
        assert (answer.error, world.leaf.entered) == (error, [])

    def test_a_right_withdrawn_while_it_runs(self) -> None:
        """Each step walks the whole pipeline when its turn comes: a revocation stops the rest."""
        world = Flow()
        world.flow(step("leaf.read"), step("leaf.write"))
        world.grant("flow", *BOTH)
        world.grant("leaf", "verb.exec.write")
        world.grant("leaf", "verb.exec.read")

        def revoke() -> Ran:
            world.rows.drop_grant("g2")
            return Ran({})

        world.leaf.answers["leaf.read"] = revoke
        answer = world.run("flow", "flow.run", {"confirm": True})
        assert answer.error == "denied: missing verb.exec.write for leaf.write (step 2 of 2: leaf.write)"
        assert world.leaf.keys == ["leaf.read"]


@pytest.mark.case("C34")
class TestHalfWay:
    def steps(self) -> Flow:
        world = Flow()
        world.flow(step("leaf.read"), step("leaf.gated"), step("leaf.write"))
        world.allow(*BOTH)
        return world

    @pytest.mark.parametrize("failing", [0, 1, 2])
    def test_what_was_done_and_what_was_skipped(self, failing: int) -> None:
        """The error names the failing step, the result lists what ran and what did not, the audit is not ok."""
        world = self.steps()
        keys = ["leaf.read", "leaf.gated", "leaf.write"]
        world.leaf.answers[keys[failing]] = Ran({"half": True}, "exited 3")
        answer = world.run("flow", "flow.run", {"confirm": True})
        assert answer.error == f"exited 3 (step {failing + 1} of 3: {keys[failing]})"
        done = answer.result["steps"]
        assert [(one["verb_key"], one["ok"]) for one in done] == [
            (key, index < failing) for index, key in enumerate(keys[: failing + 1])
        ]
        assert (done[-1]["error"], done[-1]["result"]) == ("exited 3", {"half": True})
        assert answer.result["skipped"] == keys[failing + 1 :]
        assert world.leaf.keys == keys[: failing + 1]
        ends = {key: (ok, reason) for action, key, ok, reason in world.told() if action != "exec.begin"}
        assert ends["flow.run"] == (False, answer.error)
        assert ends[keys[failing]] == (False, "exited 3")
        assert all(ends[key] == (True, None) for key in keys[:failing])
        assert not any(key in ends for key in keys[failing + 1 :])

    def test_a_step_of_an_inner_composite(self) -> None:
        """The way to the failing step is named from the outside in."""
        world = self.steps()
        inner = {"inner.run": {"steps": [step("leaf.read"), step("leaf.write")]}}
        world.install(files("inner", "composite", inner, {"inner.run": WRITE}))
        world.activate("inner")
        world.grant("inner", *BOTH)
        world.flow(step("leaf.read"), step("inner.run", "inner"), step("leaf.gated"))
        world.leaf.answers["leaf.write"] = Ran(None, "timed out after 5 s")
        answer = world.run("flow", "flow.run", {"confirm": True})
        assert answer.error == "timed out after 5 s (step 2 of 2: leaf.write) (step 2 of 3: inner.run)"
        assert answer.result["steps"][1]["result"]["skipped"] == []
        assert answer.result["skipped"] == ["leaf.gated"]

    @pytest.mark.parametrize("kind", ["args", "binding"])
    def test_a_step_that_is_refused_at_its_turn(self, kind: str) -> None:
        """What only its turn shows, args from an earlier answer or a missing credential, fails the step like a tool."""
        world = self.steps()
        verbs = {"late.act": {"cli": [], "args": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
        world.install(files("late", "wrap", verbs, {"late.act": WRITE}, binding=USER))
        world.activate("late")
        world.grant("late", *BOTH)
        world.flow(step("leaf.read"), step("late.act", "late", n={"$step": [0, "did"]}), step("leaf.write"))
        if kind == "binding":
            world.leaf.answers["leaf.read"] = Ran({"did": 1})
            world.hub.empty_for = "pack:late"
        answer = world.run("flow", "flow.run", {"confirm": True})
        why = "not connected: late" if kind == "binding" else 'invalid args: /n: the value is not of type "integer"'
        assert answer.error == f"{why} (step 2 of 3: late.act)"
        assert (answer.result["skipped"], world.leaf.keys) == (["leaf.write"], ["leaf.read"])

    def test_the_same_message_again(self) -> None:
        """Where a process died in it, the same message runs no step a second time and says that nobody knows."""
        world = self.steps()
        world.leaf.answers["leaf.gated"] = Ran(None, "exited 3")
        world.run("flow", "flow.run", {"confirm": True})
        world.may_begin = False  # what the row of a begun write answers
        again = world.run("flow", "flow.run", {"confirm": True})
        assert (again.error, world.leaf.keys) == ("interrupted: outcome unknown", ["leaf.read", "leaf.gated"])


class TestValues:
    def test_args_and_earlier_answers(self) -> None:
        """A step gets literals, the caller's args and what earlier steps answered; what is absent is left out."""
        world = Flow()
        world.allow(*BOTH)
        world.leaf.answers["leaf.read"] = Ran({"list": [{"id": "n1"}, None], "none": None})
        given = {
            "literal": {"deep": [1, {"x": "$arg"}]},
            "arg": {"$arg": "title"},
            "absent": {"$arg": "nothing"},
            "whole": {"$step": [0]},
            "item": {"$step": [0, "list", 0, "id"]},
            "null": {"$step": [0, "list", 1]},
            "past": {"$step": [0, "list", 2]},
            "before": {"$step": [0, "list", -1]},
            "wrong": {"$step": [0, "list", "id"]},
            "none": {"$step": [0, "none", "x"]},
        }
        world.flow(step("leaf.read"), step("leaf.write", **given))
        answer = world.run("flow", "flow.run", {"title": {"$arg": "other"}, "confirm": True})
        assert answer.ok
        assert world.leaf.entered[1][1] == {
            "literal": {"deep": [1, {"x": "$arg"}]},
            "arg": {"$arg": "other"},
            "whole": {"list": [{"id": "n1"}, None], "none": None},
            "item": "n1",
            "null": None,
        }

    def test_an_answer_confirms_nothing(self) -> None:
        """What a tool answers, or a caller hands over as another arg, never becomes a confirm."""
        world = Flow()
        world.allow(*BOTH)
        world.leaf.answers["leaf.read"] = Ran({"confirm": True})
        for source in ({"$step": [0, "confirm"]}, {"$arg": "yes"}):
            with pytest.raises(PackLintError, match="reserved_arg"):
                world.flow(step("leaf.read"), step("leaf.gated", confirm=source), operation=READ)
        world.flow(step("leaf.read"), step("leaf.gated", said={"$step": [0, "confirm"]}), operation=READ)
        assert world.run("flow", "flow.run", {"yes": True}).error == "confirm required"


class TestLimits:
    def chain(self, deep: int) -> Flow:
        """Install composites that call each other, each in a pack of its own that knew no other."""
        world = Flow()
        world.allow(*BOTH)
        for level in range(1, deep + 1):
            inner = step("leaf.read") if level == deep else step(f"c{level + 1}.run", f"c{level + 1}")
            verbs = {f"c{level}.run": {"steps": [inner]}}
            world.install(files(f"c{level}", "composite", verbs, {f"c{level}.run": READ}))
            world.activate(f"c{level}")
            world.grant(f"c{level}", *BOTH)
        return world

    def test_four_deep(self) -> None:
        """Four composites inside each other run."""
        world = self.chain(4)
        assert world.run("c1", "c1.run").ok
        assert world.leaf.keys == ["leaf.read"]

    @pytest.mark.parametrize("deep", [5, 6, 9])
    def test_five_deep(self, deep: int) -> None:
        """Five do not, though no pack was seen to be too deep when it was installed; nothing runs."""
        world = self.chain(deep)
        answer = world.run("c1", "c1.run")
        assert (answer.error, world.leaf.keys) == ("composite over 4 deep or 32 commands: c1.run", [])

    def test_a_circle(self) -> None:
        """A circle that later revisions closed ends before anything runs."""
        world = self.chain(2)
        verbs = {"c2.run": {"steps": [step("leaf.read"), step("c1.run", "c1")]}}
        world.install(files("c2", "composite", verbs, {"c2.run": READ}))
        answer = world.run("c1", "c1.run")
        assert (answer.error, world.leaf.keys) == ("composite over 4 deep or 32 commands: c1.run", [])

    @pytest.mark.parametrize("inner", [0, 2, 4])
    @pytest.mark.parametrize(("commands", "good"), [(32, True), (33, False)])
    def test_thirty_two_commands(self, inner: int, commands: int, good: bool) -> None:
        """32 commands run and 33 do not, alike at load and at run, whether in one list or in composites among them."""
        world = Flow()
        world.allow(*BOTH)
        sizes = [len(range(index, commands, inner)) for index in range(inner)]
        steps = [] if inner else [step("leaf.read")] * commands
        known = {}
        for index, size in enumerate(sizes):
            verbs = {f"p{index}.run": {"steps": [step("leaf.read")] * size}}
            one = files(f"p{index}", "composite", verbs, {f"p{index}.run": READ})
            known[world.install(one)] = read_pack(*one)
            world.activate(f"p{index}")
            world.grant(f"p{index}", *BOTH)
            steps.append(step(f"p{index}.run", f"p{index}"))
        if good or inner:
            world.flow(*steps, operation=READ)
            answer = world.run("flow", "flow.run")
            assert (answer.ok, len(world.leaf.keys)) == (good, commands if good else 0)
        flow = files("flow", "composite", {"flow.run": {"steps": steps}}, {"flow.run": READ})
        if good:
            read_pack(*flow, known)
        else:
            with pytest.raises(PackLintError, match="runs 33 commands"):
                read_pack(*flow, known)
