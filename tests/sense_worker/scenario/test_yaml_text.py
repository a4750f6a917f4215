"""YAML as scenario files are written in it: kinder to write than JSON, and as strict."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sense_worker.scenario.yaml_text import YamlFault, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, True) for word in ("true", "True", "TRUE")),
        *((word, False) for word in ("false", "False", "FALSE")),
        *((word, None) for word in ("null", "Null", "NULL", "~", "")),
        *((number, float(number)) for number in ("1.5", ".5", "1.", "1e5", "-2.5E-3")),
        *((number, int(number)) for number in ("0", "12", "-7", "+400", "9223372036854775807", "-9223372036854775808")),
    ],
)
def test_a_plain_scalar_is_what_every_yaml_makes_of_it(text, value):
    """true, null and numbers in the spellings that YAML 1.1 and 1.2 share."""
    found = parse_yaml(f"a: {text}")["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "no",
            "No",
            "yes",
            "on",
            "off",
            "y",
            "n",
            "010",
            "0o7",
            "0x1f",
            "1_000",
            "0b1",
            "12:30",
            "1e",
            "tRUE",
            "nUll",
        ),
        *("2026-06-01", "2026-06-01T12:00:00Z", "+2h", "-30s", "1.2.3", "."),
        *("'5'", '"true"', "'null'"),
    ],
)
def test_what_the_versions_of_yaml_read_differently_stays_text(text):
    """`no` is not false, a date no date, 010 no octal; quotes make text of anything."""
    found = parse_yaml(f"a: {text}")["a"]
    assert (found, type(found)) == (text.strip("'\""), str)


def test_a_block_is_text():
    """Also where it looks like a number."""
    assert parse_yaml("a: |\n  5\nb: >-\n  true\n") == {"a": "5\n", "b": "true"}


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: 1\nb: 2\na: 3", 3, "'a' stands twice"),
        ("1: a\n'1': b", 2, "'1' stands twice"),
        ("a: {b: 1, b: 2}", 1, "'b' stands twice"),
        ("a: !!str 5", 1, "tag"),
        ("a: !!python/object/apply:os.system [ls]", 1, "tag"),
        ("a: !mine 5", 1, "tag"),
        ("a: !<plain> 5", 1, "tag"),
        ("a: !!map {}", 1, "tag"),
        ("\n\na: *nobody", 3, "undefined alias"),
        ("a: 1\n---\nb: 2", 2, "document"),
        ("? [a, b]\n: 1", 1, "a key must be text"),
        ("a: 9223372036854775808", 1, "outside 64 bit"),
        ("a: -9223372036854775809", 1, "outside 64 bit"),
        (f"a: {'9' * 5000}", 1, "outside 64 bit"),
        ("a: 1e999", 1, "overflows"),
        ("a: .inf", 1, "no number"),
        ("a: -.INF", 1, "no number"),
        ("a: .NaN", 1, "no number"),
        ('a: "\\0"', 1, "NUL"),
        ('"\\0": a', 1, "NUL"),
        ('a: "\\ud800"', 1, "Unicode"),
        ("a: \x07", 1, "control characters"),
        ("\ufeffa: 1", 1, "byte-order mark"),
        ("a: [1, 2", 2, "did not find"),
        ("\ta: 1", 1, "cannot start any token"),
        ("a: &x [*x]", 1, "nested more than 64 deep"),
        (f"a: {'[' * 64}{']' * 64}", 1, "nested more than 64 deep"),
        ("[" * 200_000, 1, "nest"),
        ("- " * 200_000, 1, "nest"),
    ],
)
def test_what_is_not_read_is_refused_with_its_line(text, line, reason):
    """No second meaning, no code, nothing that another door would refuse."""
    with pytest.raises(YamlFault, match=reason) as refused:
        parse_yaml(text)
    assert refused.value.line == line


def test_63_levels_within_the_document_are_read():
    """The document is the first of 64."""
    assert parse_yaml(f"a: {'[' * 63}{']' * 63}")["a"] != []


def test_aliases_are_read_but_cannot_multiply_without_end():
    """An anchor may be used again; nine lines that say a billion values are refused, and a merge key is a key."""
    assert parse_yaml("a: &x {n: 1}\nb: *x\nc: {<<: *x}") == {"a": {"n": 1}, "b": {"n": 1}, "c": {"<<": {"n": 1}}}
    lines = ["a: &a [x,x,x,x,x,x,x,x,x,x]"]
    lines += [
        f"{one}: &{one} [{','.join(['*' + before] * 10)}]" for before, one in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    with pytest.raises(YamlFault, match="values; write fewer aliases"):
        parse_yaml("\n".join(lines))


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.text(
            st.characters(codec="utf-8", min_codepoint=32, max_codepoint=0xD7FF, exclude_characters="\x7f"), max_size=8
        ),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=5), inner, max_size=3
            )
        ),
        max_leaves=12,
    )
)
def test_json_is_yaml(value):
    """A JSON document means the same in a file that is read as YAML."""
    assert parse_yaml(json.dumps(value)) == value
