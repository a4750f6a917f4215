from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime_core.audit import AuditRecord
from runtime_core.audit_chain import ChainedAudit
from runtime_core.audit_files import GENESIS, ChainLock, Head, lock_file, rotated_files
from runtime_core.audit_verify import verify
from runtime_core.errors import AuditUnavailable
from tests.runtime_core.chains import KEY, MOMENT, chain, immutable, record, small_disk

if TYPE_CHECKING:
    from collections.abc import Callable

C62 = json.loads((Path(__file__).parents[1] / "cases" / "C62-strings.json").read_text())
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


# What a line holds


@pytest.mark.spec("9.6.1")
@pytest.mark.spec("9.6.4")
def test_a_line_holds_the_whole_tuple_and_its_place_in_the_chain(path: Path):
    """Principal, tenant, project, binding, pack, key and operation are always there, apart, and so is the reason."""
    full = AuditRecord(
        "exec", False, "t-red", "ana", "apollo", "github:ana", "git", "git.commit", "write", "bob", "e1", "denied: x"
    )
    chain(path).append([full, AuditRecord("sense.accept", True, None, None)])
    first, second = lines(path)

    assert first == {
        "at": "2026-06-01T12:00:00.000001Z",
        "action": "exec",
        "ok": False,
        "tenant": "t-red",
        "principal": "ana",
        "project": "apollo",
        "binding": "github:ana",
        "pack_id": "git",
        "key": "git.commit",
        "operation": "write",
        "publisher": "bob",
        "subject": "e1",
        "reason": "denied: x",
        "seq": 1,
        "prev": GENESIS,
        "mac": first["mac"],
    }
    assert list(second) == list(first)
    assert (second["seq"], second["prev"], second["tenant"], second["binding"]) == (2, first["mac"], None, None)


def test_the_file_is_the_owners_alone(path: Path):
    """Who decided what is nobody else's to read: the chain and its lock have mode 0600."""
    chain(path).append([record()])

    assert [stat.S_IMODE(file.stat().st_mode) for file in (path, lock_file(path))] == [0o600, 0o600]


@pytest.mark.case("C62")
@pytest.mark.parametrize("field", [name for name in AuditRecord._fields if name != "ok"])
@pytest.mark.parametrize("value", C62, ids=[ascii(value)[:20] for value in C62])
def test_no_value_makes_a_second_line(path: Path, field: str, value: str):
    """Each string of the fixture in each field is one line of visible ASCII and reads back the same."""
    fields: dict[str, Any] = {field: value}
    chain(path).append([record()._replace(**fields), record()])
    raw = path.read_bytes().split(b"\n")

    assert len(raw) == 3
    assert all(0x20 <= byte <= 0x7E for byte in raw[0])
    assert json.loads(raw[0])[field] == value
    assert verify(path, KEY).problems == ()


@pytest.mark.case("C62")
@example(value="a\x7fb\x9b\u2028\ud800")
@given(value=st.text(alphabet=st.characters(), max_size=40))
def test_any_text_is_one_line(value: str, tmp_path_factory: pytest.TempPathFactory):
    """Whatever the text, lone surrogates and DEL included, the line is whole and says the same."""
    path = tmp_path_factory.mktemp("any") / "audit.jsonl"
    audit = chain(path, fsync=False)
    audit.append([record(reason=value, tenant=value)])
    audit.close()
    (line,) = path.read_bytes().split(b"\n")[:-1]

    assert all(0x20 <= byte <= 0x7E for byte in line)
    assert json.loads(line)["reason"] == json.loads(line)["tenant"] == value


# Batches


def counted(name: str, calls: list[str]) -> Callable[..., object]:
    real = getattr(os, name)

    def call(*args: object) -> object:
        calls.append(name)
        return real(*args)

    return call


def test_a_batch_is_one_write_and_one_fsync(path: Path, monkeypatch: pytest.MonkeyPatch):
    """500 records cost one write and one fsync; without the setting, no fsync; nothing costs nothing."""
    calls: list[str] = []
    for name in ("write", "fsync"):
        monkeypatch.setattr(os, name, counted(name, calls))
    safe, fast = chain(path), chain(path, fsync=False)
    safe.append([record()])
    calls.clear()

    safe.append([record(n) for n in range(500)])
    fast.append([record(n) for n in range(500)])
    safe.append([])

    assert calls == ["write", "fsync", "write"]
    assert verify(path, KEY).verified == 1_001


def test_the_clock_is_read_once_a_batch(path: Path):
    """One batch, one moment."""
    ticks = iter([MOMENT, MOMENT + 1_000_000])
    audit = ChainedAudit(path, KEY, clock=lambda: next(ticks))
    audit.append([record(1), record(2)])
    audit.append([record(3)])

    assert [line["at"][17:] for line in lines(path)] == ["00.000001Z", "00.000001Z", "01.000001Z"]


def test_an_empty_key_is_refused(path: Path):
    """A chain under no key would prove nothing."""
    with pytest.raises(ValueError, match="must not be empty"):
        chain(path, key=b"")


# Many writers


def test_two_writers_in_turn_make_one_chain(path: Path):
    """Each picks up the head the other left; `head` tells it, and 0 before the first line."""
    one, two = chain(path), chain(path)
    before = one.head()
    for number in range(6):
        (one, two)[number % 2].append([record(number), record(number)])

    assert before == Head(0, GENESIS)
    assert [line["seq"] for line in lines(path)] == list(range(1, 13))
    assert one.head() == two.head() == Head(12, lines(path)[-1]["mac"])
    assert verify(path, KEY).problems == ()


def _write(path: Path, name: str, count: int, size: int) -> None:
    audit = chain(path, fsync=False)
    for number in range(count):
        audit.append([record(number, principal=name, reason="x" * size)])


def _c60(path: Path, count: int, size: int) -> None:
    processes = [FORK.Process(target=_write, args=(path, f"p{n}", count, size)) for n in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    whole = (line for file in [*rotated_files(path), path] for line in lines(file))
    found = [(line["principal"], line["subject"], len(line["reason"])) for line in whole]

    assert [process.exitcode for process in processes] == [0] * 8
    assert sorted(found) == sorted((f"p{n}", f"d{number}", size) for n in range(8) for number in range(count))
    assert verify(path, KEY).problems == ()


@pytest.mark.case("C60")
def test_long_lines_of_many_processes_stay_whole(path: Path):
    """Eight processes write 60 lines of 16 KiB each: 480 whole lines, none missing, one chain."""
    _c60(path, 60, 16_384)


@pytest.mark.long
@pytest.mark.case("C60")
def test_long_lines_of_many_processes_stay_whole_in_full(path: Path):
    """The literal values: eight processes write 500 lines of 64 KiB each."""
    _c60(path, 500, 65_536)


@pytest.mark.case("C60")
def test_a_reader_holds_no_writer_up(path: Path):
    """Someone who reads the file, however slowly, holds no lock: appends go on and the reader sees whole lines."""
    audit = chain(path)
    audit.append([record(1)])
    with path.open("rb") as reader:
        first = reader.readline()
        audit.append([record(2)])
        second = reader.readline()

    assert [json.loads(line)["subject"] for line in (first, second)] == ["d1", "d2"]


def test_threads_share_one_chain(path: Path):
    """Eight threads over one object make one unbroken chain."""
    audit = chain(path, fsync=False)
    threads = [threading.Thread(target=audit.append, args=([record(n)] * 20,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert verify(path, KEY)[:4] == (160, 160, 1, 160)


def _append_hundred(audit: ChainedAudit) -> None:
    for number in range(100):
        audit.append([record(number)])


def test_a_chain_goes_over_a_fork(path: Path):
    """Parent and children use the object made before the fork and do not share its lock."""
    audit = chain(path, fsync=False)
    audit.append([record()])
    children = [FORK.Process(target=_append_hundred, args=(audit,)) for _ in range(3)]
    for child in children:
        child.start()
    _append_hundred(audit)
    for child in children:
        child.join()

    assert [child.exitcode for child in children] == [0, 0, 0]
    assert verify(path, KEY)[:5] == (401, 401, 1, 401, ())


def test_a_child_does_not_keep_a_dead_parents_lock(path: Path):
    """A process forked while its parent held the lock does not hold it on after the parent is gone."""
    program = """
import os, signal, sys
from pathlib import Path
from runtime_core.audit_files import ChainLock
with ChainLock(Path(sys.argv[1])):
    if os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    print(os.getpid(), flush=True)
    signal.pause()
"""
    parent = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    with parent.stdout as answer, parent:
        child = int(answer.readline())
        try:
            chain(path).append([record()])  # hangs until the test's time limit where the lock is still held
        finally:
            os.kill(child, signal.SIGKILL)

    assert len(lines(path)) == 1


def test_a_lock_that_was_replaced_is_taken_anew(path: Path):
    """A lock file made again by another process is the lock: the one nobody finds any more locks nobody out."""
    old = ChainLock(path)
    with old:
        pass
    lock_file(path).unlink()
    with ChainLock(path):
        pass

    with old as taken:
        assert os.path.samestat(os.fstat(taken.descriptor), lock_file(path).stat())


# Rotation


def test_rotation_keeps_the_chain(path: Path):
    """A file that would grow past the size is set aside under the number of its first line; the chain goes on."""
    told: list[Head] = []
    audit, other = chain(path, rotate_bytes=4_096, on_rotate=told.append), chain(path, rotate_bytes=4_096)
    for number in range(30):
        (audit, other)[number % 2].append([record(number)])
    files = rotated_files(path)
    firsts = [lines(file)[0]["seq"] for file in files]
    report = verify(path, KEY)

    assert len(files) > 1
    assert [file.name for file in files] == [f"audit-{first}.jsonl" for first in firsts]
    assert all(file.stat().st_size <= 4_096 for file in [*files, path])
    assert (report.lines, report.problems) == (30, ())
    assert told
    assert {head.seq + 1 for head in told} <= {*firsts, lines(path)[0]["seq"]}
    assert [line["seq"] for line in audit.tail(25)] == list(range(6, 31))


def test_a_batch_larger_than_a_file_stays_whole(path: Path):
    """A batch is never split over two files."""
    audit = chain(path, rotate_bytes=4_096)
    audit.append([record()])
    audit.append([record(n) for n in range(100)])
    audit.append([record()])

    assert [len(lines(file)) for file in [*rotated_files(path), path]] == [1, 100, 1]


def test_rotation_replaces_no_file(path: Path):
    """Where the name is taken, the next free one is used, and both files are read in order."""
    audit = chain(path, rotate_bytes=4_096)
    path.with_name("audit-1.jsonl").touch()
    for number in range(12):
        audit.append([record(number)])

    assert [file.name for file in rotated_files(path)] == ["audit-1.jsonl", "audit-1-2.jsonl"]
    assert verify(path, KEY).problems == ()


def test_other_files_are_not_taken_for_the_chains(path: Path):
    """Only names of this chain's form are its files, in the order of their numbers."""
    for name in ("audit-2.jsonl", "audit-10.jsonl", "audit-1.jsonl.gz", "audit-x.jsonl", "other-1.jsonl"):
        path.with_name(name).touch()

    assert [file.name for file in rotated_files(path)] == ["audit-2.jsonl", "audit-10.jsonl"]


def test_a_new_process_goes_on_where_only_finished_files_are(path: Path):
    """A crash between the rename and the new file does not start the chain again at 1."""
    chain(path).append([record(1), record(2)])
    path.rename(path.with_name("audit-1.jsonl"))
    chain(path).append([record(3)])

    assert lines(path)[0]["seq"] == 3
    assert verify(path, KEY).problems == ()


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
