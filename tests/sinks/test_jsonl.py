from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sinks import append, jsonl
from sinks.jsonl import Jsonl, JsonlOptions
from sinks.protocol import Delivered, Rejected, Retry
from tests.sinks.deliveries import delivery, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture
def sink(path: Path) -> Jsonl:
    return Jsonl("log", JsonlOptions(path=str(path)))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the file, as another process would."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_lines_are_appended_in_order(sink: Jsonl, path: Path, no_leak):
    """Each batch becomes whole lines in its order, after those of the batches before."""
    sink.open()
    assert sink.deliver([delivery(1), delivery(2)]) == [Delivered(), Delivered()]
    assert sink.deliver([delivery(3)]) == [Delivered()]
    sink.close()
    assert numbers(path) == [1, 2, 3]


def test_a_new_file_is_private(sink: Jsonl, path: Path):
    """A file the sink makes is readable by nobody else; one that is there keeps its mode."""
    sink.deliver([delivery(1)])
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    sink.deliver([delivery(2)])
    assert path.stat().st_mode & 0o777 == 0o640


def test_an_empty_batch_touches_nothing(sink: Jsonl, path: Path):
    """No delivery, no outcome, no file."""
    assert sink.deliver([]) == []
    assert not path.exists()


def test_a_closed_sink_holds_nothing(sink: Jsonl, path: Path, no_leak):
    """The file is open only while a batch is written: a rotated or replaced file is left behind at once."""
    sink.deliver([delivery(1)])
    path.rename(path.with_suffix(".1"))
    sink.deliver([delivery(2)])
    sink.close()
    sink.close()
    assert (numbers(path.with_suffix(".1")), numbers(path)) == ([1], [2])


def test_a_replay_writes_the_line_again_under_its_id(sink: Jsonl, path: Path):
    """At least once: the same delivery twice is two lines with one id, told apart by the attempt."""
    sink.deliver([delivery(1)])
    sink.deliver([delivery(1, attempt=2)])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["id"], line["attempt"]) for line in lines] == [(delivery(1).id, 1), (delivery(1).id, 2)]


def test_unicode_survives(sink: Jsonl, path: Path):
    """Text of any script reads back as it was, from a file of plain ASCII."""
    data = {"number": 1, "text": "naïve 日本 😀 e\u0301 \u202e"}
    sink.deliver([delivery(1, data=data)])
    assert path.read_bytes().isascii()
    assert json.loads(path.read_bytes())["data"] == data


def test_a_body_that_is_no_event_dies_alone(sink: Jsonl, path: Path):
    """A delivery that cannot become a line is rejected; its neighbours are written."""
    bad = delivery(2, body=b'{"data": {"a": NaN}}')
    outcomes = sink.deliver([delivery(1), bad, delivery(3)])
    assert [type(outcome) for outcome in outcomes] == [Delivered, Rejected, Delivered]
    assert numbers(path) == [1, 3]


def test_one_write_a_batch(sink: Jsonl, monkeypatch: pytest.MonkeyPatch):
    """A batch of 500 costs one write."""
    writes: list[int] = []
    real = os.write

    def counted(handle: int, data: bytes) -> int:
        writes.append(len(data))
        return real(handle, data)

    monkeypatch.setattr(os, "write", counted)
    sink.deliver([delivery(number) for number in range(500)])
    assert len(writes) == 1


def test_a_write_cut_short_is_finished(sink: Jsonl, path: Path, monkeypatch: pytest.MonkeyPatch):
    """A write that takes only a part, without an error, goes on with the rest."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:100]))
    assert sink.deliver([delivery(1), delivery(2)]) == [Delivered(), Delivered()]
    assert numbers(path) == [1, 2]


@pytest.mark.parametrize("torn", [b'{"id":"x', b'{"data":{"number":0}}'])
def test_a_torn_tail_is_closed(sink: Jsonl, path: Path, torn: bytes):
    """Half a line that a dead process left is closed by a newline; the next line is not joined to it."""
    sink.deliver([delivery(1)])
    with path.open("ab") as file:
        file.write(torn)
    sink.deliver([delivery(2)])
    first, middle, last = path.read_bytes().splitlines()
    assert middle == torn
    assert [json.loads(line)["data"]["number"] for line in (first, last)] == [1, 2]


def test_a_full_disk_leaves_the_file_as_it_was(small_disk: Path, no_leak):
    """On a full disk the batch is not half written: Retry, and once there is room the same call succeeds."""
    path = small_disk / "events.jsonl"
    sink = Jsonl("log", JsonlOptions(path=str(path)))
    sink.deliver([delivery(1)])
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 160 * 1024)
    before = path.read_bytes()
    batch = [delivery(number, data={"number": number, "pad": "x" * 60_000}) for number in (2, 3)]
    full = Retry(f"{path}: No space left on device")
    assert sink.deliver(batch) == [full, full]
    assert path.read_bytes() == before
    ballast.unlink()
    assert sink.deliver(batch) == [Delivered(), Delivered()]
    assert numbers(path) == [1, 2, 3]


def test_a_failed_fsync_is_a_retry(sink: Jsonl, path: Path, monkeypatch: pytest.MonkeyPatch):
    """What the disk did not confirm is taken back and tried again."""

    def broken(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    sink.deliver([delivery(1)])
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        assert sink.deliver([delivery(2)]) == [Retry(f"{path}: Input/output error")]
    assert numbers(path) == [1]
    assert sink.deliver([delivery(2)]) == [Delivered()]


@pytest.mark.parametrize(("fsync", "synced"), [(True, [2, 3]), (False, [0, 0])])
def test_fsync_is_an_option(path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool, synced: list[int]):
    """With fsync each batch is flushed to the disk, and the folder once for a new file; without, nothing is."""
    handles: list[int] = []
    real = os.fsync

    def counted(handle: int) -> None:
        handles.append(handle)
        real(handle)

    monkeypatch.setattr(os, "fsync", counted)
    sink = Jsonl("log", JsonlOptions(path=str(path), fsync=fsync))
    counts = []
    for number in (1, 2):
        sink.deliver([delivery(number)])
        counts.append(len(handles))
    assert counts == synced


def test_a_lock_that_is_not_let_go_is_a_retry(sink: Jsonl, path: Path, monkeypatch: pytest.MonkeyPatch, no_leak):
    """A process that sits on the lock stops nobody for good."""
    monkeypatch.setattr(jsonl, "LOCK_WAIT_S", 0.02)
    sink.deliver([delivery(1)])
    with locked(path):
        assert sink.deliver([delivery(2)]) == [Retry(f"{path}: another process holds the lock of the file")]
    assert sink.deliver([delivery(3)]) == [Delivered()]
    assert numbers(path) == [1, 3]


def test_a_child_forked_in_between_does_not_keep_the_lock(sink: Jsonl, monkeypatch: pytest.MonkeyPatch, path: Path):
    """A process forked while a batch is written shares its open file; the lock is let go all the same."""
    copies: list[int] = []
    real = os.write

    def forked(handle: int, data: bytes) -> int:
        copies.append(os.dup(handle))
        return real(handle, data)

    monkeypatch.setattr(os, "write", forked)
    monkeypatch.setattr(jsonl, "LOCK_WAIT_S", 0.02)
    outcomes = [sink.deliver([delivery(number)]) for number in (1, 2)]
    for copy in copies:
        os.close(copy)
    assert outcomes == [[Delivered()], [Delivered()]]


@pytest.mark.parametrize("times", [1, 10])
def test_a_file_removed_under_the_writer(sink: Jsonl, path: Path, monkeypatch: pytest.MonkeyPatch, times: int, no_leak):
    """Lines never go into a file that is removed already: it is opened anew, and given up when that never ends."""
    real = append._lock
    removed: list[int] = []

    def removing(handle: int, give_up: float) -> None:
        if len(removed) < times:
            path.unlink()
            removed.append(handle)
        real(handle, give_up)

    monkeypatch.setattr(append, "_lock", removing)
    outcome = sink.deliver([delivery(1)])
    if times == 1:
        assert outcome == [Delivered()]
        assert numbers(path) == [1]
    else:
        assert outcome == [Retry(f"{path}: the file is removed again and again")]


def test_a_missing_folder_is_a_retry(tmp_path: Path, no_leak):
    """A folder that is away (not mounted yet) is not made up; once it is there, work resumes."""
    path = tmp_path / "away" / "events.jsonl"
    sink = Jsonl("log", JsonlOptions(path=str(path)))
    assert sink.deliver([delivery(1)]) == [Retry(f"{path}: No such file or directory")]
    path.parent.mkdir()
    assert sink.deliver([delivery(1)]) == [Delivered()]


def test_a_folder_in_the_place_of_the_file_is_a_retry(sink: Jsonl, path: Path, no_leak):
    """A folder in the place of the file is said so."""
    path.mkdir()
    assert sink.deliver([delivery(1)]) == [Retry(f"{path}: Is a directory")]


def test_an_immutable_file_is_a_retry(sink: Jsonl, path: Path, no_leak):
    """A file that may not be written is left alone and tried again."""
    sink.deliver([delivery(1)])
    if subprocess.run(["chattr", "+i", str(path)], capture_output=True, check=False).returncode:
        pytest.skip("this file system knows no immutable files")
    try:
        assert sink.deliver([delivery(2)]) == [Retry(f"{path}: Operation not permitted")]
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)
    assert sink.deliver([delivery(2)]) == [Delivered()]
    assert numbers(path) == [1, 2]


@pytest.mark.parametrize("special", ["pipe", "/dev/full"])
def test_a_special_file_is_refused_at_once(sink: Jsonl, path: Path, special: str, no_leak):
    """A pipe that nobody reads or a device does not hang or swallow a batch."""
    if special == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(special)
    assert sink.deliver([delivery(1)]) == [Retry("events.jsonl is no regular file")]


def test_an_operators_own_link_is_followed(sink: Jsonl, path: Path, tmp_path: Path):
    """The path of an operator may lead over links."""
    target = tmp_path / "real.jsonl"
    path.symlink_to(target)
    sink.deliver([delivery(1)])
    assert numbers(target) == [1]


WRITER = """
import sys
from sinks.jsonl import Jsonl, JsonlOptions
from sinks.protocol import Delivered
from tests.sinks.deliveries import delivery
path, first, count, batch = sys.argv[1], *map(int, sys.argv[2:])
sink = Jsonl("log", JsonlOptions(path=path, fsync=False))  # whole lines do not hang on it, and 256 MB take long
sys.stdin.readline()
for start in range(first, first + count, batch):
    lines = [delivery(n, data={"number": n, "pad": "x" * 65536}) for n in range(start, start + batch)]
    assert sink.deliver(lines) == [Delivered()] * batch
"""


@pytest.mark.case("C60")
def test_eight_processes_write_whole_lines(path: Path):
    """Eight processes with 500 lines of 64 KiB each leave 4,000 whole lines; a slow reader stops none of them."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(first), "500", "20"], stdin=subprocess.PIPE, cwd=ROOT
        )
        for first in range(0, 4000, 500)
    ]
    try:
        path.touch()
        with path.open("rb") as reader:
            for writer in writers:
                assert writer.stdin
                writer.stdin.write(b"\n")
                writer.stdin.close()
            for writer in writers:
                reader.read(1000)
                writer.wait(timeout=100)
        assert [writer.returncode for writer in writers] == [0] * 8
        with path.open("rb") as lines:
            found = sorted(json.loads(line)["data"]["number"] for line in lines)
        assert found == list(range(4000))
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
        path.unlink()
