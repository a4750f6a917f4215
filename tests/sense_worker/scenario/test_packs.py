"""What a scenario says of its packs: the file that fails, the lint kinds, and names that stay valid (DESIGN §10)."""

from __future__ import annotations

import json

import pytest

from tests.provision import write_pack
from tests.sense_worker.scenario.files import POLICY, SURFACE, sense

GOOD = {"surface": SURFACE, "policy": POLICY}
LINT = {"surface": SURFACE, "policy": {**POLICY, "stimuli": {}}}
BROKEN = {
    "no JSON": ({"surface_text": "{", "policy": POLICY}, "surface"),
    "nothing": ({"surface_text": "", "policy_text": ""}, "surface"),
    "a duplicate": ({"surface_text": '{"id": "mail", "id": "mail"}', "policy": POLICY}, "surface"),
    "no adapter": ({"surface": {"id": "mail"}, "policy": POLICY}, "surface"),
    "a list": ({"surface": [], "policy": POLICY}, "surface"),
    "null": ({"surface": None, "policy": POLICY}, "surface"),
    "policy": ({"surface": SURFACE, "policy": {**POLICY, "version": "1"}}, "policy"),
    "policy text": ({"surface": SURFACE, "policy_text": "not JSON"}, "policy"),
    "both files": ({"surface": {"id": "mail"}, "policy_text": "not JSON"}, "surface"),
    "lint": (LINT, "lint"),
}
"""An inline pack, and the file that fails: surface before policy before lint."""


@pytest.mark.spec("4.4.reject")
@pytest.mark.parametrize("how", BROKEN)
def test_a_pack_that_fails_is_simply_not_installed(check, how):
    """`rejected` tells which file failed; its grants, activations and routes stay valid names; the others go on."""
    pack, file = BROKEN[how]
    other = {"surface": {**SURFACE, "id": "post"}, "policy": {**POLICY, "surface_id": "post"}}
    done = check.holds(
        sense({"refused": "pack_missing"}),
        sense({"r2": "delivered"}, activation="a2"),
        packs=[pack, other],
        rejected={"mail": file},
        activations={"a1": {"session": "ana", "pack": "mail"}, "a2": {"session": "ana", "pack": "post"}},
        routes={
            "r1": {"principal": "ana", "pack": "mail", "ref": "new_item", "sink": "inbox"},
            "r2": {"principal": "ana", "pack": "post", "ref": "new_item", "sink": "inbox"},
        },
        grants=[{"principal": "ana", "capability": "sense.enable", "pack": "*"}],
    )
    assert [one["pack"] for one in done.file["packs_refused"]] == ["mail"]


@pytest.mark.parametrize("how", BROKEN)
def test_its_names_are_valid_without_rejected_too(check, how):
    """Also where the file holds no id at all: then it is the pack that the rows name and nobody else is."""
    check.holds(sense({"refused": "pack_missing"}), packs=[BROKEN[how][0]])


def test_rejected_that_is_not_so_is_a_diff(check):
    """Another file, or no failure at all."""
    assert check(packs=[GOOD], rejected={"mail": "lint"}).got == [{"rejected": "installed"}]
    assert check(packs=[LINT], rejected={"mail": "policy"}).got == [{"rejected": "lint"}]
    assert check(packs=[BROKEN["no adapter"][0]], rejected={"mail": "lint"}).got == [{"rejected": "surface"}]
    assert check(packs=[LINT], rejected={"mail": "policy"}).code == 1


def test_two_unreadable_packs_take_the_names_in_order(check):
    """A third name stands for nothing."""
    nothing = {"surface_text": "", "policy_text": ""}
    world = {"packs": [nothing, GOOD, nothing], "activations": {}, "routes": {}}
    check.holds(**world, rejected={"one": "surface", "two": "surface"})
    check.wrong(
        "/rejected/three", "'three'", **world, rejected={"one": "surface", "two": "surface", "three": "surface"}
    )


def test_lint_kinds_are_a_set(check):
    """In any order; one that is missing or too many is a diff; a pack that fails its parse has none."""
    stimuli = {
        "new_item": {"operation": "write", "privacy": {"land": "personal"}},
        "ghost": POLICY["stimuli"]["new_item"],
    }
    pack = {"surface": SURFACE, "policy": {**POLICY, "surface_id": "post", "stimuli": stimuli}}
    kinds = ["write_stimulus", "missing_stimulus", "extra_stimulus", "surface_id_mismatch"]
    check.holds(packs=[pack], lint={"mail": kinds})
    check.holds(packs=[pack], lint={"mail": sorted(kinds)}, rejected={"mail": "lint"})
    for wrong in (kinds[1:], [*kinds, "extra_verb"], []):
        assert check(packs=[pack], lint={"mail": wrong}).code == 1
    check.holds(packs=[GOOD], lint={"mail": []})
    check.holds(packs=[BROKEN["policy"][0]], lint={"mail": []})
    assert check(packs=[GOOD], lint={"mail": ["extra_verb"]}).got == [{"lint": []}]


@pytest.mark.parametrize(
    ("spoil", "file"),
    [
        (lambda folder: (folder / "surface.json").write_text("{"), "surface"),
        (lambda folder: (folder / "policy.json").write_bytes(b"\xff"), "policy"),
        (lambda folder: (folder / "surface.json").unlink(), "surface"),
        (lambda folder: (folder / "policy.json").unlink(), "policy"),
        (lambda folder: (folder / "policy.json").write_text(json.dumps(LINT["policy"])), "lint"),
    ],
)
def test_a_folder_is_judged_as_an_inline_pack_is(check, tmp_path, spoil, file):
    """Where no file tells the id, it is the folder's name."""
    spoil(write_pack(tmp_path / "mail", SURFACE, POLICY))
    check.holds(sense({"refused": "pack_missing"}), packs=["mail"], rejected={"mail": file})
