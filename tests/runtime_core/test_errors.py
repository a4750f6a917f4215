"""Errors as one line for people."""

from __future__ import annotations

import pytest

from runtime_core.errors import Denied, UsageError


@pytest.mark.parametrize("value", ["x" * 5000, "'" + "x y" * 2000 + "'", '"' + "é " * 3000 + '"', "a/" * 2500])
def test_a_long_value_is_shortened_and_the_rest_is_not(value):
    """Its beginning, its end and its length stay, and so do the words around it and the way out."""
    text = str(UsageError("state", f"{value} is none of {', '.join(['held'] * 60)}", "see `sense-worker --help`"))

    assert text.startswith(f"state: {value[:160]}…{value[-40:]} [")
    assert text.endswith(f" characters] is none of {', '.join(['held'] * 60)} (see `sense-worker --help`)")


def test_no_line_grows_without_bound():
    """Also of short words there is an end."""
    assert len(str(UsageError("x", "word " * 10_000, "way out"))) < 2_100


def test_a_denial_stays_whole():
    """Its text is that of the table, however long the names in it are (DESIGN §7)."""
    text = f"denied: missing verb.exec.read for {'p' * 128}.{'v' * 128}"

    assert str(Denied(text)) == text
