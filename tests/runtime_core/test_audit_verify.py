from __future__ import annotations

import io
import multiprocessing
import random
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_core.audit_files import ChainLock, rotated_files
from runtime_core.audit_verify import PROBLEM_LIMIT, VerifyReport, _within, verify
from runtime_core.errors import AuditUnavailable
from tests.runtime_core.chains import KEY, chain, record

if TYPE_CHECKING:
    from pathlib import Path

OTHER_KEY = b"another key, newer than the first"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def filled(path: Path, count: int = 6) -> list[bytes]:
    """Write a chain of `count` lines, one append each, and return them."""
    audit = chain(path, fsync=False)
    for number in range(count):
        audit.append([record(number)])
    return path.read_bytes().splitlines(keepends=True)


def found(report: VerifyReport) -> list[tuple[str, int, int | None]]:
    return [(problem.kind, problem.line, problem.seq) for problem in report.problems]


def test_a_sound_chain_is_ok(path: Path):
    """The report counts lines and names the first and last number."""
    audit = chain(path)
    audit.append([record(n) for n in range(10)])

    assert verify(path, KEY) == VerifyReport(10, 10, 1, 10, (), 0)
    assert verify(path, KEY, [audit.head()]).ok


def test_no_chain_is_no_problem_until_something_was_anchored(path: Path):
    """Nothing written verifies; nothing where an anchor tells of lines is a cut."""
    missing_folder = path.parent / "nowhere" / "audit.jsonl"

    assert verify(path, KEY) == verify(missing_folder, KEY) == VerifyReport(0, 0, None, None, (), 0)
    assert found(verify(path, KEY, [(3, "a" * 64)])) == [("cut", 0, 3)]


def test_finished_files_are_read_in_their_order(path: Path):
    """A chain over several files is one chain; a problem names its file and the line in it."""
    audit = chain(path, rotate_bytes=4_096)
    for number in range(30):
        audit.append([record(number)])
    files = rotated_files(path)
    sound = verify(path, KEY)
    spoiled = files[1].read_bytes().replace(b"t-red", b"t-rad", 1)
    files[1].write_bytes(spoiled)
    (problem,) = verify(path, KEY).problems

    assert (sound.lines, sound.problems) == (30, ())
    assert (problem.kind, problem.file, problem.line) == ("changed", files[1].name, 1)


# Changed


def whole_chain(path: Path) -> bytes:
    """Write a chain with everything in it: batches, an escape, a tear that was vouched for."""
    audit = chain(path, fsync=False)
    audit.append([record(1), record(2, reason="a\n\x1b\u00e9")])
    with path.open("ab") as file:
        file.write(b'{"at":"2026')
    audit.append([record(3)])
    audit.append([record(4)])
    return path.read_bytes()


def flips(raw: bytes, positions: range) -> list[tuple[int, int]]:
    """Pick for each position a newline, the other case and a byte by chance, none of them what stands there."""
    chance = random.Random(9)
    picked = ((at, {ord("\n"), raw[at] ^ 0x20, chance.randrange(256)} - {raw[at]}) for at in positions)
    return [(at, byte) for at, others in picked for byte in others]


def unseen(path: Path, key: bytes | tuple[bytes, ...], step: int) -> list[tuple[int, int]]:
    raw = whole_chain(path)
    assert verify(path, key)[:4] == (5, 5, 1, 5)
    missed = []
    for at, byte in flips(raw, range(0, len(raw), step)):
        path.write_bytes(raw[:at] + bytes([byte]) + raw[at + 1 :])
        if verify(path, key).ok:
            missed.append((at, byte))
    return missed


def test_no_byte_of_any_line_changes_unseen(path: Path):
    """Bytes of every line, newlines and the torn piece included, are flipped one at a time: never ok."""
    assert unseen(path, KEY, step=13) == []


@pytest.mark.long
@pytest.mark.parametrize("key", [KEY, (OTHER_KEY, KEY)], ids=["one key", "two keys"])
def test_no_byte_of_any_line_changes_unseen_in_full(path: Path, key):
    """Every byte in turn is flipped to three others, under one key and under two: never ok."""
    assert unseen(path, key, step=1) == []


@settings(max_examples=150)
@given(data=st.data())
def test_no_changed_bytes_verify(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory):
    """Any byte of any line of any chain, rotated or not, changed to any other, also before further appends."""
    path = tmp_path_factory.mktemp("flip") / "audit.jsonl"
    size = data.draw(st.sampled_from([4_096, 1_000_000]))
    audit = chain(path, fsync=False, rotate_bytes=size)
    for length in data.draw(st.lists(st.integers(0, 900), min_size=1, max_size=9)):
        audit.append([record(1, reason="r" * length)])
    audit.close()
    file = data.draw(st.sampled_from([*rotated_files(path), path]))
    raw = bytearray(file.read_bytes())
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    file.write_bytes(raw)
    before = verify(path, KEY)
    again = chain(path, fsync=False, rotate_bytes=size)
    for _ in range(data.draw(st.integers(0, 2))):
        again.append([record(2)])

    assert not before.ok
    assert not verify(path, KEY).ok


@pytest.mark.parametrize("spoil", [lambda raw: raw[:-1] + b"x", lambda raw: raw[:-2] + b"x\n"])
def test_a_later_append_does_not_pass_a_change_off_as_torn(path: Path, spoil):
    """A last line that was tampered with is not vouched for by the writer that finds it."""
    lines = filled(path, 3)
    path.write_bytes(b"".join(lines[:2]) + spoil(lines[2]))
    chain(path).append([record(9)])

    assert [kind for kind, _, _ in found(verify(path, KEY))] == ["changed"]


def test_a_line_that_says_it_vouches_needs_the_key(path: Path):
    """A made-up line after a broken one does not turn a change into a tear."""
    lines = filled(path, 3)
    forged = lines[1].replace(b"sense.deliver", b"audit.torn")
    path.write_bytes(lines[0] + b"broken\n" + forged + lines[2])

    assert [kind for kind, _, _ in found(verify(path, KEY))] == ["changed", "changed"]


def test_a_changed_line_is_one_problem(path: Path):
    """One changed line is told once, at its place, and the lines after it still count as held."""
    lines = filled(path)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b"ana", b"eve"), *lines[3:]]))
    report = verify(path, KEY)

    assert found(report) == [("changed", 3, 3)]
    assert (report.lines, report.verified) == (6, 5)


def test_lines_in_another_order_are_seen(path: Path):
    """Two lines exchanged, or one there twice, are not the chain."""
    lines = filled(path)
    path.write_bytes(b"".join([*lines[:2], lines[3], lines[2], *lines[4:]]))
    exchanged = verify(path, KEY)
    path.write_bytes(b"".join([*lines[:2], lines[1], *lines[2:]]))
    repeated = verify(path, KEY)

    assert found(exchanged)[:2] == [("cut", 3, 4), ("changed", 4, 3)]
    assert found(repeated)[0] == ("changed", 3, 2)


def test_a_line_of_another_chain_is_seen(path: Path):
    """A line made under the same key for another chain does not fit, though its MAC holds."""
    lines = filled(path)
    other = path.with_name("other.jsonl")
    audit = chain(other, fsync=False)
    for number in range(6):
        audit.append([record(number, principal="eve")])
    path.write_bytes(b"".join([*lines[:5], other.read_bytes().splitlines(keepends=True)[5]]))

    assert found(verify(path, KEY)) == [("cut", 6, 6)]


# Cut


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (range(1, 6), [("cut", 1, 2)]),
        (range(3, 6), [("cut", 1, 4)]),
        ((0, 1, 3, 4, 5), [("cut", 3, 4)]),
        ((0, 5), [("cut", 2, 6)]),
        (range(6), []),
    ],
    ids=str,
)
def test_missing_lines_are_a_cut(path: Path, kept, expected):
    """Lines missing at the start or in the middle are told as cut, at the line after the gap."""
    lines = filled(path)
    path.write_bytes(b"".join(lines[n] for n in kept))

    assert found(verify(path, KEY)) == expected


def test_the_text_of_a_cut_names_the_missing_lines(path: Path):
    """An operator reads which lines are gone."""
    lines = filled(path)
    path.write_bytes(b"".join([lines[0], lines[2], lines[5]]))

    assert [problem.text for problem in verify(path, KEY).problems] == [
        "line 2 is missing before it",
        "lines 4 to 5 are missing before it",
    ]


def test_a_removed_finished_file_is_a_cut(path: Path):
    """A finished file that is gone leaves a gap."""
    audit = chain(path, rotate_bytes=4_096)
    for number in range(30):
        audit.append([record(number)])
    rotated_files(path)[1].unlink()

    assert [problem.kind for problem in verify(path, KEY).problems] == ["cut"]


def test_an_end_cut_off_is_seen_by_an_anchor(path: Path):
    """Whole lines gone from the end leave a chain that holds: an anchor kept elsewhere tells."""
    audit = chain(path)
    audit.append([record(n) for n in range(6)])
    anchor = audit.head()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]))

    assert verify(path, KEY).ok
    assert found(verify(path, KEY, [anchor])) == [("cut", 0, 6)]
    path.write_bytes(b"".join(lines[:5]) + lines[5][:40])
    assert [kind for kind, _, _ in found(verify(path, KEY, [anchor]))] == ["torn", "cut"]


def test_a_chain_written_anew_is_seen_by_an_anchor(path: Path):
    """Whoever has the key can write another chain; it does not match what was anchored."""
    audit = chain(path)
    audit.append([record(1), record(2)])
    anchor = audit.head()
    path.unlink()
    chain(path).append([record(1), record(3), record(4)])

    assert verify(path, KEY).ok
    assert found(verify(path, KEY, [anchor])) == [("anchor", 2, 2)]


# Torn


def test_a_torn_end_is_told_as_torn(path: Path):
    """Half a line at the end is what a crash leaves; the chain before it is sound."""
    lines = filled(path, 3)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:100])
    report = verify(path, KEY)

    assert found(report) == [("torn", 3, None)]
    assert (report.ok, report.lines, report.last) == (True, 2, 2)


def test_half_a_line_in_the_middle_is_no_tear(path: Path):
    """A half line nobody vouched for, with a newline or as the end of a finished file, was changed."""
    lines = filled(path, 4)
    path.write_bytes(b"".join([lines[0], lines[1][:100] + b"\n", *lines[2:]]))
    middle = verify(path, KEY)
    path.write_bytes(b"".join([*lines[:3], lines[3][:100] + b"\n"]))

    assert found(middle) == [("changed", 2, None)]
    assert found(verify(path, KEY)) == [("changed", 4, None)]


# Keys


def test_lines_under_an_older_key_are_read_with_it(path: Path):
    """After a rotation of the key one chain holds lines under both; all keys together verify it."""
    chain(path).append([record(1), record(2)])
    chain(path, key=OTHER_KEY).append([record(3)])
    chain(path).append([record(4)])

    assert verify(path, [OTHER_KEY, KEY]) == VerifyReport(4, 4, 1, 4, (), 0)
    assert found(verify(path, OTHER_KEY)) == [("changed", 1, 1), ("changed", 2, 2), ("changed", 4, 4)]


def test_under_another_key_nothing_holds(path: Path):
    """A wrong key is told by `verified` 0, and the report stays bounded."""
    chain(path, fsync=False).append([record(n) for n in range(PROBLEM_LIMIT + 5)])
    report = verify(path, OTHER_KEY)

    assert (report.verified, len(report.problems), report.omitted, report.ok) == (0, PROBLEM_LIMIT, 5, False)


@pytest.mark.parametrize("key", [b"", [], [KEY, b""]])
def test_an_empty_key_is_refused(path: Path, key):
    """There is no verification without a key."""
    with pytest.raises(ValueError, match="must not be empty"):
        verify(path, key)


# Around


def _append_and_rotate(path: Path, count: int) -> None:
    audit = chain(path, fsync=False, rotate_bytes=4_096)
    for number in range(count):
        audit.append([record(number)])


def test_it_is_safe_while_others_append_and_rotate(path: Path):
    """A verification in the middle of appends and rotations finds no problem that is none."""
    context = multiprocessing.get_context("fork")
    writer = context.Process(target=_append_and_rotate, args=(path, 600))
    writer.start()
    reports = [verify(path, KEY)]
    while writer.is_alive():
        reports.append(verify(path, KEY))
    writer.join()
    reports.append(verify(path, KEY))

    assert writer.exitcode == 0
    assert {report.problems for report in reports} == {()}
    assert reports[-1].lines == 600


def test_it_does_not_read_in_the_middle_of_a_write(path: Path):
    """A verification waits for the append that is under way, so it never takes half a batch for a tear."""
    line = filled(path, 1)[0]
    reports: list[VerifyReport] = []
    reader = threading.Thread(target=lambda: reports.append(verify(path, KEY)))
    with ChainLock(path):
        path.write_bytes(line[:50])
        reader.start()
        reader.join(0.2)
        path.write_bytes(line)
    reader.join()

    assert reports == [VerifyReport(1, 1, 1, 1, (), 0)]


def test_what_comes_after_the_snapshot_is_left_out():
    """Only the bytes that were there at the snapshot are read."""
    assert list(_within(io.BytesIO(b"ab\ncd\nef\n"), 4)) == [b"ab\n", b"c"]


def test_a_copy_without_its_lock_verifies(path: Path):
    """An auditor who got the files alone reads them; nothing is written beside them."""
    filled(path, 3)
    copy = path.parent / "copy"
    copy.mkdir()
    (copy / "audit.jsonl").write_bytes(path.read_bytes())

    assert verify(copy / "audit.jsonl", KEY).lines == 3
    assert [file.name for file in copy.iterdir()] == ["audit.jsonl"]


def test_a_chain_that_cannot_be_read_says_so(path: Path):
    """A folder in the place is a failure of the place, not a finding."""
    path.mkdir()

    with pytest.raises(AuditUnavailable, match="Is a directory"):
        verify(path, KEY)
