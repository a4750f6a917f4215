"""`pack lint`: needs nothing but the files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sense_worker.cli import main

CASES = Path(__file__).resolve().parents[2] / "cases"
SURFACE = {
    **json.loads((CASES / "C21-surface.json").read_text()),
    "version": "1.0.0",
    "adapter": {"kind": "wrap", "bin": "mail"},
    "binding": {"mode": "public", "hub": "none"},
    "sandbox": {"bins": ["mail"]},
    "verbs": {key: {"cli": [key]} for key in ("mail.list", "mail.send")},
}


def write_pack(folder, *, policy="C21-good.json", surface=None):
    """A pack with a policy of the case files beside their manifest."""
    (folder / "surface.json").write_text(json.dumps(SURFACE if surface is None else surface))
    (folder / "policy.json").write_bytes((CASES / policy).read_bytes())
    (folder / "HARNESS.md").write_text("# Mail\n")
    return str(folder)


def test_a_clean_pack_exits_0(tmp_path, capsys):
    """One line says so."""
    assert main.run(["pack", "lint", write_pack(tmp_path)]) == 0
    assert capsys.readouterr() == ("mail: clean\n", "")


@pytest.mark.spec("4.4.reject")
@pytest.mark.case("C21")
@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ("C21-missing-verb.json", "missing_verb"),
        ("C21-extra-verb.json", "extra_verb"),
        ("C21-missing-stimulus.json", "missing_stimulus"),
        ("C21-extra-stimulus.json", "extra_stimulus"),
        ("C21-write-stimulus.json", "write_stimulus"),
    ],
)
def test_issues_exit_1_each_on_a_line(policy, kind, tmp_path, capsys):
    """Every issue is a line that begins with its kind; in JSON they are items."""
    path = write_pack(tmp_path, policy=policy)

    assert main.run(["pack", "lint", path]) == 1
    people = capsys.readouterr()
    assert ([line.partition(":")[0] for line in people.out.splitlines()], people.err) == ([kind], "")

    assert main.run(["pack", "lint", path, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["v"], told["pack_id"], told["clean"], [item["kind"] for item in told["items"]]) == (
        1,
        "mail",
        False,
        [kind],
    )


@pytest.mark.case("C20")
@pytest.mark.parametrize("policy", ["C20-duplicate-operation.json", "C21-unknown-top.json", "C22-utf16-policy.json"])
def test_a_pack_with_a_file_that_does_not_parse_exits_2(policy, tmp_path, capsys):
    """One line names the file and the place in it; in JSON it is an item, and no pack has an id yet."""
    path = write_pack(tmp_path, policy=policy)

    assert main.run(["pack", "lint", path]) == 2
    people = capsys.readouterr()
    assert (people.out.count("\n"), people.out.startswith("parse: policy.json"), people.err) == (1, True, "")

    assert main.run(["pack", "lint", path, "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["pack_id"], told["clean"], [item["kind"] for item in told["items"]]) == (None, False, ["parse"])
    assert told["items"][0]["place"].startswith("policy.json")


@pytest.mark.spec("4.0.strict")
def test_every_fault_of_every_file_is_told_at_once(tmp_path, capsys):
    """Three files, five faults, one run; `pack install` names the first and the number of the others of its file."""
    send = {"cli": ["send"], "steps": [], "operationId": "send"}
    write_pack(tmp_path, surface={**SURFACE, "verbs": {"mail.list": {"cli": ["list"]}, "mail.send": send}})
    (tmp_path / "policy.json").write_text('{"v": 2, "verbs": {"mail.list": {"capability": "own"}}, "stimuli": {}}')
    (tmp_path / "HARNESS.md").write_bytes(b"\xff")

    assert main.run(["pack", "lint", str(tmp_path), "--json"]) == 2
    places = [item["place"] for item in json.loads(capsys.readouterr().out)["items"]]
    assert [place for place in places if place.startswith("surface.json")] == [
        "surface.json /verbs/mail.send/steps",
        "surface.json /verbs/mail.send/operationId",
    ]
    assert len([place for place in places if place.startswith("policy.json")]) > 1
    assert places[-1] == "HARNESS.md (byte 0)"


def test_a_path_that_is_no_pack_exits_2(tmp_path, capsys):
    """Neither a folder nor an archive."""
    assert main.run(["pack", "lint", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/nothing: ")


@pytest.mark.case("C23")
def test_an_archive_is_linted_like_a_folder(tmp_path, capsys):
    """An archive is read whole in memory; one that would write outside its folder is refused."""
    (tmp_path / "mail").mkdir()
    folder = write_pack(tmp_path / "mail")
    archive = shutil.make_archive(f"{folder}-packed", "zip", tmp_path, "mail")

    assert main.run(["pack", "lint", archive]) == 0
    assert capsys.readouterr() == ("mail: clean\n", "")
    assert main.run(["pack", "lint", str(CASES / "C23-traversal.zip")]) == 2


def test_an_unknown_field_of_the_manifest_is_a_warning(tmp_path, capsys):
    """Tolerated, and said."""
    path = write_pack(tmp_path, surface={**SURFACE, "colour": "green"})

    assert main.run(["pack", "lint", path]) == 0
    shown = capsys.readouterr()
    assert shown == ("mail: clean but for 1 warning\n", "warning: mail: surface.json /colour: unknown field, ignored\n")


def test_lint_needs_no_home_and_no_settings(tmp_path):
    """Nothing of the worker is imported or written, and a bad setting does not matter."""
    code = (
        "import sys; from sense_worker.cli.main import run; "
        f"assert run(['pack', 'lint', {write_pack(tmp_path)!r}]) == 0; "
        "print(sorted({'redis', 'celery', 'sqlalchemy', 'cryptography'} & set(sys.modules)))"
    )
    home = tmp_path / "home"

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"HCP_HOME": str(home), "SENSE_INTAKE": "nonsense"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert (done.stdout, done.stderr, home.exists()) == ("mail: clean\n[]\n", "", False)


MANY = {
    **SURFACE,
    "binding": {"mode": "user", "hub": "none"},
    "maxArgv": 3,
    "verbs": {"mail.list": {"cli": ["list"], "args": {"properties": {"confirm": {}}}}, "mail.send": {"cli": ["send"]}},
    "stimulusTriggers": [{"ref": "new_item"}, {"ref": "new_item"}],
}
MANY_POLICY = {
    "surface_id": "post",
    "version": 1,
    "verbs": {
        "mail.list": {"operation": "read", "privacy": {"land": "personal"}, "confirm": False},
        "mail.gone": {"operation": "write", "privacy": {"land": "personal"}},
    },
    "stimuli": {"other": {"operation": "read", "privacy": {"land": "personal"}}},
}
ISSUES = [
    ("binding_pair", "surface.json /binding/hub", "1.4.hubs"),
    ("passthrough", "surface.json /maxArgv", "1.5.passthrough"),
    ("duplicate_key", "surface.json /stimulusTriggers/1/ref", "1.3.trigger"),
    ("reserved_arg", "surface.json /verbs/mail.list/args", "4.5.2"),
    ("surface_id_mismatch", "policy.json /surface_id", "4.4.5"),
    ("missing_verb", "policy.json /verbs/mail.send", "4.4.1"),
    ("extra_verb", "policy.json /verbs/mail.gone", "4.4.2"),
    ("missing_stimulus", "policy.json /stimuli/new_item", "4.4.3"),
    ("extra_stimulus", "policy.json /stimuli/other", "4.4.4"),
    ("confirm_on_read", "policy.json /verbs/mail.list/confirm", "4.5.1"),
]


@pytest.mark.spec("4.4.reject")
def test_every_issue_is_told_at_once_with_place_and_clause(tmp_path, capsys):
    """Ten kinds in one pack: ten lines, ten items, one exit code; nobody mends one to meet the next."""
    path = write_pack(tmp_path, surface=MANY)
    (tmp_path / "policy.json").write_text(json.dumps(MANY_POLICY))

    assert main.run(["pack", "lint", path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [
        (line.startswith(f"{kind}: {place}"), line.endswith(f" [{clause}]"))
        for line, (kind, place, clause) in zip(lines, ISSUES, strict=True)
    ] == [(True, True)] * 10

    assert main.run(["pack", "lint", path, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [(item["kind"], item["place"], item["clause"]) for item in told["items"]] == ISSUES
    assert all(item["reason"] for item in told["items"])


@pytest.mark.parametrize("form", ["zip", "tar", "gztar"])
def test_issues_of_an_archive_are_those_of_its_folder(form, tmp_path, capsys):
    """The same lines and the same exit code."""
    (tmp_path / "mail").mkdir()
    folder = write_pack(tmp_path / "mail", policy="C21-extra-verb.json")
    archive = shutil.make_archive(f"{folder}-packed", form, folder)

    assert [main.run(["pack", "lint", folder]), main.run(["pack", "lint", archive])] == [1, 1]
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_a_command_that_cannot_work_is_a_warning(tmp_path, capsys):
    """A word that `args` does not know, and a write that asks nobody: told with place, and the pack stays good."""
    verbs = {"mail.list": {"cli": ["--", "{fil}"]}, "mail.send": {"cli": ["send"]}}
    path = write_pack(tmp_path, surface={**SURFACE, "verbs": verbs})
    policy = json.loads((tmp_path / "policy.json").read_text())
    del policy["verbs"]["mail.send"]["confirm"]
    (tmp_path / "policy.json").write_text(json.dumps(policy))

    assert main.run(["pack", "lint", path]) == 0
    shown = capsys.readouterr()
    assert shown.out == "mail: clean but for 2 warnings\n"
    assert [line.split(": ")[2] for line in shown.err.splitlines()] == [
        "surface.json /verbs/mail.list/cli/1",
        "policy.json /verbs/mail.send",
    ]

    assert main.run(["pack", "lint", path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["clean"], [f"warning: mail: {one}" for one in told["warnings"]]) == (True, shown.err.splitlines())


@pytest.mark.parametrize("name", ["lists", "a.b-c_d", "1", "1.5", "true", "null", "x" * 123])
def test_a_new_pack_is_clean_and_holds_its_scenario(name, tmp_path, monkeypatch, capsys):
    """Also under a name that YAML would read as something else."""
    monkeypatch.chdir(tmp_path)
    assert main.run(["pack", "new", name, "--path", "made", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["pack_id"], told["path"]) == (name, str(tmp_path / "made"))
    assert told["files"] == sorted(path.name for path in (tmp_path / "made").iterdir())

    assert [main.run(["pack", "lint", "made"]), main.run(["check", "made/scenario.yaml"])] == [0, 0]
    shown = capsys.readouterr()
    assert (shown.out.splitlines()[0], shown.err) == (f"{name}: clean", "")


@pytest.mark.parametrize("name", ["Lists", "", "-x", "a/b", "../x", "a b", "x" * 124])
def test_a_new_pack_needs_a_name_that_is_an_id(name, tmp_path, monkeypatch, capsys):
    """Nothing is written for another."""
    monkeypatch.chdir(tmp_path)
    assert main.run(["pack", "new", "--", name]) == 2
    assert capsys.readouterr().err.startswith("error: NAME: ")
    assert list(tmp_path.iterdir()) == []


def test_a_new_pack_overwrites_nothing(tmp_path, monkeypatch, capsys):
    """A folder with anything in it is refused, an empty one is taken."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lists").mkdir()
    assert main.run(["pack", "new", "lists"]) == 0
    (tmp_path / "lists" / "policy.json").write_text("mine")
    assert main.run(["pack", "new", "lists"]) == 2
    assert capsys.readouterr().err == (
        "error: --path: lists is there already, and nothing is overwritten (name another folder)\n"
    )
    assert (tmp_path / "lists" / "policy.json").read_text() == "mine"
