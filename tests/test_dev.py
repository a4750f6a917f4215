"""`./dev`, the pins and CI's script, without installing anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def stand_in(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


class Clone:
    """A copy of the script in a folder of its own, run in an empty environment with the programs it may find."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "bin"
        self.path.mkdir()
        for name in ("dev", "pyproject.toml", "pins.txt"):
            shutil.copy(ROOT / name, folder / name)
        for name in ("dirname", "cat", "cksum", "date", "rm", "basename"):
            (self.path / name).symlink_to(str(shutil.which(name)))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [str(shutil.which("sh")), str(self.folder / "dev"), *arguments]
        env = {"PATH": str(self.path), "HOME": str(self.folder)}
        return subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, check=False)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.mark.parametrize("arguments", [(), ("help",), ("--help",)])
def test_help_names_every_command(clone: Clone, arguments: tuple[str, ...]) -> None:
    """Without a command, and when asked, it says what there is and installs nothing."""
    done = clone.run(*arguments)

    assert (done.returncode, done.stderr) == (0, "")
    commands = ["demo", "test", "check", "bench", "chaos", "conformance", "help"]
    assert re.findall(r"^  (\w+) ", done.stdout, re.MULTILINE) == commands
    assert not (clone.folder / ".venv").exists()


def test_an_unknown_command_is_refused(clone: Clone) -> None:
    """Exit 2, with the usage on standard error."""
    done = clone.run("tset")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ./dev COMMAND")


def test_without_python_the_way_out_is_named(clone: Clone) -> None:
    """One line says what is missing and how to get it."""
    done = clone.run("test")

    assert done.returncode == 1
    assert done.stderr == (
        "dev: no python3 of 3.11 or later on PATH; install one (Debian, Ubuntu: apt-get install python3 python3-venv)\n"
    )


def test_an_old_python_is_passed_over(clone: Clone) -> None:
    """A python3 below 3.11 counts as none."""
    stand_in(clone.path, "python3", "exit 1")

    assert "no python3 of 3.11 or later" in clone.run("check").stderr


def test_without_the_venv_module_the_way_out_is_named(clone: Clone) -> None:
    """Debian's python3 without python3-venv: nothing half-made is left."""
    stand_in(clone.path, "python3", 'case "$2" in *ensurepip*) exit 1;; --version) echo Python 3.11.2;; esac')

    done = clone.run("test")

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "dev: python3 has no venv module; install it (Debian, Ubuntu: apt-get install python3-venv), or install uv"
    )
    assert not (clone.folder / ".venv").exists()


def test_the_second_run_installs_nothing(clone: Clone) -> None:
    """It installs once, again only when the project or its pins changed."""
    says = f'echo "$*" >> {clone.folder}/said'
    stand_in(clone.path, "uv", f"{says}; mkdir -p .venv/bin; cp {clone.path}/python3 .venv/bin/python")
    stand_in(clone.path, "python3", says)
    (clone.path / "mkdir").symlink_to(str(shutil.which("mkdir")))
    (clone.path / "cp").symlink_to(str(shutil.which("cp")))

    def installs() -> int:
        clone.run("test")
        return len(re.findall(r"^pip install", (clone.folder / "said").read_text(), re.MULTILINE))

    counts = [installs(), installs()]
    with (clone.folder / "pins.txt").open("a") as pins:
        pins.write("more==1\n")
    counts.append(installs())

    assert counts == [1, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("test",), "-m pytest -n 3 --dist worksteal -m not long"),
        (("test", "-k", "two words"), "-m pytest -n 3 --dist worksteal -m not long -k two words"),
        (("test", "--long", "-x"), "-m pytest -n 3 --dist worksteal -m  -x"),
        (("bench", "--quick"), "-m benchmarks --quick"),
        (("chaos",), "-m benchmarks.chaos"),
        (("conformance", "9.4.4"), "-m tests.spec.conformance 9.4.4"),
    ],
)
def test_a_command_runs_its_program_with_its_exit_code(clone: Clone, arguments: tuple[str, ...], asked: str) -> None:
    """What follows the command is passed on; what the program exits with comes back."""
    stand_in(clone.path, "uv", "exit 0")
    (clone.folder / ".venv").mkdir()
    stand_in(clone.folder / ".venv" / "bin", "python", 'case "$1" in -m) echo "$*"; exit 7;; esac')

    done = clone.run(*arguments)

    assert (done.returncode, done.stdout) == (7, f"{asked}\n")


def test_every_check_runs_though_one_failed(clone: Clone) -> None:
    """One run names all that failed."""
    stand_in(clone.path, "uv", "exit 0")
    (clone.folder / ".venv").mkdir()
    for name, code in (("python", 0), ("ruff", 0), ("mypy", 1), ("lint-imports", 0), ("deptry", 1)):
        stand_in(clone.folder / ".venv" / "bin", name, f"exit {code}")

    done = clone.run("check")

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(": [mypy] [deptry .]")


def test_the_pins_name_no_host() -> None:
    """Names, versions and markers: whoever installs decides where from."""
    lines = (ROOT / "pins.txt").read_text().splitlines()

    assert lines
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==[0-9][^ ]*( ; [^/@]+)?", line)] == []


def test_the_pins_are_what_is_installed() -> None:
    """The tests run on the pinned versions."""
    from importlib.metadata import PackageNotFoundError, version

    wrong = {}
    for line in (ROOT / "pins.txt").read_text().splitlines():
        name, pinned = line.partition(" ")[0].split("==")
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue  # of another platform
        if installed != pinned:
            wrong[name] = (pinned, installed)

    assert wrong == {}


def test_scripts_can_be_run() -> None:
    """They carry their run bit and are clean to the shell."""
    for script in (ROOT / "dev", ROOT / ".ci" / "run"):
        assert os.access(script, os.X_OK)
        assert subprocess.run(["sh", "-n", str(script)], capture_output=True, check=False).stderr == b""


@pytest.mark.parametrize(("check", "test", "code"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 5, 5)])
def test_ci_runs_both_and_fails_with_either(clone: Clone, check: int, test: int, code: int) -> None:
    """The tests run also after a failed check, their summary is the last output, and either fails the run."""
    (clone.folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", clone.folder / ".ci" / "run")
    stand_in(clone.folder, "dev", f'echo "ran $1"; [ "$1" = check ] && exit {check}; exit {test}')

    done = subprocess.run(
        [str(shutil.which("sh")), str(clone.folder / ".ci" / "run")],
        env={"PATH": str(clone.path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code
    assert done.stdout.splitlines() == ["ran check", f"ci: checks {'failed' if check else 'passed'}", "ran test"]
