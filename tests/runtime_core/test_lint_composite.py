"""Lint of composites: their steps, and that none is weaker, deeper or longer than it may be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime_core.lint import lint
from runtime_core.manifest import parse_manifest
from runtime_core.pack import Pack, lint_pack, read_pack
from runtime_core.policy import parse_policy

READ = {"operation": "read", "privacy": {"land": "personal"}}
WRITE = {"operation": "write", "privacy": {"land": "personal"}}
SURE = {**WRITE, "confirm": True}

Steps = dict[str, list[Any]]


def step(key: str, **args: Any) -> dict[str, Any]:
    """Return a step; `pack:key` is a command of another pack."""
    pack_id, _, verb_key = key.rpartition(":")
    return {"verb_key": verb_key, "args": args, **({"pack_id": pack_id} if pack_id else {})}


def files(pack_id: str, verbs: dict[str, dict[str, Any]], entries: dict[str, Any], adapter: str) -> tuple[bytes, bytes]:
    """Return surface and policy of a pack."""
    surface = {"id": pack_id, "adapter": adapter, "verbs": verbs}
    return json.dumps(surface).encode(), json.dumps({"surface_id": pack_id, "version": 1, "verbs": entries}).encode()


def mail() -> Pack:
    """Return the pack of leaf commands: a read, a write, a write with confirm."""
    entries = {"list": READ, "draft": WRITE, "send": SURE}
    return read_pack(*files("mail", {key: {} for key in entries}, entries, "wrap"), b"")


def found(steps: Steps, entries: dict[str, Any] | None = None, *others: Pack) -> list[tuple[str, str, str]]:
    """Return kind, place below /verbs and reason of each issue of a composite pack."""
    verbs = {
        key: {"steps": [part if isinstance(part, dict) else step(part) for part in parts]}
        for key, parts in steps.items()
    }
    surface, policy = files("flow", verbs, entries or dict.fromkeys(steps, READ), "composite")
    issues = lint_pack(surface, policy, b"", {pack.pack_id: pack for pack in (mail(), *others)})
    return [(issue.kind, issue.place.removeprefix("surface.json /verbs/"), issue.reason) for issue in issues]


def chain(length: int, last: str) -> Steps:
    """Return composites c1 → c2 → … of that length, the innermost running `last`."""
    return {f"c{n}": [f"c{n + 1}" if n < length else last] for n in range(1, length + 1)}


class TestSteps:
    def test_good_composites(self) -> None:
        """Composites as strong as their steps have no issue."""
        steps: Steps = {"all": ["mail:list", "both"], "both": ["mail:draft", "mail:send"]}
        assert found(steps, {"all": SURE, "both": SURE}) == []

    def test_a_step_that_names_no_command(self) -> None:
        """A step that names no command of this or an installed pack is a missing verb."""
        assert found({"all": ["none", "mail:none", "mail:list"]}) == [
            ("missing_verb", "all/steps/0/verb_key", "no command none of flow"),
            ("missing_verb", "all/steps/1/verb_key", "no command none of mail"),
        ]

    def test_packs_that_are_not_installed(self) -> None:
        """Of a pack that is not known nothing is judged."""
        assert found({"all": ["other:anything"]}) == []

    @pytest.mark.spec("4.5.2")
    @pytest.mark.spec("4.5.5")
    @pytest.mark.parametrize("name", ["confirm", "apply"])
    @pytest.mark.parametrize(
        "value",
        [True, False, "true", 1, None, {"$arg": "sure"}, {"$step": [0]}, {"confirm": True}, [{"$arg": "confirm"}]],
    )
    def test_a_literal_confirm(self, name: str, value: object) -> None:
        """A step gives no confirmation of its own."""
        reason = 'belongs to the runtime; a step may pass it only as {"$arg": "confirm"}'
        assert found({"all": ["mail:list", step("mail:send", **{name: value})]}, {"all": SURE}) == [
            ("reserved_arg", f"all/steps/1/args/{name}", reason)
        ]

    def test_the_callers_confirm_may_be_passed(self) -> None:
        """The caller's confirm may stand where a step wants one."""
        passed = step("mail:send", confirm={"$arg": "confirm"}, apply={"$arg": "apply"})
        assert found({"all": [passed]}, {"all": SURE}) == []


class TestEscalation:
    @pytest.mark.spec("4.5.5")
    @pytest.mark.parametrize(
        ("own", "key", "reasons"),
        [
            (READ, "mail:draft", ["a read that runs draft of mail, a write"]),
            (
                READ,
                "mail:send",
                ["a read that runs send of mail, a write", "without confirm, and runs send of mail, which wants it"],
            ),
            (WRITE, "mail:send", ["without confirm, and runs send of mail, which wants it"]),
            ({**WRITE, "confirm": False}, "mail:send", ["without confirm, and runs send of mail, which wants it"]),
            (WRITE, "mail:draft", []),
            (SURE, "mail:list", []),
        ],
    )
    def test_weaker_than_a_step(self, own: dict[str, Any], key: str, reasons: list[str]) -> None:
        """A composite whose operation or confirm is weaker than a step's escalates, at that step."""
        issues = found({"all": ["mail:list", key]}, {"all": own})
        assert issues == [("composite_escalation", "all/steps/1", reason) for reason in reasons]

    def test_weaker_than_a_step_of_a_step(self) -> None:
        """What a step runs counts as well, also where the composite between comes from another pack."""
        verbs = {"note": {"steps": [step("mail:draft")]}, "notify": {"steps": [step("mail:send")]}}
        between = read_pack(*files("relay", verbs, {"note": READ, "notify": WRITE}, "composite"), b"")
        assert found({"a": ["relay:note"], "b": ["relay:notify"]}, {"a": READ, "b": WRITE}, between) == [
            ("composite_escalation", "a/steps/0", "a read that runs note of relay, a write"),
            ("composite_escalation", "b/steps/0", "without confirm, and runs notify of relay, which wants it"),
        ]

    def test_without_an_entry_only_that_is_told(self) -> None:
        """A composite without a policy entry is a missing verb and nothing more."""
        issues = found({"all": ["mail:send"]}, {"x": READ})
        assert [kind for kind, _, _ in issues] == ["missing_verb", "extra_verb"]

    @pytest.mark.parametrize(
        ("steps", "ways"),
        [
            ({"a": ["a"]}, ["a of flow → a of flow"]),
            (
                {"a": ["mail:list", "b"], "b": ["a"]},
                ["a of flow → b of flow → a of flow", "b of flow → a of flow → b of flow"],
            ),
            ({"a": ["flow:b"], "b": ["b"]}, ["a of flow → b of flow → b of flow", "b of flow → b of flow"]),
        ],
    )
    def test_circles(self, steps: Steps, ways: list[str]) -> None:
        """Composites that lead back to themselves, or into a circle, are told with the way."""
        assert [(kind, reason) for kind, _, reason in found(steps)] == [
            ("composite_escalation", f"runs in a circle: {way}") for way in ways
        ]

    def test_a_circle_over_two_packs(self) -> None:
        """A circle through another pack is found when that pack is installed first."""
        other = read_pack(*files("relay", {"on": {"steps": [step("flow:a")]}}, {"on": READ}, "composite"), b"")
        assert [reason for _, _, reason in found({"a": ["relay:on"]}, None, other)] == [
            "runs in a circle: a of flow → on of relay → a of flow"
        ]

    @pytest.mark.parametrize("last", ["mail:list", "other:unknown"])
    def test_depth(self, last: str) -> None:
        """Exactly four composites deep is allowed, five are told with the way."""
        assert found(chain(4, last)) == []
        way = "more than 4 composites deep: " + " → ".join(f"c{n} of flow" for n in range(1, 6))
        assert found(chain(5, last)) == [("composite_escalation", "c1/steps", way)]
        assert [place for _, place, _ in found(chain(7, last))] == ["c1/steps", "c2/steps", "c3/steps"]

    def test_steps(self) -> None:
        """32 commands are allowed and 33 are not, those of inner composites counted."""
        inner: Steps = {"half": ["mail:list"] * 16}
        assert found({"all": ["mail:list"] * 32}) == []
        assert found({**inner, "all": ["half", "half"]}) == []
        assert found({"all": ["other:unknown"] * 33}) == [
            ("composite_escalation", "all/steps", "runs 33 commands, the limit is 32")
        ]
        assert found({**inner, "all": ["half", "half", "mail:list"]}) == [
            ("composite_escalation", "all/steps", "runs 33 commands, the limit is 32")
        ]

    def test_hostile_sizes(self) -> None:
        """Thousands of composites in chains, circles and layers are judged without recursion, each once."""
        count = 800
        long_chain = [reason for _, _, reason in found(chain(count, "mail:list"))]
        assert (len(long_chain), long_chain[0][:27]) == (count - 4, "more than 4 composites deep")
        circle = {f"c{n}": [f"c{(n + 1) % count}"] for n in range(count)}
        assert len(found(circle)) == count
        layers = {f"l{n}": [f"l{n + 1}"] * 32 if n < 4 else ["mail:list"] * 32 for n in range(1, 5)}
        assert [reason for _, place, reason in found(layers) if place == "l1/steps"] == [
            "runs 1048576 commands, the limit is 32"
        ]


def test_lint_takes_anything_with_manifest_and_policy() -> None:
    """Parsed files can be judged without a pack around them."""
    surface, policy = files("flow", {"a": {"steps": [step("mail:send")]}}, {"a": SURE}, "composite")
    assert lint(parse_manifest(surface), parse_policy(policy), {"mail": mail()}) == []
