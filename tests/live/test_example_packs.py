"""The example packs do what their HARNESS.md says: git in a real repository, notes at their service, desk over both."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.adapters.composite import CompositeAdapter
from runtime_core.adapters.openapi import OpenApiAdapter
from runtime_core.adapters.wrap import WrapAdapter
from runtime_core.addresses import parse_networks
from runtime_core.binding import NotConnected
from runtime_core.pack import read_folder
from sense_worker.cli import main
from tests.notes_service import notes_service
from tests.runtime_core.adapters.acting import Acting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runtime_core.binding import Holder
    from tests.notes_service import NotesService

PACKS = Path(__file__).parents[2] / "examples/packs"
NAMES = ["desk", "git", "notes"]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Hub:
    """Keeps credentials in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, Mapping[str, str]]] = {}

    def connected(self, holder: Holder) -> bool:
        return holder.consent in self.kept

    def mint(self, holder: Holder) -> tuple[str, Mapping[str, str]]:
        if holder.consent not in self.kept:
            raise NotConnected
        return self.kept[holder.consent]

    def keep(self, holder: Holder, identity: str, fields: Mapping[str, str]) -> None:
        self.kept[holder.consent] = (identity, fields)


class Desk(Acting):
    """Ana may do all in project apollo, with a repository as her workspace and the service on loopback."""

    def __init__(self, folder: Path, service: NotesService) -> None:
        self.service = service
        self.code = service.code
        self.repository = folder / "repository"
        git = str(shutil.which("git"))
        subprocess.run([git, "init", "-q", "-b", "main", str(self.repository)], check=True)
        for name, value in (("user.name", "Ana"), ("user.email", "ana@example.org")):
            subprocess.run([git, "-C", str(self.repository), "config", name, value], check=True)
        openapi = OpenApiAdapter(networks=parse_networks("127.0.0.0/8"))
        adapters = {"wrap": WrapAdapter(folder / "jails"), "openapi": openapi, "composite": CompositeAdapter()}
        super().__init__(adapters)
        self.hub = Hub()
        self.rows.join("acme", "apollo", "ana")
        for name in ("git", "notes", "desk"):
            files = read_folder(PACKS / name)
            calling = files._replace(surface=service.surface(files.surface)) if name == "notes" else files
            self.install(calling, {"git": git})
            self.activate(name, "apollo", str(self.repository) if name == "git" else None)
            self.grant(name, "verb.exec.read", "verb.exec.write", "pack.connect")

    def do(self, verb_key: str, args: dict[str, Any] | None = None) -> Any:
        """Run a command, which must go well, and return its result."""
        answer = self.run(verb_key.partition(".")[0], verb_key, args, project="apollo")
        assert (answer.error, answer.ok) == (None, True)
        return answer.result

    def fail(self, verb_key: str, args: dict[str, Any] | None = None) -> Any:
        """Run a command, which must fail, and return its envelope."""
        answer = self.run(verb_key.partition(".")[0], verb_key, args, project="apollo")
        assert not answer.ok
        return answer

    def stage(self, name: str, text: str) -> None:
        (self.repository / name).write_text(text)
        subprocess.run(["git", "-C", str(self.repository), "add", "--", name], check=True)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """The packs with their service, stopped at the end."""
    with notes_service() as service:
        yield Desk(tmp_path, service)


@pytest.mark.parametrize("name", NAMES)
def test_lint_and_scenario(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As a reader types it, in the checkout: clean, without a warning, and every case of the scenario holds."""
    monkeypatch.chdir(PACKS.parents[1])
    assert main.run(["pack", "lint", f"examples/packs/{name}"]) == 0
    assert (capsys.readouterr().out, main.run(["check", f"examples/packs/{name}/scenario.yaml"])) == (
        f"{name}: clean\n",
        0,
    )


def test_git(desk: Desk) -> None:
    """Status, a commit with its confirmation, and the log of it, all in the workspace."""
    desk.stage("a.txt", "one\n")
    assert "1 A. N..." in desk.do("git.status")["stdout"]
    assert desk.fail("git.commit", {"message": "First"}).error == "confirm required"
    for message in ("First", "-m --amend; $(touch x) ü"):
        desk.stage("a.txt", message)
        desk.do("git.commit", {"message": f"Say {message}", "confirm": True})
    log = desk.do("git.log")["stdout"].splitlines()
    assert [line[41:] for line in log] == ["Say -m --amend; $(touch x) ü", "Say First"]
    assert len(desk.do("git.log", {"limit": 1})["stdout"].splitlines()) == 1
    assert desk.fail("git.commit", {"message": "--amend", "confirm": True}).error.startswith("invalid args: /message")
    assert desk.fail("git.commit", {"message": "Nothing", "confirm": True}).error == "exited 1"
    assert sorted(place.name for place in desk.repository.iterdir()) == [".git", "a.txt"]


def test_notes(desk: Desk) -> None:
    """Not connected, a wrong code, connected; then add, list, get and delete, each under the key that was kept."""
    assert desk.fail("notes.list").error == "not connected: notes"
    wrong = desk.fail("notes.connect", {"name": "ana", "code": "wrong"})
    assert (wrong.error, wrong.result) == ("answered 403", None)
    assert desk.do("notes.connect", {"name": "ana", "code": desk.code}) == {"identity": "ana@notes"}
    (kept,) = desk.hub.kept.values()
    added = desk.do("notes.add", {"title": "Ünï", "text": f"the key is {kept[1]['secret']}", "tags": ["a/b", "c"]})
    assert added == {
        "status": 201,
        "body": {"id": "n1", "by": "ana", "title": "Ünï", "text": "the key is ***", "tags": ["a/b", "c"]},
    }
    desk.do("notes.add", {"title": "Second"})
    assert [one["id"] for one in desk.do("notes.list")["body"]["notes"]] == ["n2", "n1"]
    assert [one["id"] for one in desk.do("notes.list", {"tag": ["x", "a/b"], "limit": 5})["body"]["notes"]] == ["n1"]
    assert desk.do("notes.get", {"id": "n2"})["body"]["title"] == "Second"
    assert desk.fail("notes.get", {"id": "../keys"}).error == "invalid args: /id: would lead to another path"
    assert desk.fail("notes.delete", {"id": "n1"}).error == "confirm required"
    assert desk.do("notes.delete", {"id": "n1", "confirm": True}) == {"status": 204, "body": None}
    gone = desk.fail("notes.get", {"id": "n1"})
    assert (gone.error, gone.result["body"]) == ("answered 404", {"error": "no such thing"})
    bindings = {one.key: one.binding for one in desk.audit.records if one.ok and one.action != "exec.begin"}
    assert bindings["notes.list"] == bindings["notes.add"] == "ana@notes"
    told = repr(desk.audit.records)
    assert kept[1]["secret"] not in told
    assert desk.code not in told


def test_desk(desk: Desk) -> None:
    """A commit and its note in one command; the overview shows both; what fails half-way keeps what was done."""
    desk.stage("a.txt", "one")
    early = desk.fail("desk.commit", {"message": "Early", "confirm": True})
    assert early.error == "not connected: notes (step 3 of 3: notes.add)"
    assert early.result["steps"][1]["result"]["stdout"].endswith(" Early\n")
    desk.do("notes.connect", {"name": "ana", "code": desk.code})
    desk.stage("a.txt", "two")
    done = desk.do("desk.commit", {"message": "Second", "confirm": True})["steps"]
    commit = done[1]["result"]["stdout"]
    assert done[2]["result"]["body"]["text"] == commit
    seen = desk.do("desk.overview", {"limit": 1})["steps"]
    assert (seen[1]["result"]["stdout"], seen[2]["result"]["body"]["notes"][0]["title"]) == (commit, "Second")
    desk.stage("a.txt", "three")
    desk.service.end()
    late = desk.fail("desk.commit", {"message": "Third", "confirm": True})
    assert late.error.startswith("not reached: 127.0.0.1:")
    assert late.error.endswith(" (step 3 of 3: notes.add)")
    assert [one["ok"] for one in late.result["steps"]] == [True, True, False]
    assert desk.do("git.log", {"limit": 1})["stdout"].endswith(" Third\n")
