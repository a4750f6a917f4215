"""Sinks that are broken on purpose: the conformance kit has to find each for its own reason.

They deliver to one file of JSON lines or to a list of the process, and differ from a sound one in one thing each.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SecretStr

from sinks import Delivered, OneByOne, Rejected, Retry
from sinks.address import Address

TOKEN = "tok-7f3a9c51e2"
"""The planted secret."""
LEFT: list[int] = []
"""Files that sinks left open, for a test to close."""
RELEASED = threading.Event()
"""Ends the threads that sinks left running."""


class FileOptions(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    path: str
    token: SecretStr = SecretStr("")


class OpenOptions(BaseModel):
    path: str
    token: SecretStr = SecretStr("")


class Sound(OneByOne):
    """The pattern: one file of ids, each once. What the broken ones differ from."""

    kind: ClassVar[str] = "sound"
    Options: ClassVar[type[BaseModel]] = FileOptions
    options: Any
    deadline_s: ClassVar[float] = 2.0
    batch_size: ClassVar[int] = 5
    concurrency: ClassVar[int] = 4
    lock: ClassVar[threading.Lock] = threading.Lock()
    more: ClassVar[dict[str, object]] = {}
    """Options of its own that it is made with."""

    @property
    def file(self) -> Path:
        return Path(self.options.path)

    def known(self) -> set[str]:
        return set(ids(self.file))

    def keep(self, delivery):
        line = json.dumps({"id": delivery.id, "subject": delivery.subject}) + "\n"
        with self.file.open("a") as file:
            file.write(line)

    def deliver_one(self, delivery):
        if away(self.file):
            return Retry("the file's service is away")
        if delivery.principal == "nobody":
            return Rejected("nobody lives there")
        with self.lock:
            if delivery.id not in self.known():
                self.keep(delivery)
        return Delivered("kept")


def ids(file: Path) -> list[str]:
    """Return the ids in a file of a sound sink."""
    return [json.loads(line)["id"] for line in file.read_text().splitlines()] if file.exists() else []


def away(file: Path) -> bool:
    return file.with_suffix(".away").exists()


@contextmanager
def gone(file: Path):
    """Make the receiver of that file be away."""
    mark = file.with_suffix(".away")
    mark.touch()
    yield
    mark.unlink()


# What it declares.


class TakesAnything(Sound):
    """Its options let unknown names pass."""

    Options: ClassVar[type[BaseModel]] = OpenOptions


class TakenName(Sound):
    """Claims a built-in kind."""

    kind: ClassVar[str] = "inbox"


class ConnectsWhenBuilt(Sound):
    """Opens a file in `__init__`."""

    def __init__(self, name, options):
        super().__init__(name, options)
        LEFT.append(os.open(self.file, os.O_CREAT | os.O_WRONLY))


class StartsWhenBuilt(Sound):
    """Starts a thread in `__init__`, and a file is closed meanwhile that the one before left open."""

    def __init__(self, name, options):
        super().__init__(name, options)
        if LEFT:
            os.close(LEFT.pop())
            threading.Thread(target=RELEASED.wait, daemon=True).start()
        else:
            LEFT.append(os.open(self.file, os.O_CREAT | os.O_WRONLY))


# What it answers.


class AnswersNothing(Sound):
    """Forgets to return."""

    def deliver(self, batch):
        super().deliver(batch)


class AnswersTrue(Sound):
    """Answers True for an outcome."""

    def deliver_one(self, delivery):
        return super().deliver_one(delivery) and True


class SkipsSome(Sound):
    """Answers for the ones it wrote only."""

    def deliver(self, batch):
        return [super(SkipsSome, self).deliver_one(one) for one in batch[:1]]


class Shuffles(Sound):
    """Answers sorted by outcome, not by the batch."""

    def deliver(self, batch):
        return sorted(super().deliver(batch), key=repr)


class SwallowsErrors(Sound):
    """Says Delivered while its receiver is away."""

    def deliver_one(self, delivery):
        answer = super().deliver_one(delivery)
        return Delivered() if isinstance(answer, Retry) else answer


class AnswersEarly(Sound):
    """Says Delivered before it is there: it writes from a thread of its own, later."""

    def deliver_one(self, delivery):
        def later() -> None:
            time.sleep(0.2)
            with suppress(OSError):
                super(AnswersEarly, self).deliver_one(delivery)

        threading.Thread(target=later, daemon=True).start()
        return Delivered()


class RetriesForEver(Sound):
    """Calls what is too large a passing fault."""

    def deliver_one(self, delivery):
        return Retry("413") if len(delivery.body) > 100_000 else super().deliver_one(delivery)


class Exits(Sound):
    """Ends the process for a text it does not like."""

    def deliver_one(self, delivery):
        if delivery.subject == "":
            raise SystemExit(1)
        return super().deliver_one(delivery)


# What becomes of a delivery.


class KeepsRepeats(Sound):
    """Writes a delivery that comes again once more."""

    def known(self):
        return set()


class RemembersInMemory(Sound):
    """Knows repeats until it is closed."""

    def __init__(self, name, options):
        super().__init__(name, options)
        self.told: set[str] = set()

    def known(self):
        return self.told

    def keep(self, delivery):
        super().keep(delivery)
        self.told.add(delivery.id)


class EmptiesTheBatch(Sound):
    """Takes the deliveries out of the batch, which is the runtime's."""

    def deliver(self, batch):
        answers = []
        while batch:
            answers.append(self.deliver_one(batch.pop(0)))
        return answers


class TooSlow(Sound):
    """Has no timeout of its own."""

    deadline_s: ClassVar[float] = 0.3

    def deliver(self, batch):
        if len(batch) > 3:
            time.sleep(0.5)
        return super().deliver(batch)


class ForgesLines(Sound):
    """Logs a stranger's text as it is."""

    def keep(self, delivery):
        logging.getLogger("broken").info("delivering\n%s", (delivery.subject or "").partition("\n")[2])
        super().keep(delivery)


class BreaksOnLineBreaks(Sound):
    """Writes a text into a line-based file without encoding it; it never reads that itself, and so does not see it."""

    def known(self):
        return set()

    def keep(self, delivery):
        with self.file.open("a") as file:
            file.write(f'{{"id": "{delivery.id}", "subject": "{delivery.subject}"}}\n')


# Secrets.


class LeaksInReceipt(Sound):
    """Answers with the address it called, token and all."""

    def deliver_one(self, delivery):
        super().deliver_one(delivery)
        return Delivered(f"https://api.example/{self.options.token.get_secret_value()}/{delivery.id[:4]}")


class LeaksInReason(Sound):
    """Gives the library's exception as a reason."""

    def deliver_one(self, delivery):
        answer = super().deliver_one(delivery)
        if isinstance(answer, Retry):
            return Retry(f"cannot reach https://api.example/{self.options.token.get_secret_value()}")
        return answer


class LeaksInLog(Sound):
    """Logs its headers for debugging."""

    def keep(self, delivery):
        headers = {"authorization": self.options.token.get_secret_value()}
        logging.getLogger("broken").debug("headers %r", headers)
        super().keep(delivery)


class LeaksInRepr(Sound):
    """Shows itself with its options' values."""

    def __repr__(self):
        return f"LeaksInRepr({self.options.token.get_secret_value()})"


class LeaksInException(Sound):
    """Raises with the token in the text once it is closed."""

    opened = True

    def close(self):
        self.opened = False

    def deliver(self, batch):
        if not self.opened:
            raise ConnectionError(f"no session for {self.options.token.get_secret_value()}")
        return super().deliver(batch)


class AddressOptions(FileOptions):
    url: Address


class LeaksItsAddress(Sound):
    """Answers with an address whose path is the secret; its type is a subclass of SecretStr."""

    Options: ClassVar[type[BaseModel]] = AddressOptions
    more: ClassVar[dict[str, object]] = {"url": "https://hook.example/T0/B0/hook-5d21e8"}

    def deliver_one(self, delivery):
        super().deliver_one(delivery)
        return Delivered(self.options.url.get_secret_value())


class PlainOptions(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    path: str
    token: str = ""


class PlainToken(Sound):
    """Its token is plain text: a warning, no failure."""

    Options: ClassVar[type[BaseModel]] = PlainOptions


# Its life.


class ClosesOnce(Sound):
    """A second close raises."""

    handle: Any = None

    def open(self):
        self.handle = self.file.open("a")

    def close(self):
        self.handle.close()
        self.handle = None


class LeavesFilesOpen(Sound):
    """Forgets the file it opened."""

    def open(self):
        LEFT.append(os.open(self.file, os.O_CREAT | os.O_WRONLY))


class BoundToItsThread(Sound):
    """Keeps a thing that only the thread that opened it may use, as sqlite3 does by default."""

    def open(self):
        self.thread = threading.get_ident()

    def deliver(self, batch):
        if threading.get_ident() != self.thread:
            raise RuntimeError("made in another thread")
        return super().deliver(batch)


class HangsOnceClosed(Sound):
    """A call that meets a closed connection waits for it."""

    deadline_s: ClassVar[float] = 0.5

    def open(self):
        self.ready = threading.Event()
        self.ready.set()

    def deliver(self, batch):
        self.ready.wait()
        return super().deliver(batch)

    def close(self):
        if hasattr(self, "ready"):
            self.ready.clear()


class ParentsWorker(Sound):
    """One writer thread for the whole class: a forked child has the queue and no thread."""

    deadline_s: ClassVar[float] = 0.5

    jobs: ClassVar[queue.Queue[Any]] = queue.Queue()
    writer: ClassVar[threading.Thread | None] = None

    def open(self):
        if ParentsWorker.writer is None:
            ParentsWorker.writer = threading.Thread(target=self.write_all, daemon=True)
            ParentsWorker.writer.start()

    @classmethod
    def write_all(cls):
        while True:
            work, done = cls.jobs.get()
            work()
            done.set()

    def keep(self, delivery):
        done = threading.Event()
        self.jobs.put((lambda: super(ParentsWorker, self).keep(delivery), done))
        done.wait()


class SharesItsBuffer(Sound):
    """Says four calls at once, and shares what they write with."""

    pending: Any = None

    def deliver(self, batch):
        self.pending = list(batch)
        time.sleep(0.01)
        return [self.deliver_one(one) for one in self.pending]


# Lands.


class RefusesALand(Sound):
    """Declares every land and takes two."""

    def deliver_one(self, delivery):
        return Rejected("nothing local here") if delivery.land == "local" else super().deliver_one(delivery)


def into_the_workspace(delivery):
    """Write a delivery into its workspace by plain paths."""
    if delivery.workspace is None:
        return Rejected("no workspace")
    folder = Path(delivery.workspace) / "events"
    try:
        folder.mkdir(exist_ok=True)
        with (folder / "events.jsonl").open("a") as file:
            file.write(json.dumps({"id": delivery.id}) + "\n")
    except OSError as error:
        return Retry(os.strerror(error.errno or 0))
    return Delivered()


class FollowsLinks(OneByOne):
    """Writes into the workspace through whatever stands there."""

    kind: ClassVar[str] = "follows_links"
    deadline_s: ClassVar[float] = 2.0

    @property
    def workspace(self):
        return True

    def deliver_one(self, delivery):
        return into_the_workspace(delivery)


class MakesTheWorkspace(FollowsLinks):
    """Makes the workspace folder where it is missing, as whoever runs the worker."""

    def deliver_one(self, delivery):
        Path(delivery.workspace or "/nowhere").mkdir(parents=True, exist_ok=True)
        return into_the_workspace(delivery)
