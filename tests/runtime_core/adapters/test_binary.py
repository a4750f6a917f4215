"""Only the operator's allowed binary runs, looked at again at every spawn (§1.5.sandbox, C26)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runtime_core.errors import PackParseError
from runtime_core.manifest import parse_manifest
from runtime_core.pack import PackRevision, read_pack
from tests.runtime_core.adapters.wrapping import Wrapped, script, stdout

if TYPE_CHECKING:
    from collections.abc import Callable

SAYS = "import sys; print('ran', sys.argv[0])"


def evil(place: Path) -> str:
    """Write a stand-in that leaves a file where it ran."""
    return script(place, f"open({str(place) + '.ran'!r}, 'w').close()")


@pytest.mark.case("C26")
@pytest.mark.parametrize("name", ["./git", "/tmp/evil/git", "bin/../git", "git\n", "", "..", "-git", "git ", "g\0it"])
@pytest.mark.parametrize("place", ["bin", "bins"])
def test_a_manifest_cannot_name_a_path(name: str, place: str):
    """A binary is a plain name: a pack that asks for anything else is not served."""
    surface = {"id": "git", "adapter": {"kind": "wrap", "bin": "git"}, "sandbox": {"bins": ["git"]}}
    if place == "bin":
        surface["adapter"] = {"kind": "wrap", "bin": name}
    else:
        surface["sandbox"] = {"bins": [name]}
    with pytest.raises(PackParseError):
        parse_manifest(json.dumps(surface).encode())


@pytest.mark.case("C26")
@pytest.mark.spec("1.5.sandbox")
@pytest.mark.parametrize("name", ["./git", "evil/git", "bin/../git", "git\n", "GIT", "", "other"])
def test_a_name_that_the_operator_did_not_allow_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    """Even past the manifest's own door no stand-in runs: only the allowed names are looked at."""
    monkeypatch.chdir(tmp_path)
    world = Wrapped(tmp_path, SAYS)
    for place in ("git", "evil/git", "GIT", "other"):
        evil(tmp_path / place)
    monkeypatch.setenv("PATH", f"{tmp_path}:{tmp_path / 'evil'}")
    pack = read_pack(
        json.dumps({"id": "tools", "adapter": "wrap", "verbs": {"tools.run": {"cli": []}}}).encode(),
        b'{"surface_id":"tools","version":1,"verbs":{"tools.run":{"operation":"write","privacy":{"land":"personal"}}},'
        b'"stimuli":{}}',
        b"# Tools\n",
    )
    adapter = pack.manifest.adapter.model_copy(update={"bin": name})
    sandbox = pack.manifest.sandbox.model_copy(update={"bins": (name, "tools")})
    object.__setattr__(pack, "manifest", pack.manifest.model_copy(update={"adapter": adapter, "sandbox": sandbox}))
    answer = world.executed(PackRevision("acme", 1, pack, {"git": world.tool}))
    assert (answer.ok, answer.error) == (
        False,
        f"binary not allowed: {(name or 'tools').replace(chr(10), chr(92) + 'n')}",
    )
    assert not list(tmp_path.rglob("*.ran"))


@pytest.mark.case("C26")
def test_the_allowed_binary_runs_from_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rung: str):
    """The binary runs from its absolute place, whatever stands in PATH or in the working folder under its name."""
    workspace = tmp_path / "ws"
    for place in (workspace / "tool", tmp_path / "path" / "tool"):
        evil(place)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    world = Wrapped(tmp_path, SAYS)
    assert stdout(world.run([], workspace=workspace)) == f"ran {world.tool}\n"
    assert not list(tmp_path.rglob("*.ran"))


@pytest.mark.case("C26")
@pytest.mark.parametrize("place", ["tool", "./tool", "bin/tool"])
def test_a_place_that_is_not_absolute_is_not_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str):
    """An allowed place that is relative runs nothing, whatever folder the worker stands in."""
    monkeypatch.chdir(tmp_path)
    evil(tmp_path / place)
    answer = Wrapped(tmp_path, tool=place).run([])
    assert (answer.ok, answer.error) == (False, "binary not allowed: tool")
    assert not list(tmp_path.rglob("*.ran"))


def _writable(tool: Path) -> None:
    tool.chmod(0o777)


def _group_writable(tool: Path) -> None:
    tool.chmod(0o775)


def _gone(tool: Path) -> None:
    tool.unlink()


def _not_executable(tool: Path) -> None:
    tool.chmod(0o644)


def _folder(tool: Path) -> None:
    tool.unlink()
    tool.mkdir()


def _pipe(tool: Path) -> None:
    tool.unlink()
    os.mkfifo(tool, 0o755)


def _device(tool: Path) -> None:
    tool.unlink()
    tool.symlink_to("/dev/null")


def _link_to_writable(tool: Path) -> None:
    tool.unlink()
    other = evil(tool.parent / "other")
    Path(other).chmod(0o777)
    tool.symlink_to(other)


def _link_into_open_folder(tool: Path) -> None:
    tool.unlink()
    other = evil(tool.parent / "open" / "other")
    Path(other).parent.chmod(0o777)
    tool.symlink_to(other)


def _open_folder(tool: Path) -> None:
    tool.parent.chmod(0o777)


def _loop(tool: Path) -> None:
    tool.unlink()
    tool.symlink_to(tool)


@pytest.mark.case("C26")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_writable, "the allowed binary may be written by others"),
        (_group_writable, "the allowed binary may be written by others"),
        (_gone, "No such file or directory"),
        (_not_executable, "the allowed binary is no executable file"),
        (_folder, "the allowed binary is no executable file"),
        (_pipe, "the allowed binary is no executable file"),
        (_device, "the allowed binary is no executable file"),
        (_link_to_writable, "the allowed binary may be written by others"),
        (_link_into_open_folder, "the allowed binary is in a folder that others may write to"),
        (_open_folder, "the allowed binary is in a folder that others may write to"),
        (_loop, "Too many levels of symbolic links"),
    ],
)
def test_a_binary_that_changed_since_install_does_not_run(
    tmp_path: Path, rung: str, change: Callable[[Path], None], reason: str
):
    """What others may have put in the place of the allowed binary is refused at spawn, with the reason."""
    world = Wrapped(tmp_path, SAYS)
    assert world.run([]).ok
    change(Path(world.tool))
    answer = world.run([])
    assert (answer.ok, answer.result, answer.error) == (False, None, f"not started: {reason}")
    assert not list(tmp_path.rglob("*.ran"))


@pytest.mark.case("C26")
def test_what_is_no_program_says_so(tmp_path: Path, rung: str):
    """A file that the kernel cannot run answers its reason; no shell is asked to try."""
    world = Wrapped(tmp_path, SAYS)
    Path(world.tool).write_text("echo ran")
    answer = world.run([])
    assert (answer.ok, answer.error) == (False, "not started: Exec format error")


@pytest.mark.case("C26")
def test_the_owner_may_replace_the_binary(tmp_path: Path, rung: str):
    """A new version in the allowed place, guarded as the old one was, runs: packages are upgraded."""
    world = Wrapped(tmp_path, SAYS)
    script(Path(world.tool).with_name("new"), "print('new')")
    Path(world.tool).with_name("new").replace(world.tool)
    assert stdout(world.run([])) == "new\n"


@pytest.mark.case("C26")
@pytest.mark.parametrize("interpreter", ["#!/bin/sh", "#!/usr/bin/env sh", "#! /bin/sh -e"])
def test_a_script_runs_by_its_interpreter(tmp_path: Path, rung: str, interpreter: str):
    """A script that the operator allowed runs by its first line, by its place, with its args."""
    world = Wrapped(tmp_path, f'{interpreter}\necho "$0 $1"\n')
    assert stdout(world.run(["{v}"], {"v": "a b"})) == f"{world.tool} a b\n"


def test_a_binary_reached_by_a_link_finds_its_library(tmp_path: Path, rung: str):
    """An interpreter of a virtual environment, which is a link, runs as that environment's."""
    link = Path(sys.executable)
    answer = Wrapped(tmp_path, tool=str(link)).run(["-c", "import sys, json; print(sys.prefix)"])
    assert stdout(answer).strip() == sys.prefix
