"""What a tool finds around it: its environment, its open files, its folders, no input and no terminal (C27, C30)."""

from __future__ import annotations

import json
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.adapters import walls
from runtime_core.pack import PackRevision, read_pack
from tests.runtime_core.adapters.wrapping import Wrapped, script, stdout

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRETS = {
    "SENSE_DATABASE_URL": "postgresql://sense:canary-db@db.test/sense",
    "SENSE_REDIS_URL": "redis://:canary-broker@redis.test/0",
    "SENSE_SECRET_KEYS": "canary-key",
    "DATABASE_URL": "canary-db-2",
    "CELERY_BROKER_URL": "canary-broker-2",
    "AWS_SECRET_ACCESS_KEY": "canary-cloud",
    "GOOGLE_APPLICATION_CREDENTIALS": "/canary-cloud.json",
    "SSH_AUTH_SOCK": "/tmp/canary-agent",
    "MY_API_KEY": "canary-made-up",
    "GITHUB_TOKEN": "canary-token",
    "LD_PRELOAD": "",
    "PYTHONPATH": "/canary",
    "BASH_ENV": "/canary",
}
FIXED = {"PATH", "HOME", "TMPDIR"}
BINDING = {"mode": "user", "hub": "keyring", "env": {"TOOL_TOKEN": "secret"}}
STEP = {"pack_id": "tools", "verb_key": "tools.run"}
DUMP = """
import json, os, sys
json.dump({"env": dict(os.environ), "argv": sys.argv}, open("seen.json", "w"))
print(os.environ.get("TOOL_TOKEN"), file=sys.stderr)
print("token is", os.environ.get("TOOL_TOKEN"))
"""


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Fill the worker's environment with what no tool may see."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    return SECRETS


@pytest.fixture
def open_files(tmp_path: Path) -> Iterator[None]:
    """Open a file and a socket in the worker, both inheritable."""
    descriptor = os.open(tmp_path / "open", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(descriptor, True)
    with socket.socket() as listening:
        listening.set_inheritable(True)
        yield
    os.close(descriptor)


@pytest.mark.case("C27")
@pytest.mark.spec("1.5.sandbox")
@pytest.mark.parametrize("declared", [[], ["LANG", "TZ"], sorted(SECRETS), ["PATH", "HOME", "LD_LIBRARY_PATH", "USER"]])
def test_a_tool_sees_the_documented_names_and_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rung: str, secrets: dict[str, str], open_files: None, declared: Any
):
    """Of the worker's environment only what is allowed and declared comes through; of its open files none."""
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    world = Wrapped(tmp_path, "C27-standin.py")
    found = json.loads(stdout(world.run([], env=declared)))
    named = {"LANG", "TZ"} & set(declared)
    own = {"LC_CTYPE"} - named  # Python's own, where no locale is set
    assert found["env"].keys() - {"PWD"} - own == FIXED | named
    assert ("PWD" in found["env"]) == (rung == "bubblewrap"), "bubblewrap sets it"
    plain = stdout(Wrapped(tmp_path, tool="/usr/bin/env").run([], env=declared))
    assert {line.partition("=")[0] for line in plain.splitlines()} - {"PWD"} == FIXED | named
    assert found["env"]["HOME"] == found["env"]["TMPDIR"] == found["cwd"]
    assert Path(found["cwd"]).parent == world.jails
    assert found["env"]["PATH"] == "/usr/local/bin:/usr/bin:/bin"
    assert found["fds"].keys() == {"0", "1", "2"}
    assert found["fds"]["0"] == "/dev/null"
    assert found["fds"]["1"].startswith("pipe:")
    assert "canary" not in json.dumps(found)
    assert not Path(found["cwd"]).exists()


@pytest.mark.case("C27")
def test_material_reaches_the_tool_by_its_environment_alone(
    tmp_path: Path, rung: str, secrets: dict[str, str], caplog: pytest.LogCaptureFixture
):
    """What was minted stands under its name in the tool's environment; not in argv, result, audit, log or files."""
    caplog.set_level(logging.DEBUG)
    workspace = tmp_path / "ws"
    workspace.mkdir()
    world = Wrapped(tmp_path, DUMP)
    world.hub.fields = {"secret": "canary-minted", "other": "canary-other"}
    answer = world.run(["-x", "{v}"], {"v": "plain"}, workspace=workspace, binding=BINDING)
    seen = json.loads((workspace / "seen.json").read_text())
    assert seen["env"]["TOOL_TOKEN"] == "canary-minted"
    assert "canary-other" not in json.dumps(seen)
    assert seen["argv"] == [world.tool, "-x", "plain"]
    assert answer.result == {"stdout": "token is ***\n", "stderr": "***\n"}
    assert "canary" not in answer.plain().__repr__() + caplog.text + str(world.audit.records)
    assert [record.binding for record in world.audit.records] == ["ana@service"] * 2


@pytest.mark.case("C27")
def test_a_step_of_a_composite_sees_no_more(tmp_path: Path, rung: str, secrets: dict[str, str], open_files: None):
    """A tool that runs as a step of a composite finds what it finds by itself."""
    world = Wrapped(tmp_path, "C27-standin.py")
    surface = {"id": "both", "adapter": "composite", "verbs": {"both.run": {"steps": [STEP, STEP]}}}
    entry = {"operation": "write", "privacy": {"land": "personal"}}
    policy = {"surface_id": "both", "version": 1, "verbs": {"both.run": entry}, "stimuli": {}}
    pack = read_pack(json.dumps(surface).encode(), json.dumps(policy).encode(), b"# Both\n")
    world.run([])
    answer = world.executed(PackRevision("acme", 1, pack, {}), pack_id="both", verb_key="both.run")
    assert (answer.ok, answer.error) == (True, None)
    for step in answer.result["steps"]:
        found = json.loads(step["result"]["stdout"])
        assert found["env"].keys() <= {*FIXED, "PWD", "LC_CTYPE"}
        assert found["fds"].keys() == {"0", "1", "2"}
    assert "canary" not in str(answer)


@pytest.mark.case("C27")
def test_no_argv_of_any_process_of_a_run_holds_material_or_args(tmp_path: Path, rung: str):
    """While a tool runs, no argv on the host holds its material, and only its own holds its args."""
    world = Wrapped(
        tmp_path,
        """
import os
from pathlib import Path
for place in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        print(place.parent.name == str(os.getpid()), place.read_bytes())
    except OSError:
        pass
""",
    )
    world.hub.fields = {"secret": "canary-minted"}
    seen = stdout(world.run(["{v}"], {"v": "canary-arg"}, binding=BINDING))
    assert "canary-minted" not in seen
    assert "***" not in seen
    holding = [line for line in seen.splitlines() if "canary-arg" in line]
    assert any(line.startswith("True") for line in holding)
    assert all(line.startswith("True") or "bwrap" in line for line in holding)


@pytest.mark.parametrize("name", ["PATH", "HOME", "TMPDIR"])
def test_material_takes_no_fixed_name(tmp_path: Path, name: str):
    """A pack that maps material to a fixed name changes nothing of it."""
    world = Wrapped(tmp_path, "C27-standin.py")
    world.hub.fields = {"secret": "/canary"}
    found = json.loads(stdout(world.run([], binding={**BINDING, "env": {name: "secret"}})))
    assert "/canary" not in found["env"][name]


@pytest.mark.case("C30")
@pytest.mark.parametrize(("kind", "code", "said"), [("stdin", 0, "read 0 characters"), ("tty", 1, "no terminal")])
def test_a_tool_that_waits_for_input_ends_at_once(tmp_path: Path, rung: str, kind: str, code: int, said: str):
    """Standard input is at its end, and there is no terminal: the tool ends by itself, long before its time."""
    answer = Wrapped(tmp_path, "C30-reads-stdin.py").run([kind], timeout_s=60)
    assert said in answer.result["stdout"] + answer.result["stderr"]
    assert answer.error == (None if code == 0 else f"exited {code}")


@pytest.mark.case("C30")
def test_a_tool_cannot_take_a_terminal(tmp_path: Path, rung: str):
    """A tool that opens a terminal device by its name does not become its session's leader."""
    leader, follower = os.openpty()
    name = os.ttyname(follower)
    try:
        world = Wrapped(
            tmp_path,
            f"""
import os
try:
    os.open({name!r}, os.O_RDWR)
    open("/dev/tty")
except OSError as error:
    print("none", os.getpid() == os.getsid(0))
""",
        )
        assert stdout(world.run([])) == "none False\n"
    finally:
        os.close(leader)
        os.close(follower)


def test_signals_are_as_a_shell_would_leave_them(tmp_path: Path, rung: str):
    """A tool starts with no signal blocked or ignored: `yes | head` ends."""
    world = Wrapped(
        tmp_path, '#!/bin/bash\nyes | head -1; echo "${PIPESTATUS[0]}"; grep -E "SigBlk|SigIgn" /proc/self/status'
    )
    assert stdout(world.run([])).split() == ["y", "141", "SigBlk:", "0" * 16, "SigIgn:", "0" * 16]


@pytest.mark.spec("1.5.sandbox")
def test_native_local_has_its_account_home_and_no_walls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The opt-out gives the account's HOME and takes away walls and no-new-privileges; the rest holds."""
    monkeypatch.setenv("HOME", str(tmp_path / "account"))
    monkeypatch.setenv("MY_API_KEY", "canary")
    world = Wrapped(tmp_path, "#!/bin/sh\nenv; grep NoNewPrivs /proc/self/status\n")
    native, jailed = (world.run([], posture=posture) for posture in ("native-local", "sandbox"))
    assert f"HOME={tmp_path / 'account'}\n" in stdout(native)
    assert f"TMPDIR={world.jails}" in stdout(native)
    assert "canary" not in stdout(native) + stdout(jailed)
    assert "NoNewPrivs:\t0" in stdout(native)
    assert "NoNewPrivs:\t1" in stdout(jailed)
    assert native.plain().keys() == {"ok", "pack_id", "verb_key", "result"}


@pytest.mark.skipif(walls.bubblewrap().path is None, reason=walls.bubblewrap().reason)
def test_bubblewrap_hides_credentials_and_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Within bubblewrap the runtime's folder, the account's home and other processes are not there; / is read-only."""
    home, account, outside = tmp_path / "hcp", tmp_path / "account", tmp_path / "outside"
    for folder in (home, account / ".ssh", outside):
        folder.mkdir(parents=True)
    (home / "secret.keys").write_text("canary")
    (account / ".ssh" / "id").write_text("canary")
    monkeypatch.setenv("HOME", str(account))
    monkeypatch.setattr(walls, "_EMPTIED", ("/run",))  # the test's own folders are under /tmp
    workspace = account / "ws"
    workspace.mkdir()
    world = Wrapped(tmp_path, tool="/bin/sh", hidden=(home,))
    world.jails = home / "jails"
    text = (
        f"cat {home}/secret.keys; cat {account}/.ssh/id; cat /proc/{os.getpid()}/environ; ls /proc | grep -c '^[0-9]'; "
        f"touch {outside}/x; touch /usr/x; touch here; touch $HOME/here && ls $HOME"
    )
    answer = world.run(["-c", text], workspace=workspace)
    assert "canary" not in str(answer)
    assert answer.result["stdout"].split()[1:] == ["here"]
    assert int(answer.result["stdout"].split()[0]) < 8
    assert (workspace / "here").exists()
    assert not (outside / "x").exists()
    assert answer.result["stderr"].count("Read-only file system") == 2


def test_a_script_whose_interpreter_is_at_home_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rung: str):
    """The home folder is hidden only where nothing of the tool stands in it; its credentials always."""
    account = tmp_path / "account"
    (account / ".aws").mkdir(parents=True)
    (account / ".aws" / "credentials").write_text("canary")
    (account / ".netrc").write_text("canary")
    (account / "python").symlink_to("/usr/bin/env")
    monkeypatch.setenv("HOME", str(account))
    text = f"#!{account}/python sh\ncat {account}/.aws/credentials {account}/.netrc\necho ran\n"
    tool = script(tmp_path / "bin" / "other", text)
    answer = Wrapped(tmp_path, tool=tool).run([])
    assert stdout(answer) == ("ran\n" if rung == "bubblewrap" else "canarycanaryran\n")
