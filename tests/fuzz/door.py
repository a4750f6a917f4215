"""What a door is here, and running generated inputs through one: no crash, no hang, no acceptance of what is wrong."""

from __future__ import annotations

import random
import resource
import struct
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Sequence

CORPUS = Path(__file__).parent / "corpus"
MEMORY_LIMIT = 4 << 30
"""Bytes of address space: an input that wants more ends as a MemoryError, not as a machine that swaps."""
SHOWN = 2000


@dataclass(frozen=True)
class Door:
    """One door: `make` draws an input, `judge` runs it through and returns a word for what became of it.

    `judge` raises AssertionError where the door accepts what an independent second look refuses, or refuses in a way it
    does not declare; whatever else it raises is a crash of the door. `known` are inputs that are always tried first.
    """

    name: str
    make: Callable[[random.Random], Any]
    judge: Callable[[Any], str]
    known: Sequence[Any] = ()
    accepted: frozenset[str] = field(default_factory=lambda: frozenset({"accepted"}))


class Failure(NamedTuple):
    """What went wrong with which input; a negative seed counts the known inputs, from -1 down."""

    seed: int
    text: str
    given: str


def corpus(name: str) -> list[bytes]:
    """Return the kept inputs of a door, good ones and those that once went wrong."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())] if (CORPUS / name).is_dir() else []


def made(door: Door, seed: int) -> Any:
    """Return the input that a seed stands for."""
    return door.known[-1 - seed] if seed < 0 else door.make(random.Random(seed))


def run(door: Door, seeds: range, progress: mmap.mmap | None = None) -> tuple[Counter[str], Failure | None]:
    """Judge the known inputs where the seeds begin at 0, then those of the seeds, up to the first that goes wrong.

    `progress` holds the number of inputs begun and the seed, for whoever watches over a hang.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, resource.getrlimit(resource.RLIMIT_AS)[1]))
    words: Counter[str] = Counter()
    known = range(-1, -1 - len(door.known), -1) if seeds.start == 0 else range(0)
    for group in (known, seeds):
        for seed in group:
            if progress is not None:
                struct.pack_into("=qq", progress, 0, words.total() + 1, seed)
            given = None
            try:
                given = made(door, seed)
                words[door.judge(given)] += 1
            except Exception as error:  # noqa: BLE001 - whatever a door raises is the finding
                return words, Failure(seed, "".join(traceback.format_exception(error)[-6:]), repr(given)[:SHOWN])
            except BaseException as error:
                if type(error).__name__ != "PanicException":  # a panic of a Rust library is no Exception
                    raise
                return words, Failure(seed, repr(error), repr(given)[:SHOWN])
    return words, None


def one_line(error: Exception) -> str:
    """Return the text of a refusal; it is one line without control characters, whatever stood in the input."""
    text = str(error)
    assert text
    assert text.isprintable(), ascii(text)
    return text
