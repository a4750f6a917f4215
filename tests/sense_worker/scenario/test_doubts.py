"""What an author most likely did not mean: told with its place, and refused only where it means nothing."""

from __future__ import annotations

import json
import os

import pytest

from tests.sense_worker.scenario.files import POLICY, SURFACE, WORLD, sense, step

BAD = {"surface": SURFACE, "policy": {**POLICY, "version": True}}
GRANT = WORLD["grants"][0]


def told(check, *cases, **sections):
    """Check and return the warnings, places cut to what follows the file's name."""
    done = check(*cases, **sections)
    return [line.removeprefix(f"{check.path} ") for line in done.file["warnings"]]


def test_a_replacement_that_was_refused_is_told_with_its_case(check):
    """In the listing and in JSON; what was in force goes on."""
    check.holds(step("replace", BAD), sense({"r1": "delivered"}))
    done = check.run(str(check.path), "--json")
    [refused] = done.file["packs_refused"]
    assert (refused["pack"], refused["place"], refused["case"]) == ("mail", "cases[0]", 0)
    assert (
        "cases[0]: the pack mail is not replaced, the one before stays: policy.json" in check.run(str(check.path)).out
    )


def test_a_refused_pack_of_which_nothing_is_expected_is_a_warning(check):
    """It is simply not installed; said twice, and one without an id is named by its position."""
    nameless = {"surface_text": "{", "policy_text": ""}
    packs = [WORLD["packs"][0], nameless]
    [line] = told(check, packs=packs)
    assert line.startswith("packs[1] is not installed: surface.json")
    done = check.run(str(check.path))
    assert (done.code, "pack packs[1] is not installed" in done.out, done.err.count("warning: ")) == (0, True, 1)
    assert told(check, packs=[BAD], rejected={"mail": "policy"}, grants=None, routes=None, activations=None) == []


def test_a_folder_without_a_file_is_named_as_the_cause(check, tmp_path):
    """Where a row needs the pack, the missing file is told and not the missing name alone."""
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "surface.json").write_text(json.dumps(SURFACE))
    (folder / "policy.json").write_text(json.dumps(POLICY))
    reason = "there is no pack 'mail' in this scenario; packs[0] was refused: "
    check.wrong("/activations/a1/pack", reason, packs=["broken"])
    check.wrong("/activations/a1/pack", "HARNESS.md: no such file", packs=["broken"])


def test_keys_and_refs_that_no_pack_declares_are_warnings(check):
    """A typing error denies silently otherwise; `*`, the keys of replacements and of refused packs are none."""
    lines = told(check, grants=[{**GRANT, "keys": ["new_itm", "new_item"]}, {**GRANT, "pack": "*", "keys": ["x"]}])
    assert [line.partition(":")[0] for line in lines] == ["/grants/0/keys", "/grants/1/keys"]
    assert "'new_itm'" in lines[0]
    route = WORLD["routes"]["r1"]
    [line] = told(check, routes={"r1": {**route, "ref": "new_itm"}, "r2": {**route, "ref": "*"}})
    assert line == "/routes/r1/ref: 'new_itm' is declared by no trigger of mail"
    renamed = json.loads(json.dumps(WORLD["packs"][0]).replace("new_item", "later"))
    assert told(check, step("replace", renamed), grants=[{**GRANT, "keys": ["later"]}]) == []


@pytest.mark.parametrize("change", ["join", "leave"])
def test_a_project_that_no_row_names_is_an_error(check, change):
    """A step cannot be about it."""
    check.wrong(
        *(f"/cases/0/step/{change}/project", "there is no project 'apolo'"),
        step(change, {"principal": "ana", "project": "apolo"}),
    )


def test_names_that_stand_twice_are_errors_where_they_are_meant(check):
    """Two packs with one id; two sense cases with one name where `again` asks for it."""
    pack = WORLD["packs"][0]
    check.wrong("/packs/1", "the pack 'mail' is packs[0] already", packs=[pack, pack])
    twice = [sense({"r1": "delivered"}, name="one"), sense({"r1": "delivered"}, name="one")]
    check.holds(*twice)
    again = {"again": "one", "expect": {"r1": "delivered"}}
    check.wrong("/cases/1/name", "cases[0] has the name 'one' too", *twice, again)
    check.wrong("/packs/0", "must not be empty", packs=[""])


def test_a_missing_capability_tells_which_grants_were_near(check):
    """For a delivery and for an install; nothing is told of who has none."""
    grants = [{**GRANT, "keys": ["saved_item"]}, {**GRANT, "project": "apollo"}]
    case = {"install": {"principal": "ana", "pack": "mail"}, "expect": {"ok": False}}
    install = {"principal": "ana", "capability": "pack.install", "pack": "git"}
    done = check(sense({}), case, grants=[*grants, install])
    sensed, installed = done.file["cases"]
    near = "ana has sense.enable for mail keys [saved_item]; for mail in project apollo"
    assert sensed["decided"]["r1"]["detail"] == near
    assert installed["decided"]["error"]["detail"] == "ana has pack.install for git"
    assert check(sense({}), grants=[]).file["cases"][0]["decided"]["r1"]["detail"] is None


def test_faults_are_told_in_the_words_of_a_scenario(check):
    """The activation and not the field `c`; how many kinds a case has; a grant as it is written; a way out of YAML."""
    done = check(sense({}, activation="nobody"))
    detail = done.file["cases"][0]["decided"]["refused"]["detail"]
    assert detail == "activation: names no activation of this tenant"
    done = check(sense({}, id=""))
    assert done.file["cases"][0]["decided"]["refused"]["detail"].startswith("id: ")
    check.wrong("/cases/0", "this one has none of them", {"expect": {}})
    check.wrong("/cases/0", "this one has sense and again", {**sense({}), "again": "x"})
    lone = {"principal": "eve", "capability": "sense.enable", "pack": "git"}
    check.wrong("/cases/0/step/revoke", f"no grant equals {json.dumps(lone)} (write it as", step("revoke", lone))
    check.refused(f"{check.path} line 2", "(write it as YAML: ", check.text("a: [\nb: ]: ,\n"))


def test_what_is_no_regular_file_is_refused_and_not_waited_for(check, tmp_path):
    """A pipe that nobody writes to, a device without an end, a folder."""
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "pipe", "no regular file"),
        ("/dev/zero", "no regular file"),
        (tmp_path, "Is a d"),
    ):
        check.refused(str(path), reason, check.run(str(path), "--json"))
