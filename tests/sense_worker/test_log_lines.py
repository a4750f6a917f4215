"""Cutting output into lines."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sense_worker.log_lines import LINE_LIMIT, LineCutter


def cut(*chunks: bytes) -> list[str]:
    cutter = LineCutter()
    return [line for chunk in chunks for line in cutter.feed(chunk)] + cutter.rest()


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_where_the_chunks_end_does_not_matter(output: bytes, cuts: list[int]) -> None:
    """However the pipe hands the bytes over, the lines are the same, and printable."""
    places = [0, *sorted(cuts), len(output)]
    pieces = [output[start:end] for start, end in itertools.pairwise(places)]

    lines = cut(*pieces)

    assert lines == cut(output)
    assert all(line.isprintable() for line in lines)


def test_a_long_line_is_cut_and_the_next_is_whole() -> None:
    """The tail of a line over the limit is counted, not kept."""
    assert cut(b"x" * LINE_LIMIT, b"y" * 1_000_000, b"\nnext\r\n") == [
        "x" * LINE_LIMIT + " [cut: 1000000 more bytes]",
        "next",
    ]


def test_an_empty_line_stays_one() -> None:
    """Two line ends in a row are an empty line; an end at the end is none."""
    assert cut(b"a\n\nb\n") == ["a", "", "b"]
