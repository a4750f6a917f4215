from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING

import pytest

from sinks import jsonl
from sinks.jsonl import Jsonl, JsonlOptions
from sinks.protocol import Delivered, Rejected, Retry
from tests.sinks.deliveries import delivery, numbers

if TYPE_CHECKING:
    from pathlib import Path

FILE = ".sense/events.jsonl"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


@pytest.fixture
def sink() -> Jsonl:
    return Jsonl("ws", JsonlOptions(workspace=True))


@pytest.mark.spec("4.3.local")
def test_lines_land_beneath_the_workspace(sink: Jsonl, workspace: Path, no_leak):
    """Events go into `.sense/events.jsonl` of the activation's workspace; folder and file are private."""
    assert sink.deliver([delivery(1, workspace=str(workspace))]) == [Delivered()]
    assert sink.deliver([delivery(2, workspace=str(workspace))]) == [Delivered()]
    file = workspace / FILE
    assert numbers(file) == [1, 2]
    assert (file.parent.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_the_file_is_an_option(workspace: Path):
    """`file` names another place beneath the workspace, also one without a folder."""
    sink = Jsonl("ws", JsonlOptions(workspace=True, file="seen.jsonl"))
    sink.deliver([delivery(1, workspace=str(workspace))])
    assert [found.name for found in workspace.iterdir()] == ["seen.jsonl"]


def test_a_batch_over_workspaces_keeps_them_apart(sink: Jsonl, tmp_path: Path, no_leak):
    """Each delivery of a batch goes to its own workspace and gets the outcome of that one, in order."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    batch = [delivery(n, workspace=str(tmp_path / name)) for n, name in enumerate(["a", "b", "missing", "a"])]
    gone = Retry(f"{FILE}: No such file or directory")
    assert sink.deliver(batch) == [Delivered(), Delivered(), gone, Delivered()]
    assert numbers(tmp_path / "a" / FILE) == [0, 3]
    assert numbers(tmp_path / "b" / FILE) == [1]


def test_a_missing_workspace_is_not_made(sink: Jsonl, tmp_path: Path):
    """A workspace folder that is away is a Retry, and nothing is created in its place."""
    away = tmp_path / "away"
    assert sink.deliver([delivery(1, workspace=str(away))]) == [Retry(f"{FILE}: No such file or directory")]
    assert not away.exists()


@pytest.mark.parametrize("folder", [None, "", "relative/folder"])
def test_no_workspace_is_rejected(sink: Jsonl, folder: str | None):
    """An event of an activation without a workspace folder has no place here."""
    outcome = sink.deliver([delivery(1, workspace=folder)])
    assert outcome == [Rejected("the activation has no workspace folder")]


@pytest.mark.parametrize("folder", ["/a\0b", "/a\ud800b"])
def test_a_workspace_that_is_no_path_dies_alone(sink: Jsonl, workspace: Path, folder: str):
    """A text that no file system takes as a path costs only its own delivery."""
    outcomes = sink.deliver([delivery(1, workspace=folder), delivery(2, workspace=str(workspace))])
    assert outcomes == [Rejected("the workspace folder of the activation is no path"), Delivered()]


def test_a_workspace_behind_a_link_is_fine(sink: Jsonl, workspace: Path, tmp_path: Path):
    """The way to the workspace may lead over links: it was named by who activated."""
    (tmp_path / "link").symlink_to(workspace)
    assert sink.deliver([delivery(1, workspace=str(tmp_path / "link"))]) == [Delivered()]
    assert numbers(workspace / FILE) == [1]


@pytest.mark.spec("4.3.local")
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_in_the_place_of_the_folder_is_rejected(
    sink: Jsonl, workspace: Path, outside: Path, no_leak, dangling: bool
):
    """A `.sense` that leads out of the workspace is not entered, and nothing appears where it leads."""
    (workspace / ".sense").symlink_to(outside / "not" if dangling else outside)
    outcome = sink.deliver([delivery(1, workspace=str(workspace))])
    assert outcome == [Rejected("a link or a file stands in the place of the folder .sense")]
    assert list(outside.iterdir()) == []


@pytest.mark.spec("4.3.local")
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_in_the_place_of_the_file_is_rejected(
    sink: Jsonl, workspace: Path, outside: Path, no_leak, dangling: bool
):
    """An events file that is a link is not written through."""
    target = outside / "target"
    if not dangling:
        target.write_text("untouched\n")
    (workspace / ".sense").mkdir()
    (workspace / FILE).symlink_to(target)
    outcome = sink.deliver([delivery(1, workspace=str(workspace))])
    assert outcome == [Rejected("a link stands in the place of the file events.jsonl")]
    assert (target.read_text() if target.exists() else None) == (None if dangling else "untouched\n")


@pytest.mark.spec("4.3.local")
def test_a_hard_link_in_the_place_of_the_file_is_rejected(sink: Jsonl, workspace: Path, outside: Path, no_leak):
    """A second name of a file outside is not written either."""
    target = outside / "target"
    target.write_text("untouched\n")
    (workspace / ".sense").mkdir()
    (workspace / FILE).hardlink_to(target)
    outcome = sink.deliver([delivery(1, workspace=str(workspace))])
    assert outcome == [Rejected("events.jsonl has 2 hard links")]
    assert target.read_text() == "untouched\n"


def test_a_file_in_the_place_of_the_folder_is_rejected(sink: Jsonl, workspace: Path, no_leak):
    """A plain file named `.sense` is not replaced."""
    (workspace / ".sense").write_text("mine")
    outcome = sink.deliver([delivery(1, workspace=str(workspace))])
    assert outcome == [Rejected("a link or a file stands in the place of the folder .sense")]
    assert (workspace / ".sense").read_text() == "mine"


def test_a_pipe_in_the_place_of_the_file_is_rejected_at_once(sink: Jsonl, workspace: Path, no_leak):
    """A pipe that nobody reads does not hang the worker."""
    (workspace / ".sense").mkdir()
    os.mkfifo(workspace / FILE)
    outcome = sink.deliver([delivery(1, workspace=str(workspace))])
    assert outcome == [Rejected("events.jsonl is no regular file")]


def test_locks_in_workspaces_share_one_wait(sink: Jsonl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_leak):
    """However many workspaces of a batch are locked by their own tools, the batch waits once; the free ones go on."""
    looks: list[float] = []

    def next_second() -> float:
        looks.append(float(len(looks)))
        return looks[-1]

    monkeypatch.setattr(jsonl, "WORKSPACE_LOCK_WAIT_S", 0.02)
    monkeypatch.setattr(time, "monotonic", next_second)
    folders = [tmp_path / str(number) for number in range(4)]
    for folder in folders:
        folder.mkdir()
    batch = [delivery(n, workspace=str(folder)) for n, folder in enumerate(folders)]
    assert sink.deliver(batch) == [Delivered()] * 4
    held = [(folder / FILE).open("rb") for folder in folders[:3]]
    for file in held:
        fcntl.flock(file, fcntl.LOCK_EX)
    looks.clear()
    stuck = Retry(f"{FILE}: another process holds the lock of the file")
    assert sink.deliver(batch) == [stuck, stuck, stuck, Delivered()]
    for file in held:
        file.close()
    # The limit once, and one look at the clock for each file that is locked.
    assert len(looks) == 4
