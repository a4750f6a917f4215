"""docs/conformance.md says what the tests say, and no clause and no handed case is without the test it had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spec.conformance import DOCUMENT, ROOT, Clause, document, faults, main, read_clauses
from tests.spec.marks import MarkedTest, marked

if TYPE_CHECKING:
    from pathlib import Path

HANDED = [
    *(f"C{number:02}" for number in (*range(1, 14), *range(17, 35), 36, 37, 43, *range(55, 60), 61, 62, 65)),
]
"""The handed cases of Sense, Execute, packs, storage and settings."""


@pytest.fixture(scope="module")
def tests() -> dict[str, list[MarkedTest]]:
    """The marked tests by clause."""
    return marked(ROOT, "spec")


def test_the_document_is_what_the_marks_say(tests):
    """`./dev conformance` would write what stands there."""
    stale = "docs/conformance.md is stale: run `./dev conformance` and commit it"

    assert DOCUMENT.read_text() == document(read_clauses(), tests), stale


def test_no_clause_lost_its_last_test(tests):
    """A clause that is held has a test, and every mark names a clause."""
    assert faults(read_clauses(), tests) == []


def test_the_page_names_every_clause_and_every_test_file(tests):
    """Each clause is one line of its chapter's table; each file that marks one is named in it."""
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in DOCUMENT.read_text().splitlines()}

    assert [one.id for one in read_clauses() if one.id not in lines] == []
    for clause, found in tests.items():
        assert {test.file.removeprefix("tests/") for test in found} == {
            file for file in {test.file.removeprefix("tests/") for test in found} if file in lines[clause]
        }


@pytest.mark.parametrize(
    ("state", "holders", "fault"),
    [
        ("held", 0, "1.2.x is held and has no test"),
        ("open", 1, None),
        ("held", 1, None),
        ("open", 0, None),
    ],
)
def test_a_clause_that_is_held_by_nothing_is_a_fault(state, holders, fault):
    """The last test taken away is told; an open clause needs none and may have some."""
    test = MarkedTest("tests/test_x.py", 1, "test_x", "X.")
    found = faults([Clause("1.2.x", "MUST", "X.", state, "X.")], {"1.2.x": [test]} if holders else {})

    assert found == ([] if fault is None else [fault])


def test_a_mark_that_names_no_clause_is_a_fault():
    """A slip in an id is told with the file it stands in."""
    found = faults([], {"9.4.44": [MarkedTest("tests/test_x.py", 1, "test_x", "X.")]})

    assert found == ["tests/test_x.py marks '9.4.44', which is no clause"]


MARKED = '''
import pytest
pytestmark = [pytest.mark.spec("1"), pytest.mark.skipif(False, reason="")]

@pytest.mark.spec("2")
class TestGroup:
    pytestmark = pytest.mark.spec("3")

    @pytest.mark.spec("4", "10")
    def test_inside(self):
        """Inside.

        More."""

@pytest.mark.parametrize(
    "x", [pytest.param(1, marks=pytest.mark.spec("5")), pytest.param(2, marks=[pytest.mark.spec("6")])]
)
async def test_outside(x): ...

MORE = [pytest.param(1, marks=pytest.mark.spec("7"))]
WORLDS: list[object] = [*MORE, pytest.param(2, marks=pytest.mark.spec("8"))]

@pytest.mark.parametrize("x", WORLDS)
def test_listed(x): ...

@pytest.mark.spec("9")
def helper(): ...
'''


def test_marks_are_seen_wherever_pytest_takes_them(tmp_path: Path):
    """On module, class, function and parameter, also in a named list; what is no test holds nothing."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(MARKED)
    found = {value: [(one.name, one.behaviour) for one in held] for value, held in marked(tmp_path, "spec").items()}

    inside, outside, listed = ("TestGroup::test_inside", "Inside."), ("test_outside", ""), ("test_listed", "")
    assert found == {
        "1": [inside, outside, listed],
        "2": [inside],
        "3": [inside],
        "4": [inside],
        "5": [outside],
        "6": [outside],
        "7": [listed],
        "8": [listed],
        "10": [inside],
    }


@pytest.mark.parametrize("values", ["NAME", '"1", NAME', "*NAMES", ""])
def test_a_mark_whose_value_is_computed_is_refused(values, tmp_path: Path):
    """What cannot be read from the source would be missing from the page silently."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(f"@pytest.mark.spec({values})\ndef test_x(): ...\n")

    with pytest.raises(ValueError, match=r"tests/test_x.py:1: write the value of pytest\.mark\.spec\(\) out"):
        marked(tmp_path, "spec")


def test_the_tests_of_a_clause_are_printed_with_what_they_hold(capsys):
    """`./dev conformance ID` names file, line, test and behaviour; an id that is none is refused in one line."""
    assert main(["9.7.install"]) == 0
    printed = capsys.readouterr().out
    assert "tests/sense_worker/operator/test_packs.py:" in printed
    assert "test_installing_and_removing_need_the_grant_for_that_pack\n    Without `pack.install`" in printed

    assert main(["9.7.nothing"]) == 2
    assert capsys.readouterr().err == "conformance: '9.7.nothing' is no clause (see tests/spec/clauses.tsv)\n"


def test_every_handed_case_has_its_test():
    """Each case of ingress, authorization, packs, storage and settings that Sense has to meet is marked on a test."""
    cases = marked(ROOT, "case")

    assert [case for case in HANDED if case not in cases] == []
