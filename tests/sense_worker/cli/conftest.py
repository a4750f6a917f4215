"""A home, and a command line that works on it within this process."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sense_worker.cli import main
from sense_worker.operator import Operator
from sense_worker.settings import Settings
from tests.provision import write_pack
from tests.sense_worker.cli import notes_home

if TYPE_CHECKING:
    from pathlib import Path


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output."""
        return json.loads(self.out)


class Cli:
    """Calls commands on one home; `json` calls one that must end well and returns its document."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        self._capsys.readouterr()
        code = main.run(list(arguments))
        shown = self._capsys.readouterr()
        return Done(code, shown.out, shown.err)

    def json(self, *arguments: str) -> Any:
        """Call with `--json`; the command must exit 0 and say nothing on standard error."""
        done = self(*arguments, "--json")
        assert (done.code, done.err) == (0, "")
        assert done.json["v"] == 1
        return done.json

    def ids(self, *arguments: str, field: str = "id") -> list[str]:
        """The ids of a listing."""
        return [item[field] for item in self.json(*arguments)["items"]]


@pytest.fixture(scope="session")
def templates(tmp_path_factory) -> Path:
    """Homes made once: `init` after `sense-worker init`, `mail` with the pack `mail` and the principal ana besides."""
    folder = tmp_path_factory.mktemp("homes")
    settings = Settings.load({"HCP_HOME": str(folder / "init")})
    Operator.initialize(settings)
    shutil.copytree(folder / "init", folder / "mail")
    with Operator.open(Settings.load({"HCP_HOME": str(folder / "mail")})) as operator:
        operator.install_pack(write_pack(folder / "pack"))
        operator.add_principal("ana")
    return folder


@pytest.fixture
def bare(tmp_path, monkeypatch, capsys) -> Cli:
    """A command line on a home that does not exist yet."""
    for name in [name for name in os.environ if name.startswith("SENSE_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it, and a table of 80 columns folds
    monkeypatch.setenv("HCP_HOME", str(tmp_path / "home"))
    return Cli(tmp_path / "home", capsys)


@pytest.fixture
def cli(bare, templates) -> Cli:
    """A command line on an initialized home."""
    shutil.copytree(templates / "init", bare.home)
    return bare


@pytest.fixture
def mail(bare, templates, tmp_path) -> Cli:
    """The same with the pack `mail` (its folder is there too) and the principal ana."""
    shutil.copytree(templates / "mail", bare.home)
    write_pack(tmp_path / "mail")
    return bare


@pytest.fixture
def notes(cli, tmp_path) -> Cli:
    """A command line on a home where the operator may do all with the pack `notes`, activated and not connected."""
    notes_home.install(cli, tmp_path)
    notes_home.allow(cli)
    cli.json("activate", "notes")
    return cli
