"""The demo as a newcomer runs it: real server, real worker, real git."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PACK = Path(__file__).resolve().parents[2] / "examples" / "packs" / "git"
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on PATH")


@pytest.fixture
def folder(tmp_path):
    """A folder for temporary files of the demo, short enough for a socket; at the end nothing may be left in it."""
    yield tmp_path
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith("sense-demo-")]
    living = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and plays_in(tmp_path, entry)]
    assert (left, living) == ([], [])


def plays_in(folder, process):
    """Whether a process belongs to a demo of this folder."""
    try:
        known = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        return f"{folder}/sense-demo-".encode() in known
    except OSError:
        return False


def demo(folder, *arguments):
    """Start the demo; settings of the caller must not reach it."""
    return subprocess.Popen(
        [sys.executable, "-m", "sense_worker.cli.main", "demo", *arguments],
        env={**os.environ, "TMPDIR": str(folder), "SENSE_REDIS_URL": "redis://127.0.0.1:1", "SENSE_INTAKE": "nonsense"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def audit_is_whole(home):
    """Ask the command line about a home."""
    verify = [sys.executable, "-m", "sense_worker.cli.main", "audit", "verify"]
    return subprocess.run(verify, env={**os.environ, "HCP_HOME": str(home)}, check=False).returncode == 0


@pytest.mark.spec("9.7.sense")
@pytest.mark.spec("4.5.2")
def test_commits_arrive_and_commands_run_and_what_has_no_grant_does_not(folder):
    """Everything the story says happened, as one object; `--keep` leaves what happened to be looked at."""
    process = demo(folder, "--json", "--keep")
    out, err = process.communicate(timeout=100)

    assert (process.returncode, err) == (0, "")
    told = json.loads(out)
    assert (told["v"], told["ok"]) == (1, True)
    assert sorted(told["delivered"]["delivered"]) == ["ana -> ana-log: delivered", "ana -> inbox: delivered"]
    assert told["missing_grant"]["denied"] == ["ana -> inbox: denied: missing sense.enable"]
    assert sorted(told["revoked"]["denied"]) == [
        "ana -> ana-log: denied: missing sense.enable",
        "ana -> inbox: denied: missing sense.enable",
    ]
    assert told["audit"]["denials"] == 3
    for chapter in ("missing_grant", "revoked"):
        for route in told[chapter]["explained"]["routes"]:
            outcomes = {step["name"]: step["outcome"] for step in route["steps"]}
            assert (route["clause"], outcomes["require_land"]) == ("§9.7.sense", "passed")
            assert outcomes["require_capability"] == "denied: missing sense.enable"
    assert told["revoked"]["explained"]["without"] == {"denied: privacy.land personal": 1}
    assert_commands(told)
    kept = Path(told["kept"]["folder"])
    assert (kept.parent, (kept / "repository" / ".git").is_dir()) == (folder, True)
    assert audit_is_whole(kept / "home")
    shutil.rmtree(kept)


def assert_commands(told):
    """A read, a denied write, one that lacks its confirmation, and the same one confirmed, all of one repository."""
    write = ["git.commit", "Commit by a command"]
    asked = {name: told[name]["asked"].partition(" ") for name in ("read", "denied_write", "unconfirmed", "confirmed")}
    args = {name: (verb, json.loads(text)) for name, (verb, _, text) in asked.items()}
    assert args == {
        "read": ("git.log", {"limit": 2}),
        "denied_write": (write[0], {"message": write[1], "confirm": True}),
        "unconfirmed": (write[0], {"message": write[1]}),
        "confirmed": (write[0], {"message": write[1], "confirm": True}),
    }
    assert [line[41:] for line in told["read"]["result"]] == ["Write the second note", "Write the first note"]
    outcomes = {name: (told[name]["ok"], told[name].get("error"), told[name]["in_the_audit"]) for name in asked}
    assert outcomes == {
        "read": (True, None, ["exec"]),
        "denied_write": (False, "denied: missing verb.exec.write for git.commit", ["exec"]),
        "unconfirmed": (False, "confirm required", ["exec"]),
        "confirmed": (True, None, ["exec.begin", "exec.end"]),
    }
    assert told["confirmed"]["commit"] not in (told["delivered"]["commit"], told["revoked"]["commit"])
    folder = Path(told["kept"]["folder"]) / "repository"
    log = ["git", "-C", str(folder), "log", "--format=%H %s", "-n", "1"]
    newest = subprocess.run(log, capture_output=True, text=True, check=True).stdout.strip()
    assert newest == f"{told['confirmed']['commit']} Commit by a command"


@pytest.mark.long
def test_what_does_not_happen_fails_the_demo(folder):
    """A pack that is not the git pack: exit 1, one object that says so, the end of the log on standard error."""
    other = folder / "pack"
    shutil.copytree(PACK, other)
    (other / "install-hooks.sh").write_text("#!/bin/sh\necho 'no hooks today' >&2\nexit 3\n")

    process = demo(folder, "--json", "--pack", str(other))
    out, err = process.communicate(timeout=100)

    assert process.returncode == 1
    assert json.loads(out) == {"v": 1, "ok": False, "error": f"{other}/install-hooks.sh: exit code 3: no hooks today"}
    assert err.splitlines()[-1] == f"error: {other}/install-hooks.sh: exit code 3: no hooks today"
    assert any("ready: private" in line for line in err.splitlines())


@pytest.mark.long
def test_an_interrupt_leaves_nothing_behind(folder):
    """Ctrl-C in the middle: exit 130, no folder, no process."""
    process = demo(folder)
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == 130


def test_outside_a_checkout_the_demo_says_what_it_needs(monkeypatch, tmp_path):
    """An installed copy has no examples: the line names the option."""
    from runtime_core.errors import UsageError
    from sense_worker import demo as module

    monkeypatch.setattr(module, "__file__", str(tmp_path / "sense_worker" / "demo.py"))

    with pytest.raises(UsageError) as refused:
        module.find_pack()

    assert refused.value.way_out == "give --pack PATH to examples/packs/git of a checkout"
