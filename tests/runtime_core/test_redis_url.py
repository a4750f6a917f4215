"""A Redis server as a URL names it: one reading for the settings, the publisher and the sinks."""

from __future__ import annotations

import pytest

from runtime_core.redis_url import REDIS_FORMS, RedisUrl


@pytest.mark.case("C53")
@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("redis://h", ("redis://h:6379", "h", 6379, "", False, "", "", 0)),
        ("redis://h:1/2", ("redis://h:1", "h", 1, "", False, "", "", 2)),
        ("rediss://ana:p%40ss@h/", ("rediss://h:6379", "h", 6379, "", True, "ana", "p@ss", 0)),
        ("redis://:pw@[::1]:1?db=3", ("redis://[::1]:1", "::1", 1, "", False, "", "pw", 3)),
        ("unix:///a%20b/s?db=4", ("unix:///a b/s", "", 6379, "/a b/s", False, "", "", 4)),
        ("unix://act_1:pw@/s", ("unix:///s", "", 6379, "/s", False, "act_1", "pw", 0)),
    ],
)
def test_a_redis_url_is_read(url, read):
    """Each form says host or path, name, password and database; what may be shown has no password."""
    assert RedisUrl.parse(url) == read
    assert "pw" not in RedisUrl.parse(url).shown


@pytest.mark.case("C53")
@pytest.mark.parametrize(
    "url",
    [
        "", "s3cret", "http://s3cret@h/0", "redis://", "redis:///0", "redis://h:port", "redis://h:70000/0", "redis://h/zero",
        "redis://h/-1", "redis://h/1/2", "redis://h/0#s3cret", "redis://h /0", "redis://h\n", "redis://[::1/0",
        "redis://h/0?colour=red", "unix://", "unix:///", "unix://relative", "unix:///s?db=x", "unix:///s?colour=red",
        "redis+socket:///s", "redis://h/٣", "redis://h?db=1&db=2",
    ],
)  # fmt: skip
def test_another_form_is_refused_without_showing_it(url):
    """The error names the forms there are; what was given may hold a password."""
    with pytest.raises(ValueError, match="redis://") as caught:
        RedisUrl.parse(url)
    assert str(caught.value) == REDIS_FORMS


def test_options_of_a_client_are_let_through_where_one_reads_them():
    """Over TCP, with `more_options`; a socket has none but its database."""
    url = "rediss://h/1?ssl_cert_reqs=required"

    assert RedisUrl.parse(url, more_options=True).db == 1
    with pytest.raises(ValueError, match="unix"):
        RedisUrl.parse("unix:///s?password=x", more_options=True)
