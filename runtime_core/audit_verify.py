"""Verify an audit chain: tell what was torn by a crash from what was changed and what was cut (§9.6, DESIGN §9)."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple

from runtime_core.audit_chain import TORN
from runtime_core.audit_files import GENESIS, LINE, MAC_BYTES, Head, lock_file, rotated_files
from runtime_core.errors import AuditUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

ProblemKind = Literal["torn", "changed", "cut", "anchor"]
PROBLEM_LIMIT = 1_000
"""Problems kept in a report; a chain under another key has one a line."""
_WHOLE_MAC = re.compile(rb',"mac":"[0-9a-f]{64}"\}')


class Problem(NamedTuple):
    """One finding. `line` counts from 1 within `file`; `seq` is as read there, None where there is none to read.

    torn: a write was cut short by a crash, before it was acknowledged (where it was not a crash, an anchor tells).
    changed: bytes are not what was written. cut: lines are missing. anchor: a line is not the one that was anchored.
    """

    kind: ProblemKind
    file: str
    line: int
    seq: int | None
    text: str


class VerifyReport(NamedTuple):
    """What `verify` found: whole lines read, those whose MAC holds, the numbers of the first and last."""

    lines: int
    verified: int
    first: int | None
    last: int | None
    problems: tuple[Problem, ...]
    omitted: int
    """Problems beyond PROBLEM_LIMIT."""

    @property
    def ok(self) -> bool:
        """Return whether nothing was changed or is missing; a torn write is no loss."""
        return not self.omitted and all(problem.kind == "torn" for problem in self.problems)


def verify(path: Path, key: bytes | Sequence[bytes], anchors: Iterable[tuple[int, str]] = ()) -> VerifyReport:
    """Read the finished files of the chain at `path` and then `path`, streaming. Raises AuditUnavailable.

    `key`: the audit key, or every key that lines may be under. `anchors`: heads kept elsewhere, read before the call;
    without them an end cut off whole cannot be seen. Safe while processes append.
    """
    keys = (key,) if isinstance(key, bytes) else tuple(key)
    if not keys or not all(keys):
        raise ValueError("an audit key must not be empty")
    walk = _Walk(keys, anchors)
    try:
        finished, current = _snapshot(path)
        for file in finished:
            with file.open("rb") as opened:
                walk.file(file.name, opened)
        if current is not None:
            with current[0] as opened:
                walk.file(path.name, _within(opened, current[1]))
    except OSError as error:
        raise AuditUnavailable(str(path), error.strerror or type(error).__name__) from error
    return walk.report(path.name)


def _snapshot(path: Path) -> tuple[list[Path], tuple[BinaryIO, int] | None]:
    """Return the finished files and the open current one with its size, between two appends: none is missed."""
    try:
        lock = lock_file(path).open("rb")
    except FileNotFoundError:  # a copy of the files, or a chain nobody writes
        return _listed(path)
    with lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        return _listed(path)


def _listed(path: Path) -> tuple[list[Path], tuple[BinaryIO, int] | None]:
    finished = rotated_files(path) if path.parent.is_dir() else []
    try:
        opened = path.open("rb")
    except FileNotFoundError:
        return finished, None
    return finished, (opened, os.fstat(opened.fileno()).st_size)


def _within(file: BinaryIO, size: int) -> Iterator[bytes]:
    for line in file:
        if size <= 0:
            return
        yield line[:size]
        size -= len(line)


class _Fragment(NamedTuple):
    """Bytes between two lines, or after the last, that are no line."""

    file: str
    line: int
    subject: str
    ended: bool
    """A newline follows: its own, or the one that closed it."""
    whole: bool
    """It holds the end of a whole line, as no write that was cut short does."""


class _Walk:
    """The state of one reading: the last line that held, and how many since did not."""

    def __init__(self, keys: tuple[bytes, ...], anchors: Iterable[tuple[int, str]]) -> None:
        self._keys = [hmac.new(key, digestmod="sha256") for key in keys]
        self._anchors = dict(anchors)
        self._head = Head(0, GENESIS)
        self._unread = 0
        self._fragment: _Fragment | None = None
        self._lines = self._verified = self._omitted = 0
        self._first: int | None = None
        self._last: int | None = None
        self._problems: list[Problem] = []

    def file(self, name: str, lines: Iterable[bytes]) -> None:
        """Read the lines of one file, each with its newline where it has one."""
        for number, raw in enumerate(lines, 1):
            body = raw.removesuffix(b"\n")
            match = LINE.fullmatch(body)
            if match:
                seq, prev, mac = int(match[1]), match[2].decode(), match[3].decode()
                self._line(name, number, body, Head(seq, mac), prev)
            else:
                self._settle(vouched=False)
                subject = f"{len(body)}:{hashlib.sha256(body).hexdigest()}"
                whole = _WHOLE_MAC.search(body) is not None
                self._fragment = _Fragment(name, number, subject, len(raw) > len(body), whole)

    def report(self, name: str) -> VerifyReport:
        """Settle what is open at the end; `name` stands for the place where lines are missing."""
        self._settle(vouched=self._fragment is not None and not self._fragment.ended)
        reached = self._head.seq + self._unread
        beyond = max((seq for seq in self._anchors if seq > reached), default=0)
        if beyond:
            self._add("cut", name, 0, beyond, f"line {beyond} was anchored, the chain ends at line {reached}")
        return VerifyReport(self._lines, self._verified, self._first, self._last, tuple(self._problems), self._omitted)

    def _line(self, name: str, number: int, body: bytes, head: Head, prev: str) -> None:
        held = self._holds(body[:-MAC_BYTES], head.mac)
        if self._fragment is not None:
            self._settle(vouched=held and _vouches(body, self._fragment.subject))
        self._lines += 1
        self._first, self._last = head.seq if self._first is None else self._first, head.seq
        if not held:
            self._add("changed", name, number, head.seq, "does not match its MAC")
            self._unread += 1
            return
        self._verified += 1
        self._link(name, number, head.seq, prev)
        if self._anchors.get(head.seq, head.mac) != head.mac:
            self._add("anchor", name, number, head.seq, "is not the line that was anchored under this number")
        self._head, self._unread = head, 0

    def _link(self, name: str, number: int, seq: int, prev: str) -> None:
        expected = self._head.seq + self._unread + 1
        if seq <= self._head.seq:
            self._add("changed", name, number, seq, f"stands after line {self._head.seq}")
        elif seq > expected:
            missing = f"lines {expected} to {seq - 1} are" if seq - 1 > expected else f"line {expected} is"
            self._add("cut", name, number, seq, f"{missing} missing before it")
        elif not self._unread and prev != self._head.mac:
            self._add("cut", name, number, seq, "the line before it is not the one it was chained to")

    def _settle(self, *, vouched: bool) -> None:
        fragment, self._fragment = self._fragment, None
        if fragment is None:
            return
        if vouched and not fragment.whole:
            self._add("torn", fragment.file, fragment.line, None, "a write was cut short")
        else:
            self._add("changed", fragment.file, fragment.line, None, "is no line of the chain")
            self._unread += 1

    def _holds(self, text: bytes, mac: str) -> bool:
        for index, key in enumerate(self._keys):
            keyed = key.copy()
            keyed.update(text)
            if hmac.compare_digest(keyed.hexdigest(), mac):
                if index:  # lines under one key stand together: try it first from here on
                    self._keys.insert(0, self._keys.pop(index))
                return True
        return False

    def _add(self, kind: ProblemKind, file: str, line: int, seq: int | None, text: str) -> None:
        if len(self._problems) < PROBLEM_LIMIT:
            self._problems.append(Problem(kind, file, line, seq, text))
        else:
            self._omitted += 1


def _vouches(body: bytes, subject: str) -> bool:
    record = json.loads(body)
    return bool(record["action"] == TORN and record["subject"] == subject)
