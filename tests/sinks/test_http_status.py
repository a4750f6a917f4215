"""What a status of HTTP means for a delivery, the same to every sink that speaks it."""

from __future__ import annotations

import pytest

from sinks.http_status import passes, redirects, succeeded


@pytest.mark.case("C42")
def test_each_status_is_of_one_class():
    """2xx succeeded, below 400 the others redirect, 408, 425, 429 and 5xx pass, and the rest is final."""
    statuses = range(100, 600)
    assert [one for one in statuses if succeeded(one)] == [*range(200, 300)]
    assert [one for one in statuses if redirects(one)] == [*range(100, 200), *range(300, 400)]
    assert [one for one in statuses if passes(one)] == [408, 425, 429, *range(500, 600)]
