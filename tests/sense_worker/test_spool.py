"""The spool: kept whole or not at all, in order, by many processes, until it is sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runtime_core.errors import PublishError
from sense_worker.announcement import Prepared
from sense_worker.spool import Sender, Spool

ROOT = Path(__file__).parents[2]
ALL = (500, 1 << 20)


def item(number: int | str, body: str = '{"ref":"a","data":{}}') -> Prepared:
    return Prepared(f"e-{number}", body.encode(), None)


def ids(items: list[Prepared]) -> list[str]:
    return [one.message_id for one in items]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", "acme/ana/git")


@pytest.fixture
def small_disk(tmp_path: Path):
    where = tmp_path / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", where], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    yield where
    subprocess.run(["umount", where], check=True)


def test_what_is_kept_comes_back_as_it_was_in_order(spool):
    """Id, body bytes and traceparent come back unchanged, in the order in which they were kept."""
    kept = [
        Prepared("e-1", '{"ref":"a","data":{"x":"Zoë 🦉\u2028\\n"}}'.encode(), None),
        Prepared('!~"\\', b'{ "ref": "a",\n "data": {} }', "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ]
    spool.keep(kept[:1])
    spool.keep(kept[1:])
    sender = Sender(spool)
    assert sender.claim()
    assert sender.take(*ALL) == kept
    sender.release()


def test_the_files_are_for_their_owner_only(spool):
    """Both files are made with mode 0600."""
    spool.keep([item(1)])
    sender = Sender(spool)
    sender.claim()
    sender.release()
    modes = {file.name: file.stat().st_mode & 0o777 for file in spool.path.parent.iterdir()}
    assert modes == {"spool": 0o600, "spool.sending": 0o600}


def test_what_was_sent_is_not_taken_again(spool):
    """A new sender goes on behind the last mark; when all is sent the file is empty."""
    spool.keep([item(number) for number in range(5)])
    first = Sender(spool)
    assert first.claim()
    assert ids(first.take(3, 1 << 20)) == ["e-0", "e-1", "e-2"]
    first.sent(2)
    first.release()
    spool.keep([item(5)])
    second = Sender(spool)
    assert second.claim()
    assert ids(second.take(*ALL)) == ["e-2", "e-3", "e-4", "e-5"]
    second.sent(4)
    assert second.take(*ALL) == []
    assert spool.path.stat().st_size == 0
    assert not spool.holds()


def test_a_batch_has_an_end(spool):
    """A batch holds at most as many and about as many bytes as asked for, and always at least one."""
    spool.keep([item(number, '{"ref":"a","data":{"x":"' + "x" * 1000 + '"}}') for number in range(4)])
    sender = Sender(spool)
    sender.claim()
    assert ids(sender.take(2, 1 << 20)) == ["e-0", "e-1"]
    sender.sent(2)
    assert ids(sender.take(500, 10)) == ["e-2"]
    sender.release()


def test_one_process_sends_at_a_time(spool):
    """While one sends, another is told so at once; the last empty batch gives the right back."""
    spool.keep([item(1)])
    first, second = Sender(spool), Sender(spool)
    assert first.claim()
    assert not second.claim()
    first.sent(len(first.take(*ALL)))
    assert first.take(*ALL) == []
    assert second.claim()
    second.release()


def test_what_is_kept_while_another_sends_is_sent_by_it(spool):
    """An append goes through while a sender is at work, and the sender sees it before it ends."""
    spool.keep([item(1)])
    sender = Sender(spool)
    sender.claim()
    sender.sent(len(sender.take(*ALL)))
    spool.keep([item(2)])
    assert ids(sender.take(*ALL)) == ["e-2"]
    sender.release()


@pytest.mark.parametrize("torn", [b'{"v":1,"origin":"acme/ana/git","id":"e-9","bo', b"\0" * 70_000])
def test_a_line_that_a_power_cut_left_is_cut(spool, torn):
    """A last line without its end was never kept: the next one does not join it."""
    spool.keep([item(1)])
    with spool.path.open("ab") as file:
        file.write(torn)
    spool.keep([item(2)])
    sender = Sender(spool)
    sender.claim()
    assert ids(sender.take(*ALL)) == ["e-1", "e-2"]
    sender.release()


def test_only_a_torn_line_is_nothing(spool):
    """A file that holds nothing but a torn line is emptied."""
    spool.path.write_bytes(b'{"v":1')
    sender = Sender(spool)
    sender.claim()
    assert sender.take(*ALL) == []
    assert not spool.holds()


def test_a_full_disk_raises_and_keeps_nothing_of_it(small_disk):
    """On a full disk keeping raises with the place, and what was kept before stays whole; with room it goes on."""
    spool = Spool(small_disk / "spool", "acme/ana/git")
    spool.keep([item(1)])
    size = spool.path.stat().st_size
    with pytest.raises(PublishError, match=r"spool: the spool cannot be used: No space left on device"):
        spool.keep([item(number, '{"ref":"a","data":{"x":"' + "x" * 9000 + '"}}') for number in range(20)])
    assert spool.path.stat().st_size == size
    spool.keep([item(2)])
    sender = Sender(spool)
    sender.claim()
    assert ids(sender.take(*ALL)) == ["e-1", "e-2"]
    sender.release()


def test_a_mark_that_cannot_be_written_costs_a_repeat_only(spool):
    """Where the mark cannot be written the sender goes on; a later one sends again, under the same ids."""
    spool.keep([item(1), item(2)])
    sender = Sender(spool)
    sender.claim()
    assert ids(sender.take(1, 1)) == ["e-1"]
    aside = spool.path.rename(spool.path.with_name("aside"))
    spool.path.mkdir()
    sender.sent(1)
    spool.path.rmdir()
    aside.rename(spool.path)
    assert ids(sender.take(*ALL)) == ["e-2"]
    sender.release()
    later = Sender(spool)
    later.claim()
    assert ids(later.take(*ALL)) == ["e-1", "e-2"]
    later.release()


@pytest.mark.parametrize("name", ["", "no/such/folder/spool"])
def test_a_place_that_is_no_file_raises_with_the_place(tmp_path, name):
    """A folder in the place, or no folder for it, is a PublishError that names it."""
    with pytest.raises(PublishError, match=str(tmp_path)):
        Spool(tmp_path / name, "acme/ana/git").keep([item(1)])


def test_a_link_in_the_place_is_not_followed(tmp_path):
    """A symbolic link where the spool should be is refused, and its target stays as it was."""
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    (tmp_path / "spool").symlink_to(target)
    with pytest.raises(PublishError, match="cannot be used"):
        Spool(tmp_path / "spool", "acme/ana/git").keep([item(1)])
    assert target.read_bytes() == b"mine"


@pytest.mark.parametrize("line", [b"hello", b"[]", b'{"v":1,"origin":"acme/ana/git"}', b'{"v":1,"id":5}', b"\xff\xfe"])
def test_a_line_that_is_none_of_a_spool_is_named(spool, line):
    """A broken line stops the sending with its byte, and nothing is passed over in silence."""
    spool.keep([item(1)])
    at = spool.path.stat().st_size
    with spool.path.open("ab") as file:
        file.write(line + b"\n")
    sender = Sender(spool)
    sender.claim()
    with pytest.raises(PublishError, match=rf"at byte {at}: no line of a spool"):
        sender.take(*ALL)
    sender.release()
    assert spool.holds()


def test_another_ones_events_are_not_sent(spool):
    """What was kept for another principal or pack is refused instead of being announced as one's own."""
    spool.keep([item(1)])
    sender = Sender(Spool(spool.path, "acme/bob/git"))
    sender.claim()
    with pytest.raises(PublishError, match="kept for acme/ana/git, not for acme/bob/git"):
        sender.take(*ALL)
    sender.release()


@pytest.mark.parametrize("count", [1, 12])
def test_a_file_put_in_the_place_meanwhile_is_read_from_its_beginning(spool, count):
    """When the spool is removed while one sends, nothing in the new file, shorter or longer, is passed over."""
    spool.keep([item(number) for number in range(9)])
    sender = Sender(spool)
    sender.claim()
    taken = sender.take(*ALL)
    spool.path.unlink()
    spool.keep([item(f"new-{number}") for number in range(count)])
    sender.sent(len(taken))
    assert ids(sender.take(*ALL)) == [f"e-new-{number}" for number in range(count)]
    sender.release()
    later = Sender(spool)
    later.claim()
    assert len(later.take(*ALL)) == count
    later.release()


def test_nothing_is_left_open(spool):
    """Keeping, sending and failing leave no open file."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    spool.keep([item(1)])
    sender, other = Sender(spool), Sender(spool)
    sender.claim()
    other.claim()
    sender.sent(len(sender.take(*ALL)))
    sender.take(*ALL)
    with pytest.raises(PublishError):
        Spool(spool.path.parent, "x").keep([item(1)])
    assert len(list(Path("/proc/self/fd").iterdir())) == before


KEEPER = """
import sys
from pathlib import Path
from sense_worker.announcement import Prepared
from sense_worker.spool import Sender, Spool

spool = Spool(Path(sys.argv[1]), "acme/ana/git")
for number in range(40):
    spool.keep([Prepared(f"{sys.argv[2]}-{number}", b'{"ref":"a","data":{"x":"' + b"x" * 5000 + b'"}}', None)])
    sender = Sender(spool)
    if sender.claim():
        for _ in range(2):
            if not (batch := sender.take(1, 1)):
                break
            print(batch[0].message_id)
            sender.sent(1)
        sender.release()
"""


def test_many_processes_keep_and_send_each_event_once_in_order(spool):
    """Four processes keep and send at the same time: every event is taken once, each process's in its order."""
    argv = [sys.executable, "-c", KEEPER, spool.path]
    running = [subprocess.Popen([*argv, name], stdout=subprocess.PIPE, cwd=ROOT) for name in "abcd"]
    outputs = [process.communicate(timeout=60)[0].decode().split() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0, 0]
    sender = Sender(spool)
    sender.claim()
    rest = ids(sender.take(*ALL))
    sender.release()
    taken = [*(one for output in outputs for one in output), *rest]
    assert sorted(taken) == sorted(f"{name}-{number}" for name in "abcd" for number in range(40))
    for name in "abcd":
        for output in [*outputs, rest]:
            numbers = [int(one.partition("-")[2]) for one in output if one.startswith(name)]
            assert numbers == sorted(numbers)
