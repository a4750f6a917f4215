"""`python -m tests.fuzz DOOR [FIRST [COUNT]]`: run COUNT (1) inputs from seed FIRST (0) on through a door.

Prints one JSON object of what became of them. Exit 1 names the first seed that went wrong, with the line that runs it
again by itself. `SENSE_FUZZ_PROGRESS` names a file of 16 bytes that tells which input is being judged.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from pathlib import Path

from tests.fuzz.door import run
from tests.fuzz.doors import door_named


def main(arguments: list[str]) -> int:
    name, first, count = (*arguments, *("0", "1")[len(arguments) - 1 :])
    progress = None
    if path := os.environ.get("SENSE_FUZZ_PROGRESS"):
        with Path(path).open("r+b") as file:
            progress = mmap.mmap(file.fileno(), 16)
    words, failure = run(door_named(name), range(int(first), int(first) + int(count)), progress)
    print(json.dumps({"door": name, "inputs": words.total(), "outcomes": dict(words.most_common())}))  # noqa: T201
    if failure is None:
        return 0
    sys.stderr.write(f"{failure.text}input: {failure.given}\nagain: python -m tests.fuzz {name} {failure.seed}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
