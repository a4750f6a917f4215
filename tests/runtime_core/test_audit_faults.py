"""The audit chain after deaths, on full disks and with other things in its place (DESIGN §9)."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from runtime_core.audit_files import lock_file
from runtime_core.audit_verify import verify
from runtime_core.errors import AuditUnavailable
from tests.runtime_core.chains import KEY, chain, immutable, record, small_disk

C62 = json.loads((Path(__file__).parents[1] / "cases" / "C62-strings.json").read_text())
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


# Crashes


@pytest.mark.parametrize("kept", [1, 100, -2])
def test_a_torn_line_is_closed_and_vouched_for(path: Path, kept: int):
    """The half line a crash left is closed with a newline; the chain goes on from the last whole line."""
    chain(path).append([record(1)])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:kept])
    chain(path).append([record(2)])
    raw = path.read_bytes().split(b"\n")

    assert raw[:2] == [whole.rstrip(b"\n"), whole[:kept]]
    assert [json.loads(line)["action"] for line in raw[2:4]] == ["audit.torn", "sense.deliver"]
    assert [json.loads(line)["seq"] for line in raw[2:4]] == [2, 3]
    assert [problem.kind for problem in verify(path, KEY).problems] == ["torn"]
    assert verify(path, KEY).ok


def test_a_line_that_lacks_only_its_newline_is_a_line(path: Path):
    """A crash before the last byte loses nothing: the line counts, and the next stands on its own."""
    chain(path).append([record(1)])
    path.write_bytes(path.read_bytes()[:-1])
    before = verify(path, KEY)
    chain(path).append([record(2)])

    assert before[:5] == (1, 1, 1, 1, ())
    assert [line["seq"] for line in lines(path)] == [1, 2]
    assert verify(path, KEY).problems == ()


def test_a_torn_line_longer_than_a_read_is_found(path: Path):
    """Lines of many reads' length are found from the end: heads, fragments and tails."""
    audit = chain(path)
    audit.append([record(1, reason="x" * 300_000)])
    audit.append([record(2, reason="y" * 300_000)])
    path.write_bytes(path.read_bytes()[:-70])

    assert chain(path).head().seq == 1
    assert [line["subject"] for line in audit.tail(5)] == ["d1"]


def _append_for_ever(path: Path, ready) -> None:
    audit = chain(path, fsync=False)
    audit.append([record()])
    ready.set()
    while True:
        audit.append([record(n, reason="r" * 2_000) for n in range(50)])


def test_processes_killed_at_any_moment_leave_a_sound_chain(path: Path):
    """Writers killed with SIGKILL while they write leave at most torn lines; the next goes on."""
    for _ in range(5):
        ready = FORK.Event()
        writer = FORK.Process(target=_append_for_ever, args=(path, ready))
        writer.start()
        ready.wait()
        writer.kill()
        writer.join()
    chain(path).append([record(7)])

    assert verify(path, KEY).ok
    assert chain(path).tail(1)[0]["subject"] == "d7"


# A place that cannot be written


@pytest.mark.case("C61")
def test_half_a_batch_on_a_full_disk_is_taken_back(tmp_path: Path):
    """On a full file system of 1 MiB all of a batch fails, nothing of it stays, and after the repair work resumes."""
    with small_disk(tmp_path / "small") as disk:
        path = disk / "audit.jsonl"
        audit, other = chain(path), chain(path)
        audit.append([record(1)])
        filler = disk / "filler"
        filler.write_bytes(b"f" * 900_000)
        before = path.read_bytes()

        for _ in range(2):
            with pytest.raises(AuditUnavailable, match="No space left on device"):
                audit.append([record(n) for n in range(1_000)])
        assert path.read_bytes() == before
        with pytest.raises(AuditUnavailable, match="No space left on device"):
            audit.probe()

        filler.unlink()
        audit.probe()
        audit.append([record(n) for n in range(1_000)])
        other.append([record(2)])
        report = verify(path, KEY)
        audit.close()
        other.close()

    assert (report.lines, report.problems) == (1_002, ())


@pytest.mark.case("C61")
def test_half_a_batch_that_cannot_be_taken_back_is_not_joined(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where even the truncation fails, the half line stays alone on its line and the chain goes on without it."""
    audit = chain(path)
    audit.append([record(1)])
    real = os.write

    def half(descriptor: int, data: memoryview) -> int:
        if len(data) < 1_000:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[:1_000])

    def never(*_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as faults:
        faults.setattr(os, "write", half)
        faults.setattr(os, "ftruncate", never)
        with pytest.raises(AuditUnavailable, match="No space left"):
            audit.append([record(2), record(3), record(4)])
        with pytest.raises(AuditUnavailable, match="No space left"):
            audit.append([record(5)])
    audit.append([record(6)])

    assert [line["subject"] for line in audit.tail(9)[:3]] == ["d1", "d2", "d3"]
    assert [line["action"] for line in audit.tail(2)] == ["audit.torn", "sense.deliver"]
    assert [problem.kind for problem in verify(path, KEY).problems] == ["torn"]


@pytest.mark.case("C61")
@pytest.mark.parametrize("fault", ["write", "fsync"])
def test_what_was_not_durable_is_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch, fault: str):
    """A write or an fsync that fails leaves the file as it was, and the next append goes on from there."""
    audit = chain(path)
    audit.append([record(1)])
    before = path.read_bytes()

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as faults:
        faults.setattr(os, fault, fails)
        with pytest.raises(AuditUnavailable, match=r"audit.jsonl: Input/output error \(repair the place"):
            audit.append([record(2)])

    assert path.read_bytes() == before
    audit.append([record(3)])
    assert [line["subject"] for line in lines(path)] == ["d1", "d3"]
    assert verify(path, KEY).problems == ()


@pytest.mark.case("C61")
def test_a_time_limit_in_the_middle_of_a_write_leaves_no_half_line(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Any exception raised between the parts of a write takes the batch back."""
    audit = chain(path)
    real = os.write

    def interrupted(descriptor: int, data: memoryview) -> int:
        real(descriptor, data[:50])
        raise KeyboardInterrupt

    with monkeypatch.context() as faults:
        faults.setattr(os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            audit.append([record(1)])

    assert path.read_bytes() == b""
    audit.append([record(2)])
    assert verify(path, KEY)[:5] == (1, 1, 1, 1, ())


@pytest.mark.case("C61")
@pytest.mark.parametrize("open_before", [True, False])
def test_a_read_only_file_is_unavailable_until_it_is_not(path: Path, open_before: bool):
    """An unchangeable file refuses appends and the probe, of a writer that has it open too; then work resumes."""
    chain(path).append([record(1)])
    audit = chain(path)
    if open_before:
        audit.append([record(2)])
    before = path.read_bytes()
    with immutable(path):
        with pytest.raises(AuditUnavailable, match="Operation not permitted"):
            audit.append([record(3)])
        with pytest.raises(AuditUnavailable, match="Operation not permitted"):
            audit.probe()
    assert path.read_bytes() == before

    audit.probe()
    audit.append([record(4)])
    assert verify(path, KEY).problems == ()


@pytest.mark.case("C61")
def test_a_read_only_folder_is_seen_by_the_probe(path: Path):
    """Where the file would have to be made and cannot be, the probe says so."""
    audit = chain(path)
    audit.probe()
    with immutable(path.parent), pytest.raises(AuditUnavailable):
        audit.probe()
    audit.probe()

    assert not path.exists()


@pytest.mark.case("C61")
def test_a_removed_folder_is_unavailable_until_it_is_there_again(tmp_path: Path):
    """After the loss the chain goes on from memory, so that what is gone shows as cut; nobody makes the folder."""
    path = tmp_path / "home" / "audit.jsonl"
    path.parent.mkdir()
    audit = chain(path)
    audit.append([record(1), record(2)])
    shutil.rmtree(path.parent)

    for use in (lambda: audit.append([record(3)]), audit.probe, audit.head, lambda: audit.tail(1)):
        with pytest.raises(AuditUnavailable, match="No such file or directory"):
            use()
    assert not path.parent.exists()

    path.parent.mkdir()
    audit.probe()
    audit.append([record(4)])
    fresh = chain(path)
    fresh.append([record(5)])
    audit.append([record(6)])

    assert [line["seq"] for line in lines(path)] == [3, 4, 5]
    assert [(problem.kind, problem.seq) for problem in verify(path, KEY).problems] == [("cut", 3)]


@pytest.mark.case("C61")
def test_a_removed_or_shortened_file_shows_as_cut(path: Path):
    """A file that vanishes or loses its end under a running writer leaves a gap in the numbers."""
    audit = chain(path)
    audit.append([record(1)])
    kept = path.read_bytes()
    audit.append([record(2)])
    path.write_bytes(kept)
    audit.append([record(3)])
    shortened = verify(path, KEY).problems
    path.unlink()
    audit.append([record(4)])

    assert [(problem.kind, problem.seq) for problem in shortened] == [("cut", 3)]
    assert [(problem.kind, problem.seq) for problem in verify(path, KEY).problems] == [("cut", 4)]


@pytest.mark.case("C61")
@pytest.mark.parametrize("place", ["folder", "device", "pipe"])
def test_something_else_in_the_place_is_unavailable(path: Path, place: str):
    """A folder, /dev/full or a pipe where the file belongs refuses appends and the probe, and nothing hangs."""
    if place == "folder":
        path.mkdir()
    elif place == "device":
        path.symlink_to("/dev/full")
    else:
        os.mkfifo(path)
    audit = chain(path)

    for use in (lambda: audit.append([record()]), audit.probe, audit.head):
        with pytest.raises(AuditUnavailable, match=r"Is a directory|Not a regular file|No such device"):
            use()
    path.rmdir() if place == "folder" else path.unlink()
    audit.append([record()])
    assert verify(path, KEY).ok


def test_the_probe_appends_nothing(path: Path):
    """A probe leaves the chain as it is, and the lock empty."""
    audit = chain(path)
    audit.probe()
    there = path.exists()
    audit.append([record()])
    before = path.read_bytes()
    audit.probe()

    assert not there
    assert path.read_bytes() == before
    assert lock_file(path).stat().st_size == 0


def test_a_closed_chain_opens_again(path: Path):
    """`close` gives the files back; a later append goes on."""
    audit = chain(path)
    audit.append([record(1)])
    audit.close()
    audit.close()
    audit.append([record(2)])

    assert [line["seq"] for line in audit.tail(5)] == [1, 2]


def test_the_tail_of_no_chain_is_empty(path: Path):
    """Nothing written, nothing to show; asked for none, none."""
    assert chain(path).tail(5) == []
    chain(path).append([record()])
    assert chain(path).tail(0) == []
