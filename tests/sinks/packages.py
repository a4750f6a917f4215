"""Plugin packages as their users have them: built as a wheel and installed into an environment of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "sinks" / "team-inbox"


def run(*argv: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has to end well; what it said is in the failure."""
    passed = {name: value for name, value in os.environ.items() if not name.startswith(("SENSE_", "PYTHON", "PYTEST"))}
    done = subprocess.run(argv, cwd=cwd, env={**passed, **env}, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done


def wheel(package: Path, folder: Path) -> Path:
    """Build the wheel of a package from a copy of it, by its backend as an installer calls it; no network is used."""
    copy = folder / "source"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    run(sys.executable, "-c", f"from setuptools import build_meta; build_meta.build_wheel({str(folder)!r})", cwd=copy)
    (made,) = folder.glob("*.whl")
    return made


def unpacked(made: Path, folder: Path) -> Path:
    """Return a folder in which a wheel is installed: pure Python is installed by unpacking it."""
    with zipfile.ZipFile(made) as archive:
        archive.extractall(folder)
    return folder


def environment(folder: Path, made: Path, *, pip: bool = False) -> Path:
    """Return the Python of a new environment with a wheel and, by a link, all that this one has.

    With `pip` it is the installer that puts the wheel there, else it is unpacked.
    """
    venv.create(folder, symlinks=True, with_pip=pip)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    if pip:
        # That of Python 3.11's ensurepip is older than packages ask for; the linked one is not.
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", cwd=folder)
        run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", made, cwd=folder)
    else:
        unpacked(made, site)
    (site / "sense_worker_here.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    return python


def own_tests(python: Path, tests: Path, folder: Path) -> str:
    """Run a copy of a package's tests against what is installed; return the summary."""
    copy = folder / "own"
    shutil.copytree(tests, copy, ignore=shutil.ignore_patterns("__pycache__"))
    argv = (
        python,
        "-m",
        "pytest",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        f"--rootdir={copy}",
        "-c",
        os.devnull,
    )
    said = run(*argv, copy, cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    return said.stdout.strip().splitlines()[-1]
