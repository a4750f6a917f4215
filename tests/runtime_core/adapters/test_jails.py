"""Jails: made for one run, gone after it whatever a tool left, and told from those in use (§1.5.sandbox)."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from runtime_core.adapters import jails, sandbox, walls
from runtime_core.adapters.jails import jail, sweep
from tests.runtime_core.adapters.wrapping import Wrapped, stdout

if TYPE_CHECKING:
    from pathlib import Path


def _deep(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)


def _closed(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "f").write_text("x")
    for place in ("a/b", "a", "."):
        (folder / place).chmod(0)


def _odd(folder: Path) -> None:
    (folder / b"\xff\n".decode("utf-8", "surrogateescape")).mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "dangling").symlink_to("nowhere")
    for name in ("same", "other"):
        (folder / name / "same").mkdir(parents=True)
        (folder / name / "f").write_text("x")


@pytest.mark.parametrize("fill", [_deep, _closed, _odd])
def test_a_jail_is_gone_whatever_a_tool_left_in_it(tmp_path: Path, fill):
    """Folders too deep for any path, closed ones, odd names and links: all gone, and nothing outside is."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    (outside / "kept").write_text("x")
    with jail(tmp_path / "jails") as folder:
        (folder / "out").symlink_to(outside)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        fill(folder)
    assert list((tmp_path / "jails").iterdir()) == []
    assert (outside / "kept").read_text() == "x"
    assert stat.S_IMODE(outside.stat().st_mode) == 0o750


def test_a_sweep_takes_what_nobody_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Left folders go; those of a run that lives, young ones, files, links and other names stay."""
    root = tmp_path / "jails"
    (root / "run-left" / "a").mkdir(parents=True)
    (root / "other").mkdir()
    (root / "run-file").write_text("x")
    (root / "run-link").symlink_to(tmp_path)
    assert sweep(root) == 0
    monkeypatch.setattr(jails, "_YOUNG_S", -1)
    with jail(root) as used:
        assert sweep(root) == 1
        assert used.is_dir()
    assert sorted(place.name for place in root.iterdir()) == ["other", "run-file", "run-link"]
    assert sweep(tmp_path / "none") == 0


def test_the_first_run_of_a_process_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What a killed worker left is gone after the first run of the next one."""
    monkeypatch.setattr(jails, "_YOUNG_S", -1)
    world = Wrapped(tmp_path, "print(1)")
    (world.jails / "run-left").mkdir(parents=True)
    assert stdout(world.run([])) == "1\n"
    assert list(world.jails.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_place_for_jails_that_is_none_is_told(tmp_path: Path, kind: str):
    """Where no jail can be made the command answers why, and no tool starts."""
    world = Wrapped(tmp_path, "open('/dev/null')")
    if kind == "file":
        world.jails.write_text("")
    else:
        world.jails.symlink_to("jails")
    answer = world.run([])
    assert (answer.ok, answer.result) == (False, None)
    assert answer.error.startswith("not started: ")


def test_the_posture_report_names_each_wall_and_why_it_is_not_there(monkeypatch: pytest.MonkeyPatch):
    """Every wall stands in the report; one that is not in force comes with its reason."""
    report = walls.posture_report()
    assert len(report) == 6
    assert all(wall.in_force != bool(wall.reason) for wall in report)
    monkeypatch.setattr(walls, "bubblewrap", lambda: walls.Probe(None, "bwrap is not installed"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    missing = {wall.name.partition(" ")[0]: wall.reason for wall in walls.posture_report() if not wall.in_force}
    assert missing == {"file": "bwrap is not installed", "worker": "the worker runs as root; so do its tools"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1",
            "bwrap: No permissions to create",
        ),
        ("#!/bin/sh\nexit 3", "bwrap exited 3"),
        ("nothing", "bwrap: Exec format error"),
        (None, "bwrap is not installed"),
    ],
)
def test_a_bubblewrap_that_does_not_work_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, reason: str
):
    """Where bubblewrap is missing, or may build no walls, tools run without it, and the reason is kept."""
    if text is not None:
        (tmp_path / "bwrap").write_text(text)
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr(walls, "PATH", str(tmp_path))
    probe = walls.bubblewrap.__wrapped__()
    assert probe.path is None
    assert probe.reason.startswith(reason)
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: probe)
    assert stdout(Wrapped(tmp_path, "print(1)").run([])) == "1\n"


def test_a_bubblewrap_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch):
    """A probe that does not answer in time is an answer."""

    def hang(*args: object, **kwargs: object) -> None:
        raise subprocess.TimeoutExpired("bwrap", 10)

    monkeypatch.setattr(shutil, "which", lambda *args, **kwargs: "/usr/bin/bwrap")
    monkeypatch.setattr(subprocess, "run", hang)
    assert walls.bubblewrap.__wrapped__().reason == "bwrap did not answer within 10 s"
