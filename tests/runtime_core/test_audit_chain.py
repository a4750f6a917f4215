"""The audit chain: what a line holds, who may write at once, rotation (§9.6, DESIGN §9)."""

from __future__ import annotations

import json
import multiprocessing
import os
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
from tests.runtime_core.chains import KEY, MOMENT, chain, record

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
