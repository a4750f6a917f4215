"""`./dev conformance`: docs/conformance.md, made from the clauses, what we do about each, and the marks of the tests.

    tests/spec/clauses.tsv    id, level, requirement: the chapters' own
    tests/spec/practice.tsv   id, state, what we do: ours, one sentence a clause
    the tests                 @pytest.mark.spec(id)

The document names files, so that it changes only when a file begins or ceases to hold a clause; `./dev conformance ID…`
prints the tests in them with the behaviour that each holds.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import NamedTuple

from tests.spec.marks import MarkedTest, marked

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "conformance.md"
CHAPTERS = {"1": "§1 Terminology", "4": "§4 Policy", "9": "§9 Authorization"}
STATES = {"held": "held", "open": "open"}

HEAD = """# Conformance

Every requirement of the chapters §1, §4 and §9 of HCP, what sense-worker does about it, and the tests that hold it.
Made by `./dev conformance` from the marks of the tests; a test fails when this page is stale or a clause that is held
loses its last test. `./dev conformance 9.4.4` prints the tests of a clause, each with the behaviour it holds.
Files are below `tests/`.

- **held**: whole, for packs, installing, Sense and commands, as far as the clause reaches.
- **open**: not whole yet; tests that stand beside it hold what is there so far.
"""


class Clause(NamedTuple):
    """One requirement, with what we do about it."""

    id: str
    level: str
    requirement: str
    state: str
    practice: str


def read_clauses(root: Path = ROOT) -> list[Clause]:
    """Return the clauses in the chapters' order. Raises ValueError where the two files do not name the same ones."""
    clauses = _rows(root / "tests" / "spec" / "clauses.tsv")
    practice = {row["id"]: row for row in _rows(root / "tests" / "spec" / "practice.tsv")}
    strays = {row["id"] for row in clauses} ^ practice.keys()
    strays |= {row["id"] for row in practice.values() if row["state"] not in STATES or not row["what we do"]}
    if strays:
        raise ValueError(f"practice.tsv has no fit row for {', '.join(sorted(strays))}")
    return [
        Clause(
            row["id"], row["level"], row["requirement"], practice[row["id"]]["state"], practice[row["id"]]["what we do"]
        )
        for row in clauses
    ]


def faults(clauses: list[Clause], tests: dict[str, list[MarkedTest]]) -> list[str]:
    """Tell of each clause that is held by nothing, and of each mark that names no clause."""
    known = {one.id for one in clauses}
    return [
        *(f"{one.id} is {one.state} and has no test" for one in clauses if one.state != "open" and one.id not in tests),
        *(f"{tests[stray][0].file} marks {stray!r}, which is no clause" for stray in sorted(tests.keys() - known)),
    ]


def document(clauses: list[Clause], tests: dict[str, list[MarkedTest]]) -> str:
    """Return the page: how much is held, then one table a chapter."""
    count = {state: sum(one.state == state for one in clauses) for state in STATES}
    summary = ", ".join(f"{count[state]} {shown}" for state, shown in STATES.items())
    parts = [HEAD, f"Of {len(clauses)} clauses: {summary}.\n"]
    for chapter, title in CHAPTERS.items():
        lines = ["| Clause | Level | Requirement | What we do | State | Tests |", "|---|---|---|---|---|---|"]
        lines += [_line(one, tests.get(one.id, [])) for one in clauses if one.id.partition(".")[0] == chapter]
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write the document, or print the tests of the clauses that are named. Answers 1 with one line a fault."""
    clauses, tests = read_clauses(), marked(ROOT, "spec")
    if arguments:
        return _print_tests(arguments, {one.id for one in clauses}, tests)
    found = faults(clauses, tests)
    for fault in found:
        sys.stderr.write(f"conformance: {fault}; see tests/spec/practice.tsv\n")
    if found:
        return 1
    DOCUMENT.write_text(document(clauses, tests))
    sys.stdout.write(f"{DOCUMENT.relative_to(ROOT)}: {len(clauses)} clauses\n")
    return 0


def _print_tests(wanted: list[str], known: set[str], tests: dict[str, list[MarkedTest]]) -> int:
    strangers = [one for one in wanted if one not in known]
    if strangers:
        sys.stderr.write(f"conformance: {strangers[0]!r} is no clause (see tests/spec/clauses.tsv)\n")
        return 2
    for one in wanted:
        sys.stdout.write(f"{one}\n")
        for test in tests.get(one, []):
            sys.stdout.write(f"  {test.file}:{test.line} {test.name}\n    {test.behaviour}\n")
    return 0


def _line(one: Clause, tests: list[MarkedTest]) -> str:
    held = "<br>".join(sorted({test.file.removeprefix("tests/") for test in tests}))
    texts = (one.id, one.level, one.requirement, one.practice, STATES[one.state])
    return f"| {' | '.join(map(_escaped, texts))} | {held} |"


def _escaped(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
