"""`check`: exit codes, what people read and what programs read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sense_worker.cli import main

ROOT = Path(__file__).resolve().parents[3]
PACKS = sorted(path.parent for path in (ROOT / "examples/packs").glob("*/surface.json"))
GRANTED = """\
scenario: 1
packs: [{surface: {id: mail, adapter: sense_only, stimulusTriggers: [{ref: new_item}]},
         policy: {surface_id: mail, version: 1, verbs: {},
                  stimuli: {new_item: {operation: read, privacy: {land: personal}}}}}]
principals: {ana: {kind: human, tenant: acme}}
grants: [{principal: ana, capability: sense.enable, pack: mail}]
activations: {a1: {session: ana, pack: mail}}
routes: {r1: {principal: ana, pack: mail, ref: new_item, sink: inbox}}
cases:
  - name: ana hears of it
    sense: {activation: a1, ref: new_item, data: {}}
    expect: {r1: delivered}
"""
DIFFERS = GRANTED.replace("[{principal: ana, capability: sense.enable, pack: mail}]", "[]")


@pytest.fixture
def check(tmp_path, capsys):
    """Write files by name and check them in this order; names with nothing to write are not there."""

    def run(*options, **files):
        for name, text in files.items():
            if text is not None:
                (tmp_path / name).write_text(text)
        code = main.run(["check", *(str(tmp_path / name) for name in files), *options])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"a": GRANTED}, 0),
        ({"a": DIFFERS}, 1),
        ({"a": "scenario: 2"}, 2),
        ({"a": None}, 2),
        ({"a": GRANTED, "b": GRANTED}, 0),
        ({"a": DIFFERS, "b": GRANTED}, 1),
        ({"a": "scenario: 2", "b": DIFFERS}, 2),
        ({"a": DIFFERS, "b": None, "c": GRANTED}, 2),
        ({"a": "scenario: 1"}, 0),
    ],
)
def test_the_worst_file_gives_the_exit_code(check, files, code):
    """0 all hold, 1 a diff, 2 a file that cannot be read; every file is told of, whatever the others do."""
    found, out, _ = check("--json", **files)
    told = json.loads(out)
    assert (found, told["v"], told["ok"], len(told["files"])) == (code, 1, code == 0, len(files))


def test_no_file_is_a_wrong_call(capsys):
    """Nothing to check is no success."""
    assert main.run(["check"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_people_read_what_was_got_and_which_step_decided(check, tmp_path):
    """A case that holds is one line and its outcomes; one that differs also shows what was expected."""
    assert check(a=GRANTED) == (
        *(0, f"ok    ana hears of it\n        r1: delivered  [deliver]\n{tmp_path}/a: 1 of 1 cases hold\n", ""),
    )
    code, out, err = check(a=DIFFERS)
    assert (code, err, out.splitlines()) == (
        *(1, ""),
        [
            "DIFF  ana hears of it",
            "        r1: denied: missing sense.enable  [require_capability §9.7.sense]",
            "          expected: delivered",
            f"{tmp_path}/a: 0 of 1 cases hold",
        ],
    )


def test_a_file_that_cannot_be_read_is_one_line_on_standard_error(check, tmp_path):
    """The others are checked and told of all the same."""
    code, out, err = check(a="scenario: 1\ncolour: green\n", b=GRANTED)
    assert (code, err.count("\n"), err.startswith(f"error: {tmp_path}/a /colour: unknown field")) == (2, 1, True)
    assert out.endswith(f"{tmp_path}/b: 1 of 1 cases hold\n")


def test_a_pack_that_is_not_installed_is_told(check):
    """With its reason: otherwise a case that is refused for it is a riddle."""
    _, out, _ = check(a=GRANTED.replace("version: 1,", "version: 2,"))
    assert "pack mail is not installed: policy.json /version: must be the integer 1, not 2" in out


def test_a_route_too_many_and_one_too_few_are_shown(check):
    """Each under its name."""
    _, out, _ = check(a=GRANTED.replace("{r1: delivered}", "{r2: delivered}"))
    assert [line.strip() for line in out.splitlines()[1:-1]] == [
        *("r1: delivered  [deliver]", "expected: nothing", "r2: nothing", "expected: delivered"),
    ]


def test_programs_read_a_versioned_contract(check, tmp_path):
    """Names may be added within version 1, never renamed or removed."""
    _, out, _ = check("--json", a=DIFFERS, b="scenario: 2")
    assert json.loads(out) == {
        "v": 1,
        "ok": False,
        "files": [
            {
                "file": f"{tmp_path}/a",
                "ok": False,
                "cases": [
                    {
                        "name": "ana hears of it",
                        "kind": "sense",
                        "ok": False,
                        "expected": {"r1": "delivered"},
                        "got": {"r1": "denied: missing sense.enable"},
                        "decided": {"r1": {"step": "require_capability", "clause": "9.7.sense", "detail": None}},
                    }
                ],
                "packs_refused": [],
                "warnings": [],
            },
            {
                "file": f"{tmp_path}/b",
                "ok": False,
                "error": f"{tmp_path}/b /scenario: must be the integer 1, not 2 (see docs/scenarios.md)",
                "cases": [],
            },
        ],
    }


@pytest.mark.case("C62")
def test_names_cannot_forge_a_line(check):
    """Control characters of a file are escaped wherever they are shown."""
    _, out, _ = check(a=DIFFERS.replace("ana hears of it", '"x\\n\\e[2Kok    forged"'))
    assert [line[:5] for line in out.splitlines() if "forged" in line] == ["DIFF "]
    assert "\x1b" not in out
    code, _, err = check(a=DIFFERS.replace("session: ana", 'session: "x\\n\\e[2Kerror: forged"'))
    assert (code, err.count("\n"), "\x1b" in err) == (2, 1, False)


def test_every_example_pack_carries_a_scenario_that_holds(tmp_path):
    """As their authors run them: no home, no settings, no server, from anywhere; nothing is written."""
    done = subprocess.run(
        [sys.executable, "-m", "sense_worker.cli.main", "check", *(str(pack / "scenario.yaml") for pack in PACKS)],
        env={"HCP_HOME": str(tmp_path / "home"), "SENSE_INTAKE": "nonsense", "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stderr, "DIFF" in done.stdout) == (0, "", False), done.stdout
    assert list(tmp_path.iterdir()) == []


def test_there_are_example_packs():
    """The test above has something to test."""
    assert {"git"} <= {pack.name for pack in PACKS}
