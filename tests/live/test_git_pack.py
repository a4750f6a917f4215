"""The git pack: it passes lint, its hooks announce real commits and checkouts, and never stand in git's way."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from runtime_core.pack import lint_pack, read_folder, read_pack
from tests.live.git_repository import PACK, Repository

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.redis_servers import RedisServer

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(tmp_path: Path, redis_url: str, redis_server: RedisServer) -> Repository:
    made = Repository(tmp_path, redis_server)
    done = made.install()
    assert done.returncode == 0, done.stderr
    return made


def test_the_pack_passes_lint_and_says_what_it_does():
    """No lint issue; two commands to read, one to write with a confirmation, two personal triggers."""
    files = read_folder(PACK)
    assert lint_pack(*files) == []
    pack = read_pack(*files)
    policy = json.loads(files.policy)
    entries = {key: (entry["operation"], entry["privacy"]["land"]) for key, entry in policy["verbs"].items()}
    assert entries == {"git.log": ("read", "local"), "git.status": ("read", "local"), "git.commit": ("write", "local")}
    assert policy["verbs"]["git.commit"]["confirm"] is True
    assert {ref: trigger.land for ref, trigger in pack.triggers.items()} == {
        "commit.created": "personal",
        "branch.changed": "personal",
    }
    assert (pack.pack_id, pack.plane) == ("git", "runtime")
    for name in (*entries, *pack.triggers):
        assert name in files.harness.decode()


def test_a_commit_makes_one_event(repository):
    """The first commit and the next each announce their facts once, under the branch as subject."""
    repository.write("a.txt", "a")
    repository.write("b ü.txt", "b")
    first = repository.commit("Begin")
    repository.write("a.txt", "changed")
    second = repository.commit("Change\n\nThe body is not announced.")
    events = repository.announced()
    assert [event.ref for event in events] == ["commit.created"] * 2
    assert [event.subject for event in events] == ["main"] * 2
    short = [repository.git("rev-parse", "--short", commit) for commit in (first, second)]
    who = {"branch": "main", "author": "Ana"}
    assert [event.data for event in events] == [
        {"commit": first, "short": short[0], "message": "Begin", "files_changed": 2, **who},
        {"commit": second, "short": short[1], "message": "Change", "files_changed": 1, **who},
    ]


MESSAGES = (
    "Say \"hello\" & 'bye' $HOME `id` \\ %s %x00",
    "Größe 🦉 \u2028 end",
    "tab\tand \x1b[31mred\x1b[0m and \x07bell",
    "x" * 5000,
    "first\nsecond\n\nthird",
    "--help",
    "{}",
)


def test_any_message_is_announced(repository):
    """Whatever a message holds, there is one event, with its subject line whole or cut with an ellipsis."""
    for message in MESSAGES:
        commit = repository.commit(message)
        (event,) = repository.announced()
        subject = repository.git("log", "-1", "--format=%s")
        assert event.data["commit"] == commit
        assert event.data["message"] == (subject if len(subject) <= 1024 else f"{subject[:1023]}…")
        assert event.data["files_changed"] == 0


def test_a_commit_without_a_message_or_in_another_encoding_is_announced(repository):
    """An empty message is empty text, and one in Latin-1 is turned into UTF-8."""
    repository.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", "")
    repository.git("config", "i18n.commitEncoding", "ISO-8859-1")
    (repository.folder / "message").write_bytes("Größe".encode("latin-1"))
    repository.git("commit", "-q", "--allow-empty", "-F", "message")
    assert [event.data["message"] for event in repository.announced()] == ["", "Größe"]


def test_a_branch_name_that_is_no_text_is_announced_with_marks(repository):
    """Bytes of a branch name that are not UTF-8 show as U+FFFD."""
    repository.commit("Begin")
    repository.git("checkout", "-q", "-b", os.fsdecode(b"odd-\xff"))
    repository.commit("On it")
    assert [event.subject for event in repository.announced()] == ["main", "odd-\ufffd", "odd-\ufffd"]


def test_any_branch_name_is_the_subject(repository):
    """A branch of any name that git takes is announced as it is."""
    repository.commit("Begin")
    before = "main"
    for branch in ("größe/🦉", 'it\'s-"quoted"', "a$b`c`", "x" * 240, "HEAD1"):
        repository.announced()
        repository.git("checkout", "-q", "-b", branch)
        repository.commit("On it")
        changed, created = repository.announced()
        assert (changed.subject, created.subject) == (branch, branch)
        assert (changed.data["old_branch"], changed.data["new_branch"]) == (before, branch)
        assert created.data["branch"] == branch
        before = branch


def test_a_branch_name_longer_than_a_subject_is_cut_there(repository):
    """The subject holds 256 characters; the data hold the whole name."""
    repository.commit("Begin")
    branch = "/".join(["x" * 100] * 4)
    repository.git("checkout", "-q", "-b", branch)
    event = repository.announced()[-1]
    assert (event.subject, event.data["new_branch"]) == (branch[:256], branch)


def test_a_detached_head_has_no_branch(repository):
    """Commits and checkouts without a branch say null and have no subject."""
    first = repository.commit("Begin")
    second = repository.commit("Go on")
    repository.announced()
    repository.git("checkout", "-q", first)
    third = repository.commit("Aside")
    repository.git("checkout", "-q", "main")
    detach, commit, back = repository.announced()
    assert detach.data == {"old_head": second, "new_head": first, "old_branch": "main", "new_branch": None}
    assert (commit.data["commit"], commit.data["branch"], commit.subject) == (third, None, None)
    assert back.data == {"old_head": third, "new_head": second, "old_branch": None, "new_branch": "main"}
    assert (detach.subject, back.subject) == (None, "main")


def test_a_checkout_that_changes_nothing_announces_nothing(repository):
    """Checking out files, or the branch that is there already, is no event; a new branch at the same commit is."""
    repository.write("a.txt", "a")
    head = repository.commit("Begin")
    repository.announced()
    repository.git("checkout", "-q", "--", "a.txt")
    repository.git("checkout", "-q", "main")
    assert repository.announced() == []
    repository.git("switch", "-q", "-c", "side/one")
    (event,) = repository.announced()
    assert event.data == {"old_head": head, "new_head": head, "old_branch": "main", "new_branch": "side/one"}


def test_an_amended_and_a_merged_commit_are_announced(repository):
    """An amended commit is a new one; a merge that is committed counts the files against its first parent."""
    repository.write("a.txt", "a")
    repository.commit("Begin")
    amended = repository.commit("Begin again", "--amend")
    repository.git("checkout", "-q", "-b", "side")
    repository.write("b.txt", "b")
    repository.commit("Side")
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-ff", "--no-commit", "side")
    merged = repository.commit("Merge")
    commits = [event.data for event in repository.announced() if event.ref == "commit.created"]
    assert [(data["commit"], data["files_changed"]) for data in (commits[1], commits[3])] == [(amended, 1), (merged, 1)]


def test_a_linked_working_copy_announces_too(repository, tmp_path):
    """Commits in a second working copy of the repository are announced, with the same spool for both."""
    repository.commit("Begin")
    repository.git("worktree", "add", "-q", "-b", "second", str(tmp_path / "second"))
    repository.announced()
    repository.git("commit", "-q", "--allow-empty", "-m", "There", cwd=tmp_path / "second")
    (event,) = repository.announced()
    assert (event.data["message"], event.data["branch"]) == ("There", "second")


def test_settings_of_the_person_do_not_change_what_is_read(repository):
    """Colours, date formats, signatures, mailmaps and pagers of the person leave the event as it is."""
    for name, value in {
        "color.ui": "always",
        "log.showSignature": "true",
        "log.date": "relative",
        "core.quotePath": "true",
        "log.showRoot": "false",
        "diff.renames": "copies",
        "core.abbrev": "12",
        "log.decorate": "full",
    }.items():
        repository.git("config", name, value)
    repository.write("ä.txt", "a")
    repository.commit("Begin")
    (event,) = repository.announced()
    assert (event.data["message"], event.data["author"], event.data["files_changed"]) == ("Begin", "Ana", 1)
    assert len(event.data["short"]) == 12


def test_a_server_that_is_away_never_fails_the_commit(tmp_path, redis_servers: Callable[..., RedisServer]):
    """While the server is down commits work and say that the event is kept; the next brings all, in order."""
    server = redis_servers()
    repository = Repository(tmp_path, server)
    assert repository.install().returncode == 0
    server.kill()
    for message in ("One", "Two"):
        done = repository.run("git", "commit", "-q", "--allow-empty", "-m", message)
        assert done.returncode == 0
        assert "commit.created is kept in" in done.stderr
    assert (repository.folder / ".git/sense-spool").stat().st_size > 0
    server.start()
    repository.commit("Three")
    assert [event.data["message"] for event in repository.announced()] == ["One", "Two", "Three"]
    assert repository.git("status", "--porcelain") == ""


def break_activation(repository: Repository) -> None:
    repository.activation.unlink()


def break_python(repository: Repository) -> None:
    repository.git("config", "sense.python", "/no/such/python")


def break_adapter(repository: Repository) -> None:
    repository.git("config", "sense.announce", "/no/such/announce.py")


def break_spool(repository: Repository) -> None:
    repository.activate("unix:///no/such/socket")
    (repository.folder / ".git/sense-spool").mkdir()


@pytest.mark.parametrize("fault", [break_activation, break_python, break_adapter, break_spool])
def test_nothing_that_is_wrong_here_fails_git(repository, fault):
    """With the adapter broken in any way, commit and checkout exit 0 and one line on standard error says why."""
    repository.commit("Begin")
    fault(repository)
    for words in (("commit", "-q", "--allow-empty", "-m", "On"), ("checkout", "-q", "-b", "side")):
        done = repository.run("git", *words)
        assert done.returncode == 0
        assert len(done.stderr.splitlines()) == 1
    assert len(repository.announced()) == 1


def test_without_its_settings_a_hook_is_silent(repository):
    """In a repository whose settings were taken away the hooks do nothing and say nothing."""
    repository.git("config", "--remove-section", "sense")
    repository.commit("Begin")
    assert repository.announced() == []
