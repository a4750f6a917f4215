"""The installer of the git pack's hooks: all or nothing, and never over somebody else's hook."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.live.git_repository import PACK, Repository

if TYPE_CHECKING:
    from tests.redis_servers import RedisServer

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def bare(tmp_path: Path, redis_url: str, redis_server: RedisServer) -> Repository:
    """A repository without the hooks."""
    return Repository(tmp_path, redis_server)


def unchanged(repository: Repository) -> bool:
    return repository.run("git", "config", "--get-regexp", "^sense\\.").stdout == ""


@pytest.mark.parametrize("name", ["post-commit", "post-checkout"])
def test_a_foreign_hook_is_not_touched(bare, name):
    """Where a hook of that name stands nothing is changed; with the line that the message gives, both work."""
    hook = bare.folder / ".git/hooks" / name
    hook.parent.mkdir(exist_ok=True)
    text = "#!/bin/sh\necho foreign >>../foreign\n"
    hook.write_text(text)
    hook.chmod(0o755)
    done = bare.install()
    assert done.returncode == 1
    assert f"{hook}: is there already and not of this pack, nothing was changed (add the line " in done.stderr
    assert (hook.read_text(), unchanged(bare), len(list(hook.parent.glob("post-c*[a-z]")))) == (text, True, 1)
    line = done.stderr.split("add the line ")[1].split(" to it")[0]
    hook.write_text(f"{text}{line}\n")
    assert bare.install().returncode == 0
    bare.commit("Begin")
    bare.git("checkout", "-q", "-b", "side")
    assert [event.ref for event in bare.announced()] == ["commit.created", "branch.changed"]
    assert (bare.folder.parent / "foreign").read_text() == "foreign\n"


def test_a_hook_that_is_a_link_is_not_touched(bare):
    """A dangling link in the place is a foreign hook too."""
    hook = bare.folder / ".git/hooks/post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.symlink_to("nowhere")
    assert bare.install().returncode == 1
    assert hook.readlink() == Path("nowhere")


def test_a_folder_of_hooks_elsewhere_is_not_written_to(bare, tmp_path):
    """Where core.hooksPath names another folder nothing is put there; its own hooks may call those of the pack."""
    (tmp_path / "shared").mkdir()
    bare.git("config", "core.hooksPath", str(tmp_path / "shared"))
    done = bare.install()
    assert done.returncode == 1
    assert "core.hooksPath names this folder" in done.stderr
    assert (list((tmp_path / "shared").iterdir()), unchanged(bare)) == ([], True)


def test_installing_twice_and_removing_leaves_nothing(bare):
    """A second install is the same as one; removing takes hooks and settings out and leaves foreign hooks."""
    assert [bare.install().returncode for _ in range(2)] == [0, 0]
    bare.commit("Begin")
    assert len(bare.announced()) == 1
    foreign = bare.folder / ".git/hooks/post-merge"
    foreign.write_text("#!/bin/sh\n")
    assert bare.run(PACK / "install-hooks.sh", "--remove", bare.folder).returncode == 0
    left = {path.name for path in foreign.parent.iterdir() if not path.name.endswith(".sample")}
    assert (left, unchanged(bare)) == ({"post-merge"}, True)


def test_the_installer_refuses_what_cannot_announce(bare, tmp_path):
    """No repository, activation file or python with sense-worker: one reason, and nothing is changed."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "broken.json").write_text("{}")
    (tmp_path / "broken.json").chmod(0o600)
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    installer = PACK / "install-hooks.sh"
    for argv, names, reason in (
        ([tmp_path / "plain", bare.activation], {"GIT_CEILING_DIRECTORIES": str(tmp_path)}, "is no git repository"),
        ([tmp_path / "none", bare.activation], {}, "is no folder"),
        ([bare.folder, tmp_path / "none.json"], {}, "cannot be read (run `sense-worker activate git`"),
        ([bare.folder, tmp_path / "broken.json"], {}, "v: must be 1"),
        ([bare.folder, bare.activation], {"PYTHON": str(tmp_path / "python")}, "cannot announce"),
        ([bare.folder, bare.activation], {"PYTHON": "no-such-python"}, "no-such-python: not found"),
        ([bare.folder], {}, "usage: "),
    ):
        done = bare.run(installer, *argv, **names)
        assert (done.returncode, reason in done.stderr) == (1, True), done.stderr
    assert unchanged(bare)
