"""The kit's tests of a sink's life: opening, closing, threads and processes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import warnings
from typing import TYPE_CHECKING

from sinks.bounded import Late, within
from sinks.conformance.kit import THREAD, Kit, answered, arrived, built, call, fail, held, look, ordinary, settled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sinks.conformance.given import Given
    from sinks.protocol import Delivery

THREADS = 8
"""Calls at once that are tried; a larger `concurrency` is tried with this many."""


class LifeTests(Kit):
    """Open, close, threads, processes."""

    def test_closing_twice(self, tmp_path: Path) -> None:
        """A second `close`, and one of a sink that was never opened, do nothing."""
        given = self.make(tmp_path)
        never = built(given)
        call(never, "close", never.close)
        sink = self.opened(given)
        arrived(given, sink, ordinary(given, sink, 1))
        call(sink, "close", sink.close)
        call(sink, "close", sink.close)

    def test_opening_again(self, tmp_path: Path) -> None:
        """After a close another sink of the same options opens and delivers; so does one while the old one is open."""
        given = self.make(tmp_path)
        first = self.opened(given)
        batch = ordinary(given, first, 3)
        arrived(given, first, batch[:1])
        second = self.opened(given)
        arrived(given, second, batch[1:2])
        call(first, "close", first.close)
        call(second, "close", second.close)
        arrived(given, self.opened(given), batch[2:])
        look(given, batch)

    def test_another_thread_delivers(self, tmp_path: Path) -> None:
        """The thread that opens a sink is not the one that delivers, and each batch may come from another one."""
        given = self.make(tmp_path)
        over = threading.Event()

        def in_a_thread_that_stays(work: Callable[[], None]) -> None:  # an ended one's identity goes to the next
            there = threading.Event()
            errors: list[BaseException] = []

            def run() -> None:
                try:
                    work()
                except BaseException as error:  # noqa: BLE001 - raised again below
                    errors.append(error)
                there.set()
                over.wait()

            threading.Thread(target=run, name="conformance-opens", daemon=True).start()
            there.wait()
            for error in errors:
                raise error

        try:
            sink = self.opened(given, in_a_thread_that_stays)
            batch = ordinary(given, sink, 3)
            for one in batch:
                arrived(given, sink, [one])
        finally:
            over.set()
        look(given, batch)

    def test_closing_while_delivering(self, tmp_path: Path) -> None:
        """A `close` in the middle of deliveries ends, and so does every call: with outcomes, or raising."""
        given = self.make(tmp_path)
        sink = self.opened(given)
        going, over = threading.Event(), threading.Event()

        def keep_delivering() -> None:
            closed = False
            while not closed:
                closed = over.is_set()  # one more call begins after the close
                with contextlib.suppress(Exception):  # a Retry in the runtime's eyes
                    answered(given, sink, ordinary(given, sink, min(sink.batch_size, 3)))
                going.set()

        thread = threading.Thread(target=keep_delivering, name="conformance-delivers", daemon=True)
        thread.start()
        going.wait(float(sink.deadline_s))
        try:
            call(sink, "close", sink.close)
        finally:
            over.set()
        thread.join(float(sink.deadline_s))
        if thread.is_alive():
            fail("deliver did not return after close", "Let `close` wake what waits, or give every wait a timeout")

    def test_calls_at_once(self, tmp_path: Path) -> None:
        """As many calls as `concurrency` says run at once, from threads of one process."""
        given = self.make(tmp_path)
        sink = self.opened(given)
        number = min(sink.concurrency, THREADS)
        size = min(sink.batch_size, 3)
        batch = ordinary(given, sink, number * size * 3)
        start = threading.Barrier(number)
        faults: list[AssertionError] = []

        def run(mine: Sequence[Delivery]) -> None:
            start.wait()
            try:
                for at in range(0, len(mine), size):
                    arrived(given, sink, mine[at : at + size])
            except AssertionError as error:
                faults.append(error)

        threads = [threading.Thread(target=run, args=(batch[index::number],), daemon=True) for index in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * float(sink.deadline_s) + 1)
        if faults:
            fail(f"with {number} calls at once: {faults[0]}", "Lock what calls share, or declare a lower `concurrency`")
        look(given, batch)

    def test_a_forked_child(self, tmp_path: Path) -> None:
        """A child process opens its own sink and delivers, and the parent's works on: they share no connection."""
        if not hasattr(os, "fork"):
            return
        given = self.make(tmp_path)
        sink = self.opened(given)
        batch = ordinary(given, sink, 3)
        arrived(given, sink, batch[:1])
        said = _in_a_child(lambda: self._cycle(given, batch[1:2]), 3 * float(sink.deadline_s) + 1)
        if said != "done":
            fail(
                f"in a forked child: {said or 'the process ended'}",
                "Make connections, threads and locks in `open` and keep them on `self`, never on the class or module",
            )
        arrived(given, sink, batch[2:])
        look(given, batch if given.shared else batch[::2])

    def test_closing_lets_go(self, tmp_path: Path) -> None:
        """After `close` no file, connection or thread of the sink is left."""
        given = self.make(tmp_path)
        self._cycle(given)
        before = held()
        self._cycle(given)
        after = settled(held, before)
        if after[0] > before[0] or after[1] > before[1]:
            fail(
                f"after close {after[0] - before[0]} more open files and {after[1] - before[1]} more threads are left",
                "Let `close` close what `open` opened and end what it started",
            )

    def _cycle(self, given: Given, batch: Sequence[Delivery] | None = None) -> None:
        """Open a sink, hand a batch over (by default one delivery), close it."""
        sink = self.opened(given)
        arrived(given, sink, ordinary(given, sink, 1) if batch is None else batch)
        call(sink, "close", sink.close)


def _in_a_child(work: Callable[[], None], seconds: float) -> str:
    """Return "done", or why the work failed in a forked child; empty where the child ends without a word."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the runtime's pool forks too
        child = os.fork()
    if not child:
        try:
            within(seconds, work, THREAD)
            said = "done"
        except Late:
            said = f"no end after {seconds:g} s"
        except BaseException as error:  # noqa: BLE001 - told to the parent
            said = str(error) or type(error).__name__
        os.write(write, said.encode()[:4096])
        os._exit(0)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], seconds + 2)
        return os.read(read, 4096).decode() if ready else f"no word after {seconds:g} s"
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
