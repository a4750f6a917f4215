"""Filters of routes: what is taken when one is saved, and what an event says to it (issue 5)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_core.errors import UsageError
from runtime_core.event import TriggerEvent, parse_body
from sense_worker import filters
from sense_worker.filter_bounds import LOOP_LIMIT, PATTERN_LIMIT, pattern_size
from sense_worker.filters import (
    BODY_BYTES,
    CPU_S,
    LENGTH_LIMIT,
    NO,
    UNAVAILABLE,
    Filter,
    Filtering,
    check_filter,
    moment_of,
)

ROUTES_MD = Path(__file__).resolve().parents[2] / "docs/routes.md"
NOON = "2026-06-01T12:00:00Z"
SECRET = "canary-3f9c"


def says(text: str, data: dict[str, Any] | None = None, subject: str | None = None, occurred_at: str = NOON) -> Any:
    """Return what an event answers to a filter: True, False, or the text of an error."""
    event = TriggerEvent("commit.created", {} if data is None else data, subject, occurred_at)
    said = Filtering(lambda: event, 10).says("ana", text)
    return True if said is None else False if said == NO else said


def refused(text: str) -> str:
    """Return the line that a filter is refused with."""
    with pytest.raises(UsageError) as error:
        check_filter(text)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("data.branch ==", "filter, column 15: mismatched input the end"),
        ("", "filter, column 1: mismatched input the end"),
        ("\n  branch == 1", "filter, line 2, column 3: undeclared reference to 'branch' (variables are ref, subject,"),
        ("ref == 3", "filter, column 5: found no matching overload for '_==_' applied to '(string, int)'"),
        ("subject == null", "filter, column 9: found no matching overload"),
        ("data.urgent", "filter: answers dyn, not true or false (compare, such as"),
        ("size(data)", "filter: answers int, not true or false"),
        ("x" * (LENGTH_LIMIT + 1), f"filter: longer than {LENGTH_LIMIT} bytes"),
        ("ref == '" + "ä" * (LENGTH_LIMIT // 2) + "'", f"filter: longer than {LENGTH_LIMIT} bytes"),
        ("ref == '\ud800'", "filter: is not UTF-8"),
        ("(" * 40 + "true" + ")" * 40, "filter: nested too deeply"),
        ("data" + ".a" * 40 + " == 1", "filter: nested too deeply"),
        ('ref.matches("(a")', "filter, column 12: '(a' is no regular expression of RE2"),
        ("{b'a': 1}", "filter: a map whose keys are"),
        ("ref.lowerAscii() == 'a'", "filter, column 15: undeclared reference to 'lowerAscii'"),
    ],
)
def test_what_is_no_filter_is_refused_where_it_is_wrong(text, line):
    """A syntax or type error, an unknown name, another result than true or false, a length: place, reason, way out."""
    assert refused(text).startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("data.l.exists(x, x == data.y)", "column 23: a loop may look at its own element only"),
        ('data.l.exists(x, subject.matches("a.*c"))', "column 33: a regular expression within a loop"),
        ('data.l.exists(x, x.matches("a.*c"))', "column 27: a regular expression within a loop"),
        ("data.l.all(x, x.l.exists(y, y == 1))", "column 25: a loop within a loop"),
        ("data.l.map(x, x) == [1]", "column 11: map and filter make lists of any length"),
        ("data.l.filter(x, x > 1) == [1]", "column 14: map and filter make lists of any length"),
        ("[data.s, data.t].exists(x, x == 'a')", "column 24: a loop walks a part of data or a list of constants"),
        ("data.l.exists(x, x in [" + ",".join("1" * 60) + "])", "column 14: a loop of 70 steps for each element"),
        ("data.l.exists(x," + "||".join(["x.contains('a')"] * 24) + ")", "column 14: a loop of 102 steps"),
        ("data.a + data.b == 'x'", "column 8: + may join texts or lists here"),
        ("ref + subject == 'x'", "column 5: + may join texts or lists here"),
        ("ref.matches(subject)", "column 12: a regular expression that is no literal"),
        ("data.s.contains(data.t)", "column 16: contains looks for a literal, ref or subject only"),
        ("ref.matches('(a{30}){30}')", "column 1: regular expressions of 169 characters"),
        ("ref.matches('a{129}')", "column 1: regular expressions of 135 characters"),
        ("occurred_at.getHours(data.zone) == 1", "column 21: a time zone is a literal name"),
        ("occurred_at.getHours('../../dev/zero') == 1", "column 21: a time zone is a literal name"),
        ("data.l.exists(x, timestamp(x).getHours('Europe/Vienna') == 1)", "column 39: a time zone within a loop"),
        ("google.protobuf.Struct{} == {}", "column 1: a filter makes no messages"),
    ],
)
def test_what_has_no_bound_is_refused_when_it_is_saved(text, line):
    """Nested loops, growing texts, patterns and zones from the event, repetitions: none of them gets into a route."""
    assert refused(text).startswith(f"filter, {line}")


DATA = {
    "branch": "main",
    "n": 3,
    "f": 1.0,
    "one": 1,
    "big": 2**63 - 1,
    "low": -(2**63),
    "yes": True,
    "text": "true",
    "none": None,
    "files": [{"path": "docs/a.md"}, {"path": "src/b.py"}],
    "deep": {"a": {"b": [1, 2]}},
    "a b": 1,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('data.branch == "main"', True),
        ('data.branch == "dev"', False),
        ('ref == "commit.created" && subject == ""', True),
        ('data.files.exists(f, f.path.startsWith("docs/"))', True),
        ('data.files.all(f, f.path.endsWith(".md"))', False),
        ('data["a b"] == 1 && "branch" in data && !has(data.nothing)', True),
        ('["main", "dev"].exists(b, b == "main") && data.branch in ["main"]', True),
        ("data.deep.a.b[1] == 2 && data.deep == {'a': {'b': [1, 2]}}", True),
        ("data.n == 3.0 && data.f == 1 && data.one == data.f", True),
        ("type(data.n) == int && type(data.f) == double", True),
        ("data.big == 9223372036854775807 && data.low < 0", True),
        ("data['none'] == null && data.yes == true && data.text != true", True),
        ('data.nothing == 1 || data.branch == "main"', True),
        ('data.nothing == 1 && data.branch == "dev"', False),
        ("int(data.n) + int(data.one) == 4", True),
        ("data.nothing == 1", "no such key: nothing"),
        ("data.deep.c.d == 1", "no such key: c"),
        ('data["x y"] == 1', "no such key: x y"),
        ("data[data.branch] == 1", "no such key"),
        ("data.big + 1 > 0", "a number or moment out of range"),
        ("data.n / (data.n - 3) == 1", "division by zero"),
        ("data.branch > 3", "wrong type for > of string, int64"),
        ('data.n.startsWith("a")', "wrong type for startsWith of int64, string"),
        ("!data.branch", "wrong type for !"),
        ("data.branch.x == 1", "a field of what is no object"),
        ("data.deep.a.b[9] == 1", "no such element of a list"),
        ("data.text && data.yes", "wrong type for &&"),
        ("timestamp(data.branch) < occurred_at", "a value that cannot be converted"),
        ("data.n[0] == 1", "an element of what is no list or object"),
        ("data.n.exists(x, x == 1)", "a loop over what is no list or object"),
        ('data.deep[data["none"]] == 1', "a key that is no text, number or true and false"),
        ("data.deep[data.n] == 1", "no such key"),
        ("data.n in data.branch", "wrong type for in"),
        ("data.n ? true : false", "a condition that is not true or false"),
        ("int(data.branch) == 1", "a value that cannot be converted"),
        ("uint(data.low) == 1u", "a number or moment out of range"),
    ],
)
def test_only_true_passes(text, expected):
    """True passes, false does not match, and everything else is an error with a text of its own, never a match."""
    assert says(text, DATA) == (expected if isinstance(expected, bool) else f"filter error: {expected}")


def test_an_error_that_python_holds_for_true_is_no_match():
    """The library answers errors as values: texts, which are true to Python. Their type is looked at first."""
    answer = Filter("data.nothing == 1")._program.eval(data={"data": {}})
    assert bool(answer.value())

    assert says("data.nothing == 1") == "filter error: no such key: nothing"


@pytest.mark.parametrize(
    ("occurred_at", "text"),
    [
        ("2026-06-01T14:00:00+02:00", f'occurred_at == timestamp("{NOON}")'),
        ("2026-06-01t12:00:00z", f'occurred_at == timestamp("{NOON}")'),
        ("2026-06-01T12:00:00.123456789Z", f'occurred_at == timestamp("{NOON[:-1]}.123456Z")'),
        ("2016-12-31T23:59:60Z", 'occurred_at == timestamp("2017-01-01T00:00:00Z")'),
        ("2026-06-01T23:30:00Z", 'occurred_at.getHours("Europe/Vienna") == 1 && occurred_at.getHours("-01:00") == 22'),
        ("0001-01-01T00:00:01Z", "occurred_at.getFullYear() == 1"),
    ],
)
def test_occurred_at_is_a_moment(occurred_at, text):
    """RFC 3339 with any zone, to the microsecond; a leap second is the second after it."""
    parse_body(json.dumps({"ref": "r", "data": {}, "occurred_at": occurred_at}).encode())

    assert says(text, occurred_at=occurred_at) is True


def test_a_moment_outside_of_the_years_of_cel_concerns_only_who_asks_for_it():
    """The last year's end west of Greenwich is an error where occurred_at is looked at, and nothing elsewhere."""
    late = "9999-12-31T23:59:59-01:00"
    assert moment_of(late) is None

    expected = "filter error: occurred_at outside of the years 1 to 9999"
    assert says(f'occurred_at > timestamp("{NOON}")', occurred_at=late) == expected
    assert says('ref == "commit.created"', occurred_at=late) is True


def test_an_absent_subject_is_an_empty_text():
    """So that startsWith and == need no question before them."""
    assert says('subject == "" && !subject.startsWith("a")', subject=None) is True
    assert says('subject == "main"', subject="main") is True


@pytest.mark.case("C53")
@pytest.mark.parametrize(
    "text",
    [
        "data[data.s] == 1",
        "int(data.s) == 1",
        "timestamp(data.s) == occurred_at",
        "data.s > 1",
        "data.s[0] == 1",
        "data.m[data.s].x == 1",
        "occurred_at + duration(data.s) > occurred_at",
    ],
)
def test_no_value_of_an_event_stands_in_an_error(text):
    """Receipts and the audit keep the text of an error, and never data."""
    said = says(text, {"s": SECRET, "m": {SECRET: 1}})

    assert said.startswith("filter error: ")
    assert SECRET not in said


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("||".join(["data.l != data.l"] * 110), {"l": [1] * 32_000}),
        ("||".join(["-1 in data.l"] * 130), {"l": [1] * 32_000}),
        ("data.s.matches('a.{0,100}c')", {"s": "ab" * 32_000}),
        ("data.s.contains('" + "a" * 1_900 + "b')", {"s": "a" * 64_000}),
        ("data.l.exists(x, " + "||".join(["x.contains('c')"] * 3) + ")", {"l": ["ab"] * 9_999}),
        ("||".join(["size(data.s) == 1"] * 100), {"s": "ä" * 32_000}),
    ],
)
def test_the_costliest_filters_end_soon(text, data):
    """Of data as large as a filter may see: a second or so of CPU at most, where an unbounded one takes minutes."""
    event = TriggerEvent("r", data, None, NOON)
    filtering = Filtering(lambda: event, BODY_BYTES)
    began = time.thread_time()
    assert filtering.says("ana", text) == NO

    assert time.thread_time() - began < 3


def test_a_loop_ends_after_ten_thousand_elements():
    """All loops of an evaluation together, by the library's own bound."""
    text = "data.l.exists(x, x == 2)"
    assert says(text, {"l": [1] * 9_999}) is False

    assert says(text, {"l": [1] * 10_001}) == "filter error: a loop of more than 10000 elements"
    assert says(f"{text} || {text}", {"l": [1] * 6_000}) == "filter error: a loop of more than 10000 elements"


def test_a_large_body_passes_no_filter():
    """It is not even parsed for one."""
    filtering = Filtering(lambda: pytest.fail("parsed"), BODY_BYTES + 1)

    assert filtering.says("ana", "true") == f"filter error: a body of more than {BODY_BYTES} bytes"


def test_who_spent_the_time_of_one_event_waits_for_the_next(monkeypatch):
    """An owner whose filters took their time gets errors for the rest of this event; others lose nothing."""
    clock = iter([0.0, 0.3, 0.3, 0.4, 0.4, 0.5])
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    filtering = Filtering(lambda: TriggerEvent("r", {}, None, NOON), 10)

    assert filtering.says("ana", "true") is None
    assert filtering.says("ana", "true") == "filter error: its owner's filters took more than 0.25 s"
    assert filtering.says("ben", "true") is None


def test_an_event_is_made_ready_once():
    """However many filters look at it."""
    made = []

    def event() -> TriggerEvent:
        made.append(1)
        return TriggerEvent("r", {"n": 1}, None, NOON)

    filtering = Filtering(event, 10)
    assert [filtering.says("ana", f"data.n == {number}") for number in range(3)] == [NO, None, NO]

    assert made == [1]


@pytest.fixture
def fresh_cache():
    """Compiled filters and the library, forgotten before and after."""
    for kept in (filters._compiled, filters._library, filters._environment):
        kept.cache_clear()
    yield
    for kept in (filters._compiled, filters._library, filters._environment):
        kept.cache_clear()


@pytest.mark.usefixtures("fresh_cache")
def test_without_the_library_nothing_matches_and_nothing_is_saved(monkeypatch):
    """A worker on a platform without a build says `filter unavailable`; saving names the package."""
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)

    assert says("true") == UNAVAILABLE
    assert refused("true").startswith("filter: filters need cel-expr-python, which is not installed here (pip install")


@pytest.mark.usefixtures("fresh_cache")
def test_a_stored_filter_that_this_release_does_not_take_is_no_match():
    """Such as one that a newer release has saved."""
    assert says("ref.matches(subject)") == "filter error: not accepted by this release"


@pytest.mark.usefixtures("fresh_cache")
def test_compiled_filters_are_kept_up_to_a_bound():
    """The same text is compiled once; the least recently used go first."""
    for number in range(filters.COMPILED + 10):
        says(f"data.n == {number}", {"n": 1})
    says(f"data.n == {filters.COMPILED + 9}", {"n": 1})

    kept = filters._compiled.cache_info()
    assert (kept.currsize, kept.hits) == (filters.COMPILED, 1)


def test_filters_work_in_threads_and_after_a_fork():
    """A compiled filter answers the same in eight threads at once and in a child of this process."""
    text = 'data.branch == "main" && data.n > 2'
    assert says(text, DATA) is True
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.extend(says(text, DATA) for _ in range(200))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 1600

    child = os.fork()
    if child == 0:
        os._exit(0 if says(text, DATA) is True and says("data.n == 4", DATA) is False else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_library_is_loaded_by_the_first_filter_alone():
    """What starts without one pays nothing for it: 14 MB of library, 10 ms."""
    code = (
        "import sys, sense_worker.intake.door, sense_worker.cli.routes, sense_worker.filters as f;"
        "a = 'cel_expr_python' in sys.modules; f.check_filter('true'); print(a, 'cel_expr_python' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout == "False True\n"


def _documented() -> list[str]:
    """Return every filter of docs/routes.md."""
    (block,) = re.findall(r"```cel\n(.*?)```", ROUTES_MD.read_text(), re.DOTALL)
    return block.splitlines()


@pytest.mark.parametrize("text", _documented())
def test_a_documented_filter_is_one(text):
    """Every condition of docs/routes.md can be saved."""
    check_filter(text)


def test_the_documented_limits_are_the_limits():
    """What docs/routes.md says of bytes, steps, characters and time."""
    text = " ".join(ROUTES_MD.read_text().split())

    for said in (
        f"more than {LENGTH_LIMIT // 1024} KiB,",
        f"limited to {BODY_BYTES // 1024} KiB of body",
        f"more than {LOOP_LIMIT} steps an element",
        f"more than {PATTERN_LIMIT} characters of regular expressions",
        f"(`[0-9a-f]{{40}}` has {pattern_size('[0-9a-f]{40}')})",
        f"one owner to {CPU_S:g} s of CPU time",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("pattern", "size"),
    [("abc", 3), ("[0-9a-f]{40}", 5 + 40), ("a{2,7}", 6 + 7), (r"\d{3}", 4 + 3), (r"\pL", 2 + 50), ("[a{9}]", 1)],
)
def test_a_pattern_counts_with_its_repetitions_written_out(pattern, size):
    """One of a group, or of a repetition, counts as more than any filter may have."""
    assert pattern_size(pattern) == size
    assert pattern_size(f"({pattern}){{2}}") > PATTERN_LIMIT


_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
"""What comes through the door: NUL does not, which the library cuts a key at."""
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)
_ASKED = (
    *('data.a == "x"', "data.a > 1", "data.a + 1 > 1", "has(data.a.b)", "data.a.b.c == 1", "data.a[0] == data.b"),
    *("data.a.exists(x, x == 1)", "data.a.all(k, size(k) > 1)", "data.a in data.b", "!data.a", "data.a || data.b"),
    *("size(data.a) > 1", "string(data.a) == 'x'", "data.a.matches('^a')", "data.a ? true : false", "data == data.a"),
    *("-data.a < 0", "data.a % 2 == 0", "timestamp(data.a) < occurred_at", "type(data.a) == type(data.b)"),
)


@settings(max_examples=150, deadline=None)
@given(text=st.sampled_from(_ASKED), a=_VALUES, b=_VALUES)
def test_whatever_the_data_is_a_filter_answers(text, a, b):
    """True, false or an error of the list: nothing is raised, and no error means true."""
    said = says(text, {"a": a, "b": b})

    assert said in (True, False) or (said.startswith("filter error: ") and said != "filter error: cannot be evaluated")
